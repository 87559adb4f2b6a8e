"""What a listener accepted becomes a connection: layers on its transport, and a protocol on top."""

from typing import Any

import trio
import trio.testing

from tests.broker.room import room
from tests.wire import Wire, connect
from trunkline.broker.connection.acceptor import Acceptor, ProtocolActor
from trunkline.broker.connection.transport import Event, Layer, Transport
from trunkline.broker.metrics import Metrics
from trunkline.broker.node import open_node


class Echo(ProtocolActor[Event]):
    """Another protocol than MQTT."""

    in_handshake = False
    pending = 0

    def __init__(self, transport: Transport, on_closed: Any) -> None:
        self._transport, self._on_closed = transport, on_closed

    def init(self) -> None:
        self._transport.start(self.ref.cast, self)

    def handle(self, message: Event) -> None:
        if isinstance(message, bytes):
            self._transport.send(message)
        else:
            self.stop()

    def terminate(self, reason: object) -> None:
        self._on_closed(self)
        self._transport.close()


class Marked(Layer):
    """Puts a letter before whatever is sent."""

    mark = b""

    def send(self, data: bytes) -> None:
        self.below.send(self.mark + data)


class Inner(Marked):
    mark = b"i"


class Outer(Marked):
    mark = b"o"


async def test_a_listener_serves_any_protocol_on_any_layers() -> None:
    async with room() as here:
        node, metrics = here.node, Metrics()
        acceptor = Acceptor(Echo, (Outer, Inner), node._connections, node.scheduler, None, metrics)  # pyright: ignore[reportPrivateUsage]
        ours, theirs = trio.testing.memory_stream_pair()
        acceptor.accept_stream(theirs)
        assert (len(acceptor.connections), metrics.connections_accepted) == (1, 1)
        await ours.send_all(b"x")
        assert await ours.receive_some() == b"oix"
        await ours.aclose()
        await acceptor.wait_empty()


class Proxied(Layer):
    """Knows the client's address when the first bytes have come, as after a PROXY header."""

    known: tuple[str, int] | None = None

    @property
    def peer(self) -> tuple[str, int] | None:
        return self.known

    def receive(self, event: Event) -> None:
        self.known = ("192.0.2.7", 4321)
        super().receive(event)


async def test_the_address_of_a_client_may_come_after_the_accept() -> None:
    async with open_node(layers=[Proxied]) as node:
        seen: list[str] = []
        node.hooks.add("client.connect", lambda client, packet: seen.append(client.address))
        wire = Wire(connect(node))
        await wire.connect("a")
        await wire.abort()
    assert seen == ["192.0.2.7:4321"]
