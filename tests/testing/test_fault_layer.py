import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import room
from tests.conformance import raw
from tests.testing.people import both_ways, people
from tests.wire import Wire
from trunkline import testing
from trunkline.mqtt.reasons import Reason


@both_ways
async def test_what_is_closed_already_is_not_cut(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with testing.broker() as b, people(how, b) as (one, other):
        (link,) = [link for link in b._running.network if link.client_id == "a"]  # pyright: ignore[reportPrivateUsage]
        await one.abort()
        await b.wait_until(lambda: len(b.clients) == 1)
        link.reset_soon()
        await other.ping()
        assert not list(b._running.network)[1:]  # pyright: ignore[reportPrivateUsage]
    assert not caplog.records


async def test_a_client_that_is_not_read_from_goes_on_where_it_was() -> None:
    async with room() as here:
        client = await here.client("a")
        fault = here.broker.faults.stop_reading(client="a")
        assert fault.hits == 1
        await client.send(raw.PINGREQ)
        await wait_all_tasks_blocked()
        assert (await here.admin.figures())["packets.pingreq.received"] == 0
        fault.remove()
        await client.expect(raw.PINGRESP)


async def test_a_client_that_takes_nothing_makes_the_broker_keep_its_messages() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("#", 0))
        fault = here.broker.faults.stop_reading(client="a", direction="to")
        for _ in range(20):
            here.broker.publish("t", b"x" * 10_000)
            await wait_all_tasks_blocked()
        assert here.session("a").session.queue.length > 10
        fault.remove()
        for _ in range(20):
            await client.expect_publish("t", b"x" * 10_000)


async def test_silence_is_a_connection_that_is_open_at_one_end_only(autojump_clock: MockClock) -> None:
    async with room() as here:
        watcher = await here.client("watcher")
        await watcher.subscribe("last")
        client = await here.client("a", keep_alive=10, will=raw.Will("last", b"words"))
        here.broker.faults.silence(client="a")
        began = trio.current_time()
        await client.abort()
        await watcher.expect_publish("last", b"words")
        assert trio.current_time() - began == pytest.approx(15, abs=1)


async def test_a_silent_client_does_not_hear_that_the_broker_has_closed(mock_clock: MockClock) -> None:
    async with testing.broker() as b, people("tcp", b) as (one, other):
        first, second = b.faults.silence(client="a"), b.faults.silence(client="b")
        for name in ("a", "b"):
            b.kick(name)
        await b.clock.advance(1)
        first.remove()
        await one.expect_disconnect(Reason.ADMINISTRATIVE_ACTION)  # the broker still waits for it to close
        await b.clock.advance(1000)
        heard = list[bytes]()
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                heard.append(await other.rest())

            nursery.start_soon(listen)
            await wait_all_tasks_blocked(0.01)
            assert not heard
            second.remove()
        assert heard == [b""]


async def test_a_silent_client_may_close_what_the_broker_has_closed(mock_clock: MockClock) -> None:
    async with testing.broker() as b, people("tcp", b) as (one, other):
        b.faults.silence(client="a")
        b.kick("a")
        await b.clock.advance(1000)
        assert len(list(b.faults)) == 1
        await one.abort()
        await other.ping()


async def test_what_was_silenced_comes_when_the_network_is_back() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.silence(client="a")
        here.broker.publish("t", b"x")
        await client.send(raw.PINGREQ)
        await wait_all_tasks_blocked()
        fault.remove()
        await client.expect_publish("t", b"x")
        await client.expect(raw.PINGRESP)


async def test_a_broker_that_ends_leaves_no_silent_socket() -> None:
    async with testing.broker() as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        b.faults.silence()
        b.kick("a")
        await b.wait_until(lambda: not b.clients)
    await wire.expect_disconnect(Reason.ADMINISTRATIVE_ACTION)
    await wire.abort()


async def test_what_is_to_leave_at_once_does_not_overtake_what_is_held_back() -> None:
    async with room() as here:
        client = await here.client("a")
        (layer,) = here.broker._running.network  # pyright: ignore[reportPrivateUsage]
        fault = here.broker.faults.stop_reading(client="a", direction="to")
        layer.send(b"\x40\x02\x00\x01")
        layer.send_now(b"\x40\x02\x00\x02")
        await wait_all_tasks_blocked()
        fault.remove()
        await client.expect(b"\x40\x02\x00\x01")
        await client.expect(b"\x40\x02\x00\x02")
