"""Whatever is stored lasts as long as it should, whatever the system's clock says meanwhile."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.conformance import raw
from tests.store.clocks import Clocks
from trunkline.broker.alive_note import ALIVE, NODE
from trunkline.broker.node import parts
from trunkline.streams import ConsumerConfig, DeliverPolicy, StreamConfig

HOUR: Final = 3600
#: Seconds for which everything here lasts.
LASTS: Final = 2 * HOUR
#: Longer than the test.
LONG: Final = 100 * HOUR
#: The system's clock is put forward or back by so much.
STEPS: Final = [-5.0 * HOUR, 5.0 * HOUR]
#: The broker's default: seconds.
HEARTBEAT: Final = 10


def true_time() -> float:
    return trio.current_time() + 1_000_000_000.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks(true_time)
    monkeypatch.setattr(parts, "EmbeddedClock", clocks.process)
    return clocks


@asynccontextmanager
async def process(disk: Disk, *, stops: bool = False) -> AsyncGenerator[Life]:
    """It is stopped in order or killed at the end."""
    async with disk.broker(stops=stops) as life:
        for plugin in ("bans", "delayed-publish"):
            await life.node.plugins.enable(plugin)
        yield life


async def all_stored(life: Life) -> None:
    """And all has been done that was due."""
    for _ in range(3):
        await wait_all_tasks_blocked()
        await life.node.plugin_stores.committed()


# What is stored, and how to see whether its time is over


class Kind:
    """Something that is stored for a while."""

    def __init__(
        self,
        begin: Callable[[Life], Awaitable[None]],
        is_over: Callable[[Life], Awaitable[bool]],
    ) -> None:
        self.begin = begin
        self.is_over = is_over


async def leave(life: Life, client_id: str, filter: str = "", expiry: int = LONG, **settings: Any) -> None:
    wire, _ = await life.stay(client_id, expiry=expiry, **settings)
    if filter:
        await wire.subscribe((filter, 1))
    await wire.abort()


async def publish(life: Life, topic: str, **settings: Any) -> raw.Received | None:
    wire = await life.wire()
    await wire.connect(f"publisher of {topic}")
    answer = await wire.publish(topic, b"x", qos=1, **settings)
    await wire.abort()
    return answer


def is_retained(life: Life, topic: str) -> bool:
    return life.node.retained.get(topic, trio.current_time()) is not None


async def begin_session(life: Life) -> None:
    await leave(life, "session", expiry=LASTS)


async def session_is_over(life: Life) -> bool:
    return life.node.sessions.get("session") is None and not (await life.stay("session"))[1]


async def begin_message(life: Life) -> None:
    await leave(life, "waits", "message/#")
    await publish(life, "message/short", properties=raw.message_expiry(LASTS))
    await publish(life, "message/long")


async def message_is_over(life: Life) -> bool:
    wire, _ = await life.stay("waits")
    return (await wire.expect_type(raw.PUBLISH)).topic == "message/long"


async def begin_retained(life: Life) -> None:
    await publish(life, "retained", retain=True, properties=raw.message_expiry(LASTS))


async def retained_is_over(life: Life) -> bool:
    return not is_retained(life, "retained")


async def begin_will(life: Life) -> None:
    await leave(life, "dying", will=raw.Will("will", b"x", retain=True, properties=raw.will_delay(LASTS)))


async def will_is_over(life: Life) -> bool:
    return is_retained(life, "will")


async def begin_stream(life: Life) -> None:
    await life.node.streams.create(StreamConfig(name="aged", filters=("aged",), max_age=LASTS))
    await publish(life, "aged")


async def stream_is_over(life: Life) -> bool:
    return not life.node.streams.info("aged").messages


async def begin_expiry_in_stream(life: Life) -> None:
    await life.node.streams.create(StreamConfig(name="expires", filters=("expires",)))
    await publish(life, "expires", properties=raw.message_expiry(LASTS))


async def expiry_in_stream_is_over(life: Life) -> bool:
    message = (await life.node.streams.get("expires", 1)).message
    return message.expires_at <= trio.current_time()


async def begin_duplicate(life: Life) -> None:
    await life.node.streams.create(StreamConfig(name="once", filters=("once",), duplicate_window=LASTS))
    await publish(life, "once", properties=raw.user_property("Nats-Msg-Id", "1"))


async def duplicate_is_over(life: Life) -> bool:
    await publish(life, "once", properties=raw.user_property("Nats-Msg-Id", "1"))
    return life.node.streams.info("once").messages > 1


async def begin_ack_wait(life: Life) -> None:
    streams = life.node.streams
    await streams.create(StreamConfig(name="acked", filters=("acked",)))
    await streams.create_consumer("acked", ConsumerConfig(name="c", durable=True, ack_wait=LASTS))
    await publish(life, "acked")
    assert len(await streams.fetch("acked", "c")) == 1


async def ack_wait_is_over(life: Life) -> bool:
    keeper = life.node.stream_keeper
    return keeper.registry.get("acked").consumers.get("c").outstanding[1].deadline <= keeper.now


async def begin_consumer(life: Life) -> None:
    streams = life.node.streams
    await streams.create(StreamConfig(name="left", filters=("left",)))
    await streams.create_consumer("left", ConsumerConfig(name="c", durable=True, inactive_threshold=LASTS))


async def consumer_is_over(life: Life) -> bool:
    return not life.node.streams.consumers("left")


async def begin_ban(life: Life) -> None:
    life.node.plugins.call("bans", "add", {"kind": "client_id", "who": "evil", "seconds": str(LASTS)})


async def ban_is_over(life: Life) -> bool:
    wire = await life.wire()
    await wire.send(raw.connect("evil"))
    return (await wire.receive()).reason == 0


async def begin_delayed(life: Life) -> None:
    await publish(life, f"$delayed/{LASTS}/delayed", retain=True)


async def delayed_is_over(life: Life) -> bool:
    return is_retained(life, "delayed")


KINDS: Final = {
    name.removeprefix("begin_"): Kind(begin, globals()[f"{name.removeprefix('begin_')}_is_over"])
    for name, begin in list(globals().items())
    if name.startswith("begin_")
}


# When the clock is corrected


@asynccontextmanager
async def first_process(disk: Disk, *, stops: bool) -> AsyncGenerator[Life]:
    """It has stored what it was given."""
    async with process(disk, stops=stops) as life:
        for kind in KINDS.values():
            await kind.begin(life)
        await all_stored(life)
        yield life


async def before_the_start(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    del mock_clock
    machine.wrong_by = -step
    async with first_process(disk, stops=True):
        machine.wrong_by = 0


async def while_it_runs(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    async with first_process(disk, stops=False) as life:
        machine.wrong_by = step
        mock_clock.jump(HEARTBEAT)
        await all_stored(life)


async def before_a_stop(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    del mock_clock
    async with first_process(disk, stops=True):
        machine.wrong_by = step


async def before_a_kill(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    del mock_clock
    async with first_process(disk, stops=False):
        machine.wrong_by = step


async def between_two_processes(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    del mock_clock
    async with first_process(disk, stops=True):
        pass
    machine.wrong_by = step


async def with_another_start_of_the_machine(disk: Disk, machine: Clocks, step: float, mock_clock: MockClock) -> None:
    await while_it_runs(disk, machine, step, mock_clock)
    machine.start_anew()


MOMENTS: Final = [
    before_the_start,
    while_it_runs,
    before_a_stop,
    before_a_kill,
    between_two_processes,
    with_another_start_of_the_machine,
]


@pytest.mark.parametrize("share", [0.9, 1.1])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_everything_that_is_stored_lasts_as_long_as_it_should(
    mock_clock: MockClock,
    machine: Clocks,
    moment: Callable[[Disk, Clocks, float, MockClock], Awaitable[None]],
    step: float,
    share: float,
) -> None:
    """A third of its time passes while no broker runs."""
    disk, began = Disk(), trio.current_time()
    await moment(disk, machine, step, mock_clock)
    mock_clock.jump(LASTS / 3)
    async with process(disk) as life:
        mock_clock.jump(began + share * LASTS - trio.current_time())
        await all_stored(life)
        over = {name: await kind.is_over(life) for name, kind in KINDS.items()}
        assert over == dict.fromkeys(KINDS, share > 1)


@pytest.mark.parametrize("step", STEPS)
async def test_people_see_the_calendar(mock_clock: MockClock, machine: Clocks, step: float) -> None:
    """Also of what was stored while the clock was wrong."""
    disk = Disk()
    machine.wrong_by = step
    published = true_time()
    async with process(disk, stops=True) as life:
        await begin_stream(life)
        await begin_ban(life)
        machine.wrong_by = 0
    async with process(disk) as life:
        streams = life.node.streams
        info = streams.info("aged")
        consumer = ConsumerConfig(
            name="c", durable=True, deliver_policy=DeliverPolicy.BY_START_TIME, start_time=published - 60
        )
        await streams.create_consumer("aged", consumer)
        (delivered,) = await streams.fetch("aged", "c")
        times = [info.created, info.last_time, delivered.time, (await streams.get("aged", 1)).time]
        assert times == [pytest.approx(published, abs=5)] * 4
        (ban,) = cast("list[dict[str, str]]", life.node.plugins.call("bans", "list", {}))
        assert ban["at"] == "2001-09-09T01:46:40Z"


async def test_a_consumer_is_paused_by_the_calendar(mock_clock: MockClock, machine: Clocks) -> None:
    disk = Disk()
    machine.wrong_by = -5.0 * HOUR
    async with disk.broker(stops=True) as life:
        await begin_ack_wait(life)
        machine.wrong_by = 0
    async with disk.broker() as life:
        streams = life.node.streams
        assert (await streams.pause_consumer("acked", "c", machine.calendar() + HOUR)).paused
        await publish(life, "acked")
        mock_clock.jump(HOUR - 10)
        assert streams.consumer_info("acked", "c").paused
        mock_clock.jump(20)
        assert not streams.consumer_info("acked", "c").paused
        assert await streams.fetch("acked", "c")


async def test_a_session_that_lasts_less_than_a_heartbeat_is_there_after_a_crash() -> None:
    """Whose client was there until the end."""
    disk = Disk()
    async with disk.broker(store={"heartbeat": 3600}) as life:
        wire, _ = await life.stay("subscriber", expiry=1)
        await wire.subscribe(("t", 1))
        before = disk.engine.get(NODE, ALIVE)
        with trio.fail_after(60):
            while disk.engine.get(NODE, ALIVE) == before:
                await trio.lowlevel.checkpoint()  # until the next heartbeat
    async with disk.broker() as life:
        _, present = await life.stay("subscriber")
        assert present
