"""A client that is held up says goodbye, and the broker ends its connection before it is read: a will that the
DISCONNECT cancels is not published."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.conformance.raw import Will
from tests.frames import Frames
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.metrics import LimitKind
from trunkline.broker.net.transport import READ_SIZE
from trunkline.broker.session import mail

WILL = Will("will", b"gone")
GOODBYE = raw.disconnect()


async def kick(here: Room) -> None:
    here.broker.kick("a")


#: How the broker ends the connection.
ENDS: dict[str, Callable[[Room], Awaitable[object]]] = {
    "taken over": lambda here: here.stay("a"),
    "taken over with a clean start": lambda here: here.client("a"),
    "kicked": kick,
}


async def from_inside(b: testing.Broker) -> trio.abc.Stream:
    return b.connect()


async def by_tcp(b: testing.Broker) -> trio.abc.Stream:
    return await trio.open_tcp_stream(b.host, b.port)


async def by_tls(b: testing.Broker) -> trio.abc.Stream:
    return trio.SSLStream(await by_tcp(b), b.client_context(), server_hostname="localhost")


async def by_websocket(b: testing.Broker) -> trio.abc.Stream:
    return await Frames.open(b.host, b.port)


WAYS: dict[str, Callable[[testing.Broker], Awaitable[trio.abc.Stream]]] = {
    "inside": from_inside,
    "tcp": by_tcp,
    "tls": by_tls,
    "ws": by_websocket,
}


async def held_up(here: Room, stream: trio.abc.Stream, *packets: bytes) -> Wire:
    """A client with a will, whose packets are not read."""
    client = Wire(stream, patience=60)
    await client.connect("a", clean=False, will=WILL, properties=raw.session_expiry(1000))
    channel = here.session("a").channel
    assert channel is not None
    channel.cast(mail.Pause("test"))
    await wait_all_tasks_blocked(0.01)
    for packet in packets:
        await client.send(packet)
        await wait_all_tasks_blocked(0.01)
    assert here.session("a").channel is channel
    return client


async def watching(here: Room, topic: str = "will") -> Wire:
    watcher = await here.client("w")
    await watcher.subscribe((topic, 0))
    return watcher


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ENDS)
async def test_what_was_not_read_may_cancel_the_will(end: str, way: str) -> None:
    listeners = [] if way == "inside" else [f"{way}://127.0.0.1:0"]
    async with room(listeners=listeners) if listeners else room() as here:
        watcher = await watching(here)
        client = await held_up(here, await WAYS[way](here.broker), raw.publish("t", b"x"), raw.PINGREQ, GOODBYE)
        await ENDS[end](here)
        await watcher.expect_nothing()
        assert here.session("a").session.will is None
        await client.abort()


async def test_what_was_not_read_comes_by_layers_of_sent_bytes() -> None:
    async with room(listeners=[{"url": "tcp://127.0.0.1:0", "mountpoint": "site/"}]) as here:
        watcher = await watching(here)
        client = await held_up(here, await by_tcp(here.broker), GOODBYE)
        await kick(here)
        await watcher.expect_nothing()
        assert here.session("a").session.will is None
        await client.abort()


@pytest.mark.parametrize(
    "packets",
    [
        pytest.param((), id="nothing"),
        pytest.param((raw.PINGREQ,), id="no DISCONNECT"),
        pytest.param((raw.disconnect(0x04),), id="with the will"),
        pytest.param((b"\xff\0", GOODBYE), id="behind what is malformed"),
        pytest.param((raw.publish("t", bytes(READ_SIZE)), GOODBYE), id="behind more than a read"),
    ],
)
@pytest.mark.parametrize("way", ["inside", "tcp"])
async def test_the_will_of_others_is_published(way: str, packets: tuple[bytes, ...]) -> None:
    async with room() as here:
        watcher = await watching(here)
        client = await held_up(here, await WAYS[way](here.broker), *packets)
        await here.stay("a")
        await watcher.expect_publish("will", b"gone")
        await client.abort()


async def test_nothing_else_of_it_is_handled() -> None:
    """As of a client that waits for a decision: otherwise who connects again and again would not be held up."""
    async with room() as here:
        watcher = await watching(here, "#")
        client = await held_up(here, await by_tcp(here.broker), raw.publish("t", b"x", qos=1, packet_id=1), GOODBYE)
        successor = await here.stay("a")
        await watcher.expect_nothing()
        await successor.ping()
        assert (await client.receive()).type == raw.DISCONNECT
        await client.expect_close()
        await client.abort()


async def test_what_a_limit_holds_back_comes_first() -> None:
    async with room(rate={"connection_messages": "1/m"}) as here:
        watcher = await watching(here)
        client = Wire(await by_tcp(here.broker), patience=60)
        await client.connect("a", clean=False, will=WILL, properties=raw.session_expiry(1000))
        cut = raw.publish("t", bytes(300))
        await client.send(raw.publish("t", b"x") * 20 + cut[:100])
        await wait_all_tasks_blocked(0.01)
        assert here.node.metrics.limited[LimitKind.CONNECTION_MESSAGES]
        await client.send(cut[100:] + GOODBYE)
        await wait_all_tasks_blocked(0.01)
        await here.stay("a")
        await watcher.expect_nothing()
        await client.abort()


@pytest.mark.parametrize("goodbye", [True, False])
async def test_at_the_end_of_the_node_it_is_one_read_as_any_other(goodbye: bool) -> None:
    async with room() as here:
        watcher = await watching(here, "#")
        client = await held_up(here, await by_tcp(here.broker), raw.publish("t", b"x"), *[GOODBYE] * goodbye)
        here.session("a").ref.cast(mail.PublishWill())
        if not goodbye:
            await watcher.expect_publish("will", b"gone")
        await watcher.expect_publish("t", b"x")
        await watcher.expect_nothing()
        await client.abort()


async def test_a_pause_of_a_stream_loses_and_adds_nothing() -> None:
    async with room() as here:
        watcher = await watching(here, "t")
        packets = [raw.publish("t", b"%d" % number) for number in range(5)]
        client = await held_up(here, here.broker.connect(), *packets)
        channel = here.session("a").channel
        assert channel is not None
        await watcher.expect_nothing()
        channel.cast(mail.Resume("test"))
        for number in range(5):
            await watcher.expect_publish("t", b"%d" % number)
        await client.ping()
        await client.abort()
        await watcher.expect_nothing()


async def test_what_is_malformed_among_it_is_answered_at_the_end_of_the_node() -> None:
    async with room() as here:
        watcher = await watching(here)
        client = await held_up(here, await by_tcp(here.broker), b"\xff\0")
        here.session("a").ref.cast(mail.PublishWill())
        await watcher.expect_publish("will", b"gone")
        assert (await client.expect_type(raw.DISCONNECT)).reason == 0x81
        await client.abort()


async def test_one_that_has_gone_has_nothing_to_say() -> None:
    """Its session hears of that behind the request that ends it."""
    async with room() as here:
        watcher = await watching(here)
        client = await held_up(here, await by_tcp(here.broker), GOODBYE)
        channel = here.session("a").channel
        [connection] = [each for each in here.node.listeners.connections if getattr(each, "_channel", None) is channel]
        with here.node.scheduler.turn:
            here.broker.kick("a")
            connection._ended("")  # type: ignore[attr-defined]
        await watcher.expect_publish("will", b"gone")
        assert here.session("a").ref.alive
        await client.abort()


async def test_what_a_limit_holds_back_is_taken_once() -> None:
    async with room(rate={"connection_messages": "1/m"}) as here:
        watcher = await watching(here, "t")
        client = Wire(await by_tcp(here.broker), patience=60)
        await client.connect("a", clean=False, will=WILL, properties=raw.session_expiry(1000))
        await client.send(b"".join([raw.publish("t", b"%0500d" % number) for number in range(100)]))
        await wait_all_tasks_blocked(0.01)
        channel = here.session("a").channel
        assert channel is not None
        with here.node.scheduler.turn:
            assert not channel.says_goodbye()
            assert not channel.says_goodbye(), "there is nothing more"
        taken = [int((await watcher.expect_type(raw.PUBLISH)).payload) for _ in range(100)]
        assert taken == list(range(100))
        await watcher.expect_nothing()
        await client.abort()
