"""Turns an accepted socket or stream into a connection: a transport, layers on top of it, and a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.broker.net.stream_transport import StreamTransport
from trunkline.broker.net.transport import SocketTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from socket import socket

    import trio

    from trunkline.broker.net.admission import Admission
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.protocol import LayerFactory, ListenerProtocol, ProtocolActor
    from trunkline.broker.net.services import NetServices
    from trunkline.broker.net.transport import Transport


class Acceptor:
    """The connections of one listener."""

    __slots__ = (
        "_admission",
        "_counted",
        "_layers",
        "_passed_admission",
        "_services",
        "admitted",
        "connections",
        "protocol",
    )

    def __init__(
        self,
        protocol: ListenerProtocol,
        layers: Sequence[LayerFactory],
        services: NetServices,
        admission: Admission | None = None,
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        """`layers` are those of the listener. `counted` is called when `admitted` has changed."""
        self.protocol = protocol
        self._services = services
        self.use(layers)
        #: None where there are no addresses, or a layer learns them.
        self._admission = None if admission is None or admission.comes_later else admission
        #: What another shard passes on comes with its address.
        self._passed_admission = admission
        self.connections: set[ProtocolActor[Any]] = set()
        #: How many they are without those that another shard relays, where they count.
        self.admitted = 0
        self._counted = counted

    def use(self, layers: Sequence[LayerFactory]) -> None:
        """Put these on the transport of each new connection, the first one at the bottom."""
        self._layers = (*layers, *self._services.layers)

    def accept_socket(self, sock: socket, peer: tuple[str, int] | None) -> None:
        """
        Raises:
            Exception: it cannot be served. The caller keeps the socket.
        """
        assert self._services.poller is not None
        self.accept(SocketTransport(sock, peer, self._services.poller))

    def accept_stream(self, stream: trio.abc.Stream, peer: tuple[str, int] | None = None) -> None:
        """Serve any trio stream.

        Raises:
            Exception: it cannot be served. The caller keeps the stream.
        """
        self.accept(StreamTransport(stream, peer, self._services.scheduler, self._services.metrics))

    def accept(self, transport: Transport) -> None:
        """
        Raises:
            Exception: it cannot be served; everything but the wrapped socket or stream is cleaned up.
        """
        for layer in self._layers:
            transport = layer(transport)
        self._services.metrics.connections_accepted += 1
        self._start(transport, self._admission, self._closed)

    def take(self, passed: PassedConnection) -> None:
        """Serve a connection that another shard has admitted, counted, and freed of the listener's layers.

        Raises:
            Exception: it cannot be served. The caller keeps the socket.
        """
        # imported here: most nodes are one shard
        from trunkline.broker.net.passed_transport import transport_of

        assert self._services.poller is not None
        transport: Transport = transport_of(passed, self._services.poller)
        if passed.relayed:  # all layers stay there
            self._start(transport, None, self.connections.discard, counts=False)
            return
        for layer in self._services.layers:
            transport = layer(transport)
        self._start(transport, self._passed_admission, self._closed_passed)

    def _start(
        self,
        transport: Transport,
        admission: Admission | None,
        closed: Callable[[ProtocolActor[Any]], None],
        *,
        counts: bool = True,
    ) -> None:
        connection = self.protocol.connect(transport, closed)
        self.connections.add(connection)
        if counts:
            self.admitted += 1
            self._counted()
        if admission is not None:
            admission.enter(transport.peer)
        try:
            self._services.supervisor.start(connection, name="connection")
        except Exception:
            closed(connection)
            transport.close()
            raise

    def _closed(self, connection: ProtocolActor[Any]) -> None:
        self._leave(connection, self._admission)

    def _closed_passed(self, connection: ProtocolActor[Any]) -> None:
        self._leave(connection, self._passed_admission)

    def _leave(self, connection: ProtocolActor[Any], admission: Admission | None) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self.admitted -= 1
            self._counted()
            if admission is not None:
                admission.leave(connection.peer)

    def close_handshakes(self) -> None:
        """Close the connections whose client has not been accepted yet."""
        for connection in list(self.connections):
            if connection.in_handshake:
                connection.ref.stop()

    async def wait_empty(self) -> None:
        """Wait until the last connection is gone."""
        while self.connections:
            await next(iter(self.connections)).ref.join()
