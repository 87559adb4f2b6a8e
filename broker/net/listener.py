"""A listener: its sockets, which clients may connect there, and how many at a time."""

from __future__ import annotations

import errno
import logging
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.log_throttle import LogThrottle
from trunkline.broker.net.poller import READ
from trunkline.config.addresses import shown_address

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from trunkline.actors import Scheduler
    from trunkline.broker.log_throttle import Occurrences
    from trunkline.broker.net.acceptor import Acceptor
    from trunkline.broker.net.admission import Admission
    from trunkline.broker.net.listening_sockets import BoundSocket
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.poller import Poller
    from trunkline.broker.net.services import NetServices
    from trunkline.broker.rate_limits import RateLimit
    from trunkline.config.listener_settings import ListenerSettings

#: Connections accepted in one turn, so that a burst of them leaves time for existing connections.
ACCEPTED_AT_ONCE: Final = 64
#: Clients disconnected before other work gets its turn.
DISCONNECTED_AT_ONCE: Final = 100
#: Seconds without a new connection after the system has run out of descriptors or memory.
PAUSE: Final = 0.5
#: What the system says when it has no room for one more connection.
OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}

Peer: TypeAlias = tuple[str, int] | None

_logger = logging.getLogger("trunkline.listeners")


class State(Enum):
    LISTENING = "listening"
    #: Connections are kept; new ones wait in the system's backlog.
    PAUSED = "paused"
    #: No socket is open.
    CLOSED = "closed"


class Listener:
    """The listening sockets of one URL."""

    def __init__(
        self,
        settings: ListenerSettings,
        acceptor: Acceptor,
        admission: Admission,
        services: NetServices,
        rates: Sequence[RateLimit] = (),
    ):
        """`rates` limit how many connections are accepted in a second."""
        self.settings = settings
        self.acceptor = acceptor
        self.state = State.CLOSED
        self.admission = admission
        self._services = services
        self._sockets: list[BoundSocket] = []
        self._listening: list[_ListeningSocket] = []
        #: Set while accepting, where tasks accept.
        self._resumed = trio.Event()
        self.rates = rates
        self._refused = LogThrottle(services.scheduler.call_at, self._say_refused)
        #: Where it listens: host and port, or the path of a Unix socket and 0. Once it is open, with the port that the
        #: system chose when the configured one is 0.
        self.address: tuple[str, int] = (settings.host or settings.address.path, settings.port)

    @property
    def has_sockets(self) -> bool:
        return bool(self._sockets)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of all its sockets: a host name, or `*`, may stand for several."""
        return [bound.address for bound in self._sockets] or [self.address]

    async def open(self) -> None:
        """
        Raises:
            OSError: the address cannot be listened on.
        """
        self._sockets = await self._services.open_sockets(self.settings)
        if self._sockets:  # one of several shards may have none, and serve what others pass on
            self.address = self._sockets[0].address
        self.state = State.LISTENING
        self._resumed = trio.Event()
        self._resumed.set()
        for bound in self._sockets:
            if self._services.poller is not None:
                self._listening.append(
                    _ListeningSocket(bound.sock, self, self._services.poller, self._services.scheduler)
                )
            else:
                accept = partial(self._accept_in_task, trio.socket.from_stdlib_socket(bound.sock))
                await self._services.start_background(f"accepting on {shown_address(bound.address)}", accept)

    def pause(self) -> None:
        """Accept nothing; new connections wait in the backlog."""
        if self.state is State.LISTENING:
            self.state = State.PAUSED
            self._resumed = trio.Event()
            for each in self._listening:
                each.close()

    def resume(self) -> None:
        """Accept again after a pause."""
        if self.state is State.PAUSED:
            self.state = State.LISTENING
            self._resumed.set()
            for each in self._listening:
                each.open()

    def close(self) -> None:
        self.state = State.CLOSED
        self._resumed.set()
        self._refused.flush()
        for each in self._listening:
            each.close()
        self._listening.clear()
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()

    async def disconnect_clients(self, rate: int) -> None:
        """Disconnect so many a second, 0 for all at once, as long as the listener is closed."""
        for number, connection in enumerate(list(self.acceptor.connections), 1):
            if self.state is not State.CLOSED:
                return
            if connection in self.acceptor.connections:
                connection.disconnect()
                if rate:
                    await trio.sleep(1 / rate)
            if not number % DISCONNECTED_AT_ONCE:
                await trio.lowlevel.checkpoint()

    def accept(self, sock: socket.socket, peer: Peer, serve: Callable[[], None]) -> None:
        """Serve an accepted connection, or close it. An error costs this connection alone.

        Raises:
            OSError: the system is out of descriptors or memory.
        """
        for limit in self.rates:
            limit.take(1, trio.current_time())
        self._serve(sock, serve, partial(self._allows, peer))

    def take(self, passed: PassedConnection) -> None:
        """Serve a connection that another shard of the node has admitted, by the same listener there, or close it.

        Raises:
            OSError: the system is out of memory.
        """
        self._serve(passed.sock, partial(self.acceptor.take, passed), lambda: True)

    def _serve(self, sock: socket.socket, serve: Callable[[], None], allows: Callable[[], bool]) -> None:
        try:
            if allows():
                serve()
            else:
                sock.close()
        except Exception as error:
            sock.close()
            self._services.metrics.connections_failed += 1
            if not isinstance(error, OSError):
                self._services.scheduler.blame(None, self.accept, error)
            elif error.errno in OUT_OF_RESOURCES:
                raise
            else:
                _logger.info("%s: a connection was lost while it was accepted: %s", self.settings.label, error.strerror)

    def exceeded_rate(self, now: float) -> RateLimit | None:
        """The limit that the next connection has to wait for. It waits in the system's backlog."""
        latest = max(self.rates, key=lambda limit: limit.ready_at, default=None)
        return latest if latest is not None and latest.ready_at > now else None

    def waits_for(self, limit: RateLimit) -> None:
        self._services.limit_report.acted(limit.kind, self.settings.label, limit.text)

    def out_of_resources(self, error: OSError) -> None:
        text = f"{self.settings.label} cannot accept new connections: {error.strerror}"
        self._services.alarms.activate(OUT_OF_DESCRIPTORS, text)

    def has_resources(self) -> None:
        self._services.alarms.deactivate(OUT_OF_DESCRIPTORS)

    async def _accept_in_task(self, listening: trio.socket.SocketType) -> None:
        while True:
            exceeded = self.exceeded_rate(trio.current_time())
            if exceeded is not None:
                self.waits_for(exceeded)
                await trio.sleep_until(exceeded.ready_at)
                continue
            try:
                await self._resumed.wait()
                sock, name = await listening.accept()
                self.has_resources()
                stream, peer = trio.SocketStream(sock), _peer(name)
                self.accept(sock, peer, partial(self.acceptor.accept_stream, stream, peer))  # type: ignore[arg-type]
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self.out_of_resources(error)
                    await trio.sleep(PAUSE)
                elif error.errno == errno.EBADF:
                    return  # closed
            except trio.ClosedResourceError:
                return

    def _allows(self, peer: Peer) -> bool:
        refusal = self.admission.refusal(peer, self.acceptor.admitted)
        if refusal:
            self._services.metrics.connections_refused += 1
            self._refused.note(refusal, self.address[0] if peer is None else peer[0], "")
        return not refusal

    def _say_refused(self, refusal: str, times: Occurrences) -> None:
        _logger.warning(
            "%s: %s from %s: %s (%s%s)",
            self.settings.label,
            times.counted("connection", "refused"),
            times.apart("host"),
            refusal,
            times.example,
            times.last[0],
            extra={"listener": self.settings.label, "peer": times.last[0], "count": times.count},
        )


class _ListeningSocket:
    """A listening socket that the poller watches."""

    def __init__(self, sock: socket.socket, listener: Listener, poller: Poller, scheduler: Scheduler) -> None:
        self._sock = sock
        self._listener = listener
        self._poller = poller
        #: No actor owns this.
        self.owner = None
        #: What is ready are clients that come.
        self.is_new = True
        self._reopening = scheduler.call_at(inf, self.open)
        poller.register(sock, READ, self)

    def ready(self, events: int, limit: int) -> None:
        del events, limit
        for accepted in range(ACCEPTED_AT_ONCE):
            exceeded = self._listener.exceeded_rate(trio.current_time())
            if exceeded is not None:
                if not accepted:  # there is a connection that waits
                    self._listener.waits_for(exceeded)
                    self._poller.forget(self._sock)
                    self._reopening.restart_at(exceeded.ready_at)
                return
            try:
                sock, name = self._sock.accept()
                self._listener.has_resources()
                peer = _peer(name)
                self._listener.accept(sock, peer, partial(self._listener.acceptor.accept_socket, sock, peer))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._listener.out_of_resources(error)
                    self._poller.forget(self._sock)
                    self._reopening.restart(PAUSE)
                    return
                # the client has closed before the accept

    def open(self) -> None:
        try:
            self._poller.register(self._sock, READ, self)
        except OSError:
            self._reopening.restart(PAUSE)

    def close(self) -> None:
        self._reopening.cancel()
        self._poller.forget(self._sock)


def _peer(name: Any) -> Peer:
    """Clients of a Unix socket have no address."""
    return None if isinstance(name, str | bytes) else name[:2]
