"""Turns an accepted socket or stream into a connection: a transport, layers on top of it, and a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from trunkline.actors import Actor
from trunkline.broker.connection.stream_transport import StreamTransport
from trunkline.broker.connection.transport import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from socket import socket

    import trio

    from trunkline.actors import Scheduler, Supervisor
    from trunkline.broker.connection.admission import Admission
    from trunkline.broker.connection.poller import Poller
    from trunkline.broker.connection.transport import Transport
    from trunkline.broker.metrics import Metrics

M = TypeVar("M")


class ProtocolActor(Actor[M]):
    """Handles a protocol on a transport."""

    __slots__ = ()

    @property
    def in_handshake(self) -> bool:
        """Whether the client has not been accepted yet."""
        raise NotImplementedError

    def follow_settings(self) -> None:
        """Its listener has other settings."""
        raise NotImplementedError

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the client, as far as they are known."""
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """Bytes that wait because the client does not read them yet."""
        raise NotImplementedError

    @property
    def is_paused(self) -> bool:
        """Whether the broker reads nothing from the client."""
        raise NotImplementedError

    @property
    def held_packet(self) -> tuple[int, int] | None:
        """The packet of which only a part has come from an accepted client: a number that no later one has, and the
        bytes that have come."""
        raise NotImplementedError

    def end_slow_packet(self, limit: str) -> None:
        """End the connection, because that packet takes longer than `limit`, which is in words."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """An operator ends the connection."""
        raise NotImplementedError


#: Puts a layer on top of a transport, or nothing.
LayerFactory: TypeAlias = "Callable[[Transport], Transport]"
#: Makes the protocol handler of a transport. It calls back when it ends.
ProtocolFactory: TypeAlias = "Callable[[Transport, Callable[[ProtocolActor[Any]], None]], ProtocolActor[Any]]"


class Acceptor:
    """The connections of one listener."""

    __slots__ = (
        "_admission",
        "_metrics",
        "_poller",
        "_protocol",
        "_scheduler",
        "_supervisor",
        "connections",
        "layers",
    )

    def __init__(
        self,
        protocol: ProtocolFactory,
        layers: Sequence[LayerFactory],
        supervisor: Supervisor,
        scheduler: Scheduler,
        poller: Poller | None,
        metrics: Metrics,
        admission: Admission | None = None,
    ) -> None:
        """`layers` are put on each transport, the first one at the bottom. Sockets need a `poller`."""
        self._protocol = protocol
        self.layers = layers
        self._supervisor = supervisor
        self._scheduler = scheduler
        self._poller = poller
        self._metrics = metrics
        #: None where there are no addresses, or a layer learns them.
        self._admission = None if admission is None or admission.comes_later else admission
        self.connections: set[ProtocolActor[Any]] = set()

    def accept_socket(self, sock: socket, peer: tuple[str, int] | None) -> None:
        """
        Raises:
            Exception: it cannot be served. The caller keeps the socket.
        """
        assert self._poller is not None
        self.accept(SocketTransport(sock, peer, self._poller))

    def accept_stream(self, stream: trio.abc.Stream, peer: tuple[str, int] | None = None) -> None:
        """Serve any trio stream.

        Raises:
            Exception: it cannot be served. The caller keeps the stream.
        """
        self.accept(StreamTransport(stream, peer, self._scheduler, self._metrics))

    def accept(self, transport: Transport) -> None:
        """
        Raises:
            Exception: it cannot be served; everything but the wrapped socket or stream is cleaned up.
        """
        for layer in self.layers:
            transport = layer(transport)
        connection = self._protocol(transport, self._closed)
        self.connections.add(connection)
        if self._admission is not None:
            self._admission.enter(transport.peer)
        self._metrics.connections_accepted += 1
        try:
            self._supervisor.start(connection, name="connection")
        except Exception:
            self._closed(connection)
            transport.close()
            raise

    def _closed(self, connection: ProtocolActor[Any]) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            if self._admission is not None:
                self._admission.leave(connection.peer)

    def close_handshakes(self) -> None:
        """Close the connections whose client has not been accepted yet."""
        for connection in list(self.connections):
            if connection.in_handshake:
                connection.ref.stop()

    async def wait_empty(self) -> None:
        """Wait until the last connection is gone."""
        while self.connections:
            await next(iter(self.connections)).ref.join()
