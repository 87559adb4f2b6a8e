"""What a listener accepted becomes a connection: layers on its transport, and a protocol on top."""

import trio.testing

from tests.broker.net.echo import EchoProtocol, net_services
from tests.wire import Wire, connect
from trunkline.broker.net.acceptor import Acceptor
from trunkline.broker.net.transport import Event, Layer
from trunkline.broker.node.opening import open_node
from trunkline.config.config import Config


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
    async with net_services(layers=(Inner,)) as services:
        acceptor = Acceptor(EchoProtocol(Config(), None), (Outer,), services)
        ours, theirs = trio.testing.memory_stream_pair()
        acceptor.accept_stream(theirs)
        assert (len(acceptor.connections), services.metrics.connections_accepted) == (1, 1)
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
