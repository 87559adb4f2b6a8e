"""What real servers do not show: a network that is half dead, and servers that talk nonsense."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from tests.nats.client.scripted import Peer, Told, serving
from trunkline.nats import Client, Settings, connect
from trunkline.nats.client.events import Disconnected, Event, LameDuck, Reconnected
from trunkline.nats.client.running import CLOSE_TIMEOUT
from trunkline.nats.client.settings import Address
from trunkline.nats.errors import ConnectFailed, ProtocolError, StaleConnection
from trunkline.nats.protocol.operations import PING, PONG, Publish, Subscribe, Unsubscribe


async def good(peer: Peer) -> None:
    """Answers, and does nothing else."""
    await peer.welcome()
    await peer.answer()


async def silent(peer: Peer) -> None:
    """Reads, and says nothing any more."""
    await peer.welcome()
    while await peer.next() is not None:
        pass


async def deaf(peer: Peer) -> None:
    """Reads nothing, either."""
    await peer.welcome()
    await trio.sleep_forever()


@pytest.mark.parametrize("story", [silent, deaf])
async def test_a_half_dead_network_is_left(story: Callable[[Peer], Awaitable[None]]) -> None:
    told = Told()
    async with (
        serving(story, good) as port,
        connect(f"127.0.0.1:{port}", on_event=told, ping_interval=0.05, max_pings=1, reconnect_wait=0.01) as client,
    ):
        if story is deaf:  # a write that does not end
            for _ in range(40):
                for _ in range(200):
                    client.publish_nowait("a", bytes(900))
                await trio.lowlevel.checkpoint()
        lost, again = await told.wait(2)
        await client.flush()
    assert isinstance(lost, Disconnected)
    assert isinstance(lost.error, StaleConnection)
    assert again == Reconnected(f"nats://127.0.0.1:{port}")


@pytest.mark.parametrize("nonsense", [b"HELLO\r\n", b"MSG a 1 x\r\n", b"PONG\r\n", b"INFO x\r\n"])
async def test_nonsense_ends_a_connection_and_not_the_client(nonsense: bytes) -> None:
    told = Told()

    async def talk(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()
        await peer.send(nonsense)
        await peer.next()

    async with (
        serving(talk, good) as port,
        connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client,
    ):
        await client.publish("a")
        lost, _ = await told.wait(2)
        await client.flush()
    assert isinstance(lost, Disconnected)
    assert isinstance(lost.error, ProtocolError)


async def test_nonsense_in_place_of_a_greeting() -> None:
    async def web(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def mute(peer: Peer) -> None:
        await trio.sleep_forever()

    async def gone(peer: Peer) -> None: ...

    for story, why in ((web, "is no operation"), (mute, "no answer within 0.1 s"), (gone, "has closed the connection")):
        async with serving(story) as port:
            with pytest.raises(ConnectFailed, match=why):
                async with connect(f"127.0.0.1:{port}", connect_timeout=0.1):
                    pass


async def test_who_waits_for_room_goes_on_with_the_next_connection() -> None:
    told = Told()
    async with (
        serving(deaf, good) as port,
        connect(
            f"127.0.0.1:{port}",
            on_event=told,
            ping_interval=0.05,
            max_pings=1,
            max_pending=1 << 20,
            reconnect_wait=0.01,
        ) as client,
    ):
        with trio.fail_after(60):
            for _ in range(20_000):
                await client.publish("a", bytes(900))
            await client.flush()
    assert len(told.events) == 2


async def test_who_waits_for_room_goes_on_whoever_writes() -> None:
    async def publish(client: Client) -> None:
        for _ in range(12):
            await client.publish("a", bytes(100))

    async with serving(good) as port, connect(f"127.0.0.1:{port}", max_pending=1000) as client:
        with trio.fail_after(60):
            for _ in range(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(publish, client)
                    nursery.start_soon(client.flush)


async def test_what_waited_for_a_lost_connection_leaves_room() -> None:
    told = Told()

    async def brief(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()

    async with (
        serving(brief, good) as port,
        connect(f"127.0.0.1:{port}", on_event=told, max_pending=10_000, reconnect_wait=0.5) as client,
    ):
        client.publish_nowait("a", bytes(900))
        await told.wait()
        for _ in range(9):
            client.publish_nowait("a", bytes(900))


async def test_a_server_that_asks_and_reads_nothing() -> None:
    told = Told()

    async def flood(peer: Peer) -> None:
        await peer.welcome()
        while True:
            await peer.send(PING.line * 1000)

    async def flood_until_closed(peer: Peer) -> None:
        with suppress(trio.BrokenResourceError):
            await flood(peer)

    async with (
        serving(flood_until_closed, good) as port,
        connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client,
    ):
        lost, _ = await told.wait(2)
        await client.flush()
    assert isinstance(lost, Disconnected)
    assert isinstance(lost.error, StaleConnection)


async def test_a_server_that_talks_and_reads_nothing() -> None:
    told = Told()

    async def talk(peer: Peer) -> None:
        await peer.welcome()
        with suppress(trio.BrokenResourceError):
            while True:
                await peer.send(b"+OK\r\n")
                await trio.sleep(0.01)

    async with (
        serving(talk, good) as port,
        connect(f"127.0.0.1:{port}", on_event=told, ping_interval=0.1, max_pings=1, reconnect_wait=0.01) as client,
    ):
        for _ in range(8000):
            client.publish_nowait("a", bytes(900))
        lost, _ = await told.wait(2)
        await client.flush()
    assert isinstance(lost, Disconnected)
    assert "has read nothing for 0.2 s" in str(lost.error)


async def test_what_a_client_says_of_itself() -> None:
    said: dict[str, object] = {}

    async def note(peer: Peer) -> None:
        said.update((await peer.welcome()).options)
        await peer.next()

    async with serving(note) as port, connect(f"u:p@127.0.0.1:{port}", name="me", echo=False):
        pass
    assert said["lang"] == "python-trunkline"
    assert {
        "name": "me",
        "echo": False,
        "headers": True,
        "no_responders": True,
        "verbose": False,
    }.items() <= said.items()
    assert (said["user"], said["pass"], said["protocol"]) == ("u", "p", 1)


async def test_a_server_that_is_going_to_end() -> None:
    told = Told()

    async def ending(peer: Peer) -> None:
        await peer.welcome()
        await peer.send(b'INFO {"ldm":true}\r\n')
        await peer.answer()

    async with serving(ending) as port, connect(f"127.0.0.1:{port}", on_event=told):
        assert await told.wait() == [LameDuck()]


async def test_what_was_published_last_is_sent_at_the_end() -> None:
    got: list[object] = []
    ended = trio.Event()

    async def note(peer: Peer) -> None:
        await peer.welcome()
        while (operation := await peer.next()) is not None:
            got.append(operation)
        ended.set()

    async with serving(note) as port:
        async with connect(f"127.0.0.1:{port}") as client:
            for _ in range(1000):
                client.publish_nowait("a", bytes(1000))
        await ended.wait()
    assert (len(got), {type(each) for each in got}) == (1000, {Publish})


async def test_what_is_said_of_a_subscription() -> None:
    said: list[object] = []
    ended = trio.Event()

    async def note(peer: Peer) -> None:
        await peer.welcome()
        while (operation := await peer.next()) is not None:
            said.append(operation)
            if operation is PING:
                await peer.send(PONG.line)
        ended.set()

    async with serving(note) as port:
        async with connect(f"127.0.0.1:{port}") as client:
            with client.subscribe("a", queue="q") as some:
                some.unsubscribe(after=5)
                await some.drain()
            with client.subscribe("b"):
                pass
        await ended.wait()
    assert said == [
        Subscribe(b"a", b"q", b"1"),
        Unsubscribe(b"1", 5),
        Unsubscribe(b"1", 0),
        PING,
        Unsubscribe(b"1", 0),
        Subscribe(b"b", b"", b"2"),
        Unsubscribe(b"2", 0),
    ]


async def test_an_error_of_the_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def ending(peer: Peer) -> None:
        await peer.welcome()
        await peer.send(b'INFO {"ldm":true}\r\n')
        await peer.answer()

    def fail(_: Event) -> None:
        raise KeyError("mine")

    async with serving(ending) as port, connect(f"127.0.0.1:{port}", on_event=fail) as client:
        await client.flush()
    assert caplog.messages == ["on_event has failed"]


async def test_what_the_socket_does_not_take_at_once_comes_whole_and_in_order() -> None:
    """Answers and requests are written by the task that has them, as far as the socket takes them."""
    got: list[bytes] = []
    full, ended = trio.Event(), trio.Event()
    count = 6000

    async def late(peer: Peer) -> None:
        await peer.welcome()
        await full.wait()
        while (operation := await peer.next()) is not None:
            assert isinstance(operation, Publish)
            got.append(operation.payload[:6])
        ended.set()

    async with serving(late) as port:
        async with connect(f"127.0.0.1:{port}") as client:
            await trio.testing.wait_all_tasks_blocked()
            for number in range(0, count, 2):
                client.answer("a", b"%06d" % number + bytes(994))
                client.publish_nowait("a", b"%06d" % (number + 1) + bytes(994))
                if not number % 50:
                    await trio.lowlevel.checkpoint()
            full.set()
        with trio.fail_after(30):
            await ended.wait()
    assert got == [b"%06d" % number for number in range(count)]


async def test_a_block_that_ends_beside_a_server_that_reads_nothing(autojump_clock: object) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()

    async def open_stuck(address: Address) -> trio.StapledStream:
        return ours

    async def talk() -> None:
        await Peer(theirs).welcome()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trunkline.nats.client.connections.open_tcp", open_stuck)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            began = trio.current_time()
            async with Client(Settings(servers=(Address("memory", 1),))).opened() as client:
                await client.publish("a", bytes(900))
            assert trio.current_time() - began == pytest.approx(CLOSE_TIMEOUT)


async def test_publishers_that_wait_stay_within_the_limit() -> None:
    most = 0

    async def publish(client: Client) -> None:
        nonlocal most
        for _ in range(2000):
            await client.publish("a", bytes(900))
            most = max(most, client._connections.waiting)

    async with serving(deaf) as port, connect(f"127.0.0.1:{port}", max_pending=10_000) as client:
        with trio.move_on_after(0.3):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(publish, client)
    assert 9_000 < most <= 10_000
