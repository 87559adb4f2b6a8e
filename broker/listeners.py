"""Listening sockets: which clients may connect, and how many at a time."""

from __future__ import annotations

import errno
import logging
import socket
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.alarms import OUT_OF_DESCRIPTORS
from trunkline.broker.connection.admission import address_refusal
from trunkline.broker.connection.poller import READ
from trunkline.broker.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.actors import Scheduler
    from trunkline.broker.connection.acceptor import Acceptor
    from trunkline.broker.connection.poller import Poller
    from trunkline.broker.log_throttle import Occurrences
    from trunkline.broker.session.services import Services
    from trunkline.config.listener_settings import ListenerSettings

#: Connections accepted in one turn, so that a burst of them leaves time for existing connections.
ACCEPTED_AT_ONCE: Final = 64
#: Seconds without a new connection after the system has run out of descriptors or memory.
PAUSE: Final = 0.5
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}

_logger = logging.getLogger("trunkline.listeners")


class Listener:
    """The listening sockets of one URL."""

    def __init__(
        self,
        settings: ListenerSettings,
        acceptor: Acceptor,
        services: Services,
        poller: Poller | None,
        scheduler: Scheduler,
    ):
        self.settings = settings
        self.acceptor = acceptor
        self._services = services
        #: None where connections are fed by tasks.
        self._poller = poller
        self._scheduler = scheduler
        self._sockets: list[socket.socket] = []
        self._listening: list[_ListeningSocket] = []
        self._refused = LogThrottle(scheduler.call_at, self._say_refused)
        #: Where it listens; once it is open, with the port that the system chose when the configured one is 0.
        self.address: tuple[str, int] = (settings.host, settings.port)

    async def open(self, start_background: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[object]]) -> None:
        """`start_background` runs a task by name, and again when it crashes.

        Raises:
            OSError: the address cannot be listened on.
        """
        host, port = self.settings.host, self.settings.port
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in found:
            if self._sockets:  # all addresses of a name get the same port
                address = (address[0], self.address[1], *address[2:])
            self._sockets.append(_bound(family, address, self.settings.backlog))
            self.address = self._sockets[0].getsockname()[:2]
        for sock in self._sockets:
            if self._poller is not None:
                self._listening.append(_ListeningSocket(sock, self, self._poller, self._scheduler))
            else:
                host, port = sock.getsockname()[:2]
                await start_background(f"accepting on {host}:{port}", partial(self._accept_in_task, sock))

    def close(self) -> None:
        self._refused.flush()
        for each in self._listening:
            each.close()
        self._listening.clear()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def accept(self, sock: socket.socket, peer: Any, serve: Callable[[], None]) -> None:
        """Serve an accepted connection, or close it. An error costs this connection alone.

        Raises:
            OSError: the system is out of descriptors or memory.
        """
        try:
            if self._allows(peer):
                serve()
            else:
                sock.close()
        except Exception as error:
            sock.close()
            self._services.metrics.connections_failed += 1
            if not isinstance(error, OSError):
                self._scheduler.blame(None, self.accept, error)
            elif error.errno in _OUT_OF_RESOURCES:
                raise
            else:
                _logger.info("%s: a connection was lost while it was accepted: %s", self.settings.label, error.strerror)

    def out_of_resources(self, error: OSError) -> None:
        text = f"{self.settings.label} cannot accept new connections: {error.strerror}"
        self._services.alarms.activate(OUT_OF_DESCRIPTORS, text)

    def has_resources(self) -> None:
        self._services.alarms.deactivate(OUT_OF_DESCRIPTORS)

    async def _accept_in_task(self, bound: socket.socket) -> None:
        listening = trio.socket.from_stdlib_socket(bound)
        while True:
            try:
                sock, peer = await listening.accept()
                self.has_resources()
                stream = trio.SocketStream(sock)
                self.accept(sock, peer, partial(self.acceptor.accept_stream, stream, peer[:2]))  # type: ignore[arg-type]
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self.out_of_resources(error)
                    await trio.sleep(PAUSE)
                elif error.errno == errno.EBADF:
                    return  # closed
            except trio.ClosedResourceError:
                return

    def _allows(self, peer: Any) -> bool:
        settings, refusal = self.settings, ""
        if len(self.acceptor.connections) >= settings.max_connections:
            refusal = f"max_connections is {settings.max_connections}"
        elif not settings.proxy_protocol.trusted:  # else the client's address is not known yet
            refusal = address_refusal(settings, peer)
        if refusal:
            self._services.metrics.connections_refused += 1
            self._refused.note(refusal, peer[0], "")
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
        self._reopening = scheduler.call_at(inf, self._open)
        poller.register(sock, READ, self)

    def ready(self, events: int, limit: int) -> None:
        del events, limit
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, peer = self._sock.accept()
                self._listener.has_resources()
                self._listener.accept(sock, peer, partial(self._listener.acceptor.accept_socket, sock, peer[:2]))
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._listener.out_of_resources(error)
                    self._poller.forget(self._sock)
                    self._reopening.restart(PAUSE)
                    return
                # the client has closed before the accept

    def _open(self) -> None:
        try:
            self._poller.register(self._sock, READ, self)
        except OSError:
            self._reopening.restart(PAUSE)

    def close(self) -> None:
        self._reopening.cancel()
        self._poller.forget(self._sock)


def _bound(family: int, address: Any, backlog: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows: REUSEADDR would let others take the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock
