"""Messages that are pulled: some at a time, and ahead of a loop."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.nats.client.jetstream.stub import StubApi, info, message, status
from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.events import HeartbeatMissed, PullFailed
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.client.jetstream.pull import MAX_FAILURES, PullSubscription
from trunkline.nats.errors import BufferFull, ClientClosed, RequestTimeout, StatusError
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, Storage, StreamConfig
from trunkline.nats.jetstream.pulls import AHEAD, ahead_of
from trunkline.nats.protocol.operations import Deliver


def pulling(*said: int | None) -> tuple[PullSubscription, StubApi]:
    """What is said of `ahead_of`; ten messages."""
    api = StubApi()
    found = api.client.open(lambda *args: PullSubscription(api, *args), "_INBOX.me.*")
    found.ahead = ahead_of(*(said or (10,)))
    found.bind("s", "c", info(), is_created=False)
    return found, api


def asked(api: StubApi) -> list[dict[str, Any]]:
    """The pulls."""
    subject = "$JS.API.CONSUMER.MSG.NEXT.s.c"
    return [json.loads(payload) for where, payload, _ in api.client.published if where == subject]


def answer(api: StubApi, code: int, text: str = "", **headers: Any) -> Deliver:
    """A status for the last pull."""
    return status(code, text, subject=api.client.published[-1][2].encode(), **headers)


async def fetched(found: PullSubscription, api: StubApi, *wires: Deliver, count: int = 5, **values: Any) -> list[bytes]:
    """A fetch, for which this comes."""
    messages: list[bytes] = []

    async def fetch() -> None:
        messages.extend([each.payload for each in await found.fetch(count, **values)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        await wait_all_tasks_blocked()
        for wire in wires:
            if wire.subject == b"d":
                wire.subject = api.client.published[-1][2].encode()
            found.put(wire)
    return messages


# A fetch


async def test_what_is_asked_for() -> None:
    found, api = pulling()
    assert await fetched(found, api, status(408), count=5, expires=2.0, max_bytes=100) == []
    assert await fetched(found, api, status(404), count=1, no_wait=True) == []
    assert await fetched(found, api, status(408), count=1, expires=60.0) == []
    assert [{**each, "expires": round(each.get("expires", 0) / 1e9)} for each in asked(api)] == [
        {"batch": 5, "expires": 2, "max_bytes": 100},
        {"batch": 1, "expires": 0, "no_wait": True},
        {"batch": 1, "expires": 60, "idle_heartbeat": 15_000_000_000},
    ]


@pytest.mark.parametrize(("code", "text"), [(404, "No Messages"), (408, "Request Timeout"), (409, "Batch Completed")])
async def test_the_end_of_a_pull_is_neither_told_nor_counted(code: int, text: str) -> None:
    found, api = pulling()
    assert await fetched(found, api, message(1, b"1"), status(code, text, Nats_Pending_Messages=4)) == [b"1"]
    assert await fetched(found, api, status(code, text)) == []
    assert api.client.events == []


async def test_a_fetch_ends_with_the_last_message() -> None:
    found, api = pulling()
    assert await fetched(found, api, *[message(n, b"%d" % n) for n in range(5)]) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(asked(api)) == 1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (409, "Consumer Deleted"),
        (409, "Consumer is push based"),
        (409, "Exceeded MaxWaiting"),
        (409, "Exceeded MaxRequestBatch of 2"),
        (409, "Message Size Exceeds MaxBytes"),
        (409, "Leadership Change"),
        (400, "Bad Request"),
        (503, ""),
        (777, "New"),
    ],
)
async def test_an_error_is_raised_unless_there_are_messages(code: int, text: str) -> None:
    found, api = pulling()
    assert await fetched(found, api, message(1, b"1"), status(code, text)) == [b"1"]
    with pytest.RaisesGroup(StatusError) as caught:
        await fetched(found, api, status(code, text))
    error = caught.value.exceptions[0]
    assert isinstance(error, StatusError)
    assert (error.code, error.text) == (code, text or "nobody answers")


async def test_a_cancelled_fetch_loses_nothing() -> None:
    """What was on its way for it is there for the next one, which asks for the rest."""
    found, api = pulling()
    with trio.move_on_after(0) as scope:
        await found.fetch(3)
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 3)
        await wait_all_tasks_blocked()
        found.put(message(1, b"1"))
        found.put(message(2, b"2"))
        nursery.cancel_scope.cancel()
    assert len(found) == 2
    assert await fetched(found, api, message(3, b"3"), message(4, b"4"), count=4) == [b"1", b"2", b"3", b"4"]
    assert [each["batch"] for each in asked(api)] == [3, 2]


async def test_the_end_of_an_abandoned_pull_ends_no_other() -> None:
    found, api = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 3)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    old = answer(api, 408, Nats_Pending_Messages=3)
    assert await fetched(found, api, old, message(1, b"1"), count=1) == [b"1"]


async def test_what_ends_an_abandoned_pull_is_raised_by_a_loop() -> None:
    found, api = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 3)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    found.put(answer(api, 409, "Consumer Deleted"))
    with pytest.raises(StatusError, match="Consumer Deleted"):
        await found.receive()


async def test_a_fetch_beside_an_abandoned_pull_ends_with_its_last_message(autojump_clock: MockClock) -> None:
    found, _ = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 3)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 1)
        await wait_all_tasks_blocked()
        found.put(message(1))
    assert trio.current_time() == 0


async def test_messages_beyond_those_asked_for_wait() -> None:
    found, api = pulling()
    await fetched(found, api, message(1), message(2, b"2"), count=1)
    assert len(found) == 1
    assert [each.payload for each in await found.fetch(1)] == [b"2"]
    assert len(asked(api)) == 1


@pytest.mark.parametrize(
    ("values", "patience"), [({"expires": 3.0}, 5), ({"expires": 3.0, "no_wait": True}, 2), ({"expires": 60.0}, 30)]
)
async def test_a_server_that_says_nothing(autojump_clock: MockClock, values: dict[str, Any], patience: int) -> None:
    """As one without the consumer does, if it is old; and any that is cut off."""
    found, _ = pulling()
    with pytest.raises(RequestTimeout, match=f"has said nothing for {patience} s"):
        await found.fetch(1, **values)
    assert trio.current_time() == patience


async def test_nothing_is_expected_of_a_pull_that_was_given_up(autojump_clock: MockClock) -> None:
    found, api = pulling(10)
    with pytest.raises(RequestTimeout):
        await found.fetch(10, expires=3)
    async with looping(found):
        assert [each["batch"] for each in asked(api)] == [10, 10]


async def test_what_is_there_when_a_server_falls_silent(autojump_clock: MockClock) -> None:
    found, api = pulling()
    found.put(message(1, b"1"))
    assert [each.payload for each in await found.fetch(2, expires=20, no_wait=True)] == [b"1"]
    assert trio.current_time() == 2
    assert len(asked(api)) == 1


async def test_heartbeats_keep_a_long_fetch_alive(autojump_clock: MockClock) -> None:
    found, api = pulling()

    async def beat() -> None:
        for _ in range(8):
            await trio.sleep(29)
            found.put(answer(api, 100, "Idle Heartbeat"))
        await trio.sleep(28)
        found.put(answer(api, 408))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        assert await found.fetch(1, expires=260) == []
    assert trio.current_time() == 260


async def test_a_lost_connection_is_no_end(autojump_clock: MockClock) -> None:
    """The rest is asked for again when there is another one, for what is left of the time."""
    found, api = pulling()

    async def lose() -> None:
        await trio.sleep(1)
        found.put(message(1, b"1"))
        api.client.is_connected = False
        await trio.sleep(1)
        api.client.is_connected = True
        assert list(found.again()) == [b"SUB _INBOX.me.* 1\r\n"]
        await trio.sleep(1)
        found.put(message(2, b"2"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        assert [each.payload for each in await found.fetch(2, expires=4)] == [b"1", b"2"]
    assert [(each["batch"], each["expires"]) for each in asked(api)] == [(2, 4_000_000_000), (1, 2_000_000_000)]


async def test_a_fetch_without_a_connection(autojump_clock: MockClock) -> None:
    found, api = pulling()
    api.client.is_connected = False
    assert await found.fetch(1, expires=3) == []
    assert trio.current_time() == 3
    assert asked(api) == []


async def test_a_fetch_from_what_is_over() -> None:
    found, _ = pulling()
    found.put(message(1, b"1"))
    found.end()
    assert [each.payload for each in await found.fetch(1)] == [b"1"]
    with pytest.raises(ClientClosed):
        await found.fetch(1)
    found, _ = pulling()
    async with trio.open_nursery() as nursery:

        async def fetch() -> None:
            with pytest.raises(BufferFull):
                await found.fetch(1)

        nursery.start_soon(fetch)
        await wait_all_tasks_blocked()
        found.end(BufferFull("why it is over"))


async def test_a_fetch_does_not_wait_behind_the_end(autojump_clock: MockClock) -> None:
    found, api = pulling()
    async with trio.open_nursery() as nursery:

        async def fetch() -> None:
            assert [each.payload for each in await found.fetch(5)] == [b"1"]

        nursery.start_soon(fetch)
        await wait_all_tasks_blocked()
        found.put(message(1, b"1"))
        found.end()
    found.put(message(2, b"2"))
    assert [each.payload for each in await found.fetch(5)] == [b"2"]
    assert trio.current_time() == 0
    assert len(asked(api)) == 1


async def test_fetches_wait_for_each_other() -> None:
    found, api = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.fetch, 1)
        nursery.start_soon(found.fetch, 1)
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 1
        found.put(message(1))
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 2
        found.put(message(2))


async def test_what_cannot_be_asked_for() -> None:
    found, api = pulling()
    for values in ((0, 1.0, 0), (1001, 1.0, 0), (1, 0.0, 0), (1, float("inf"), 0), (1, 1.0, -1)):
        with pytest.raises(ValueError, match="a fetch of"):
            await found.fetch(values[0], expires=values[1], max_bytes=values[2])
    api.client.failure = BufferFull("full")
    with pytest.raises(BufferFull):
        await found.fetch(1)
    api.client.failure = None
    assert await fetched(found, api, message(1, b"1"), count=1) == [b"1"]


async def test_acknowledgements_of_what_came_at_once_may_leave_together() -> None:
    found, api = pulling()
    for count in (2, 1):
        for number in range(count):
            found.put(message(number))
        for each in await found.fetch(count):
            each.ack()
    assert api.client.at_once == [False, False, True]


async def test_what_is_taken_alone_is_acknowledged_at_once() -> None:
    found, api = pulling()
    for number in range(3):
        found.put(message(number))
    await found.fetch(2)
    (await found.receive()).ack()
    assert api.client.at_once[-1] is True


async def test_next() -> None:
    found, api = pulling()
    found.put(message(1, b"1"))
    found.put(message(2, b"2"))
    for payload in (b"1", b"2"):
        each = await found.next()
        assert each is not None
        assert each.payload == payload
    assert asked(api) == []


# A loop


@asynccontextmanager
async def looping(found: PullSubscription) -> AsyncGenerator[list[bytes]]:
    """Takes all messages, in a task."""
    taken: list[bytes] = []

    async def take() -> None:
        async for each in found:
            taken.append(each.payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        yield taken
        nursery.cancel_scope.cancel()


async def test_a_loop_asks_for_more_when_half_is_left() -> None:
    found, api = pulling(10)
    async with looping(found) as taken:
        assert asked(api) == [{"batch": 10, "expires": 30_000_000_000, "idle_heartbeat": 15_000_000_000}]
        for number in range(4):
            found.put(message(number, b"%d" % number))
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 1
        found.put(message(4, b"4"))
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 5]
        assert taken == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_a_pull_had_still_room_for_is_asked_for_again() -> None:
    """And no more: the rest of it has come."""
    found, api = pulling(10)
    async with looping(found):
        first = answer(api, 408, "Request Timeout", Nats_Pending_Messages=4, Nats_Pending_Bytes=0)
        for number in range(6):
            found.put(message(number))
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 5]
        found.put(first)
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 5, 5]
        found.put(first)  # it is told once
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 3


async def test_one_ahead() -> None:
    found, api = pulling(1)
    async with looping(found) as taken:
        for number in range(3):
            found.put(message(number, b"%d" % number))
            await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [1, 1, 1, 1]
        assert len(taken) == 3


async def test_what_waits_is_not_asked_for_again() -> None:
    """Nobody takes the messages, so that none are asked for."""
    found, api = pulling(4)
    for number in range(4):
        found.put(message(number))
    await found.receive()
    assert asked(api) == []
    await found.receive()
    await found.receive()
    assert [each["batch"] for each in asked(api)] == [2]


async def test_bytes_ahead() -> None:
    found, api = pulling(AHEAD, 1000)
    async with looping(found):
        assert asked(api)[0] | {"expires": 0} == {
            "batch": 1_000_000,
            "expires": 0,
            "max_bytes": 1000,
            "idle_heartbeat": 15_000_000_000,
        }
        found.put(message(1, bytes(600)))
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 2
        assert 600 < asked(api)[1]["max_bytes"] < 700


async def test_as_little_as_a_byte_is_asked_for_ahead() -> None:
    found, api = pulling(AHEAD, 1)
    async with looping(found):
        assert [each["max_bytes"] for each in asked(api)] == [1]


async def test_bytes_that_wait_are_not_asked_for_again() -> None:
    found, api = pulling(AHEAD, 1000)
    for number in (1, 2):
        found.put(message(number, bytes(400)))
    await found.receive()
    assert asked(api) == []
    await found.receive()
    assert [each["max_bytes"] for each in asked(api)] == [600]


async def test_a_loop_asks_again_for_what_could_not_be_sent() -> None:
    found, api = pulling()
    api.client.failure = BufferFull("full")
    with pytest.raises(BufferFull):
        await found.receive()
    api.client.failure = None
    async with looping(found):
        assert [each["batch"] for each in asked(api)] == [10]


async def test_a_message_that_finds_no_room_beside_others() -> None:
    """It is asked for when the others are taken; one that is larger than all that may come is an error."""
    found, api = pulling(AHEAD, 1000)
    with trio.move_on_after(0):
        await found.receive()
    found.put(message(1, bytes(100)))
    found.put(answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=900))
    assert len(asked(api)) == 1
    await found.receive()
    with trio.move_on_after(0):
        await found.receive()
    assert len(asked(api)) == 2
    found.put(answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=1000))
    with pytest.raises(StatusError, match="Message Size"):
        await found.receive()


async def test_a_message_that_finds_no_room_beside_what_may_come() -> None:
    """It is smaller than all that may come, and one pull after another ends because of it."""
    found, api = pulling(AHEAD, 1000, None, 900)
    async with looping(found):
        first = answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=800)
        found.put(message(1, bytes(100)))
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 2
        second = answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=200)
        found.put(first)
        await wait_all_tasks_blocked()
        assert len(asked(api)) == 2  # not for less than all
        found.put(second)
        await wait_all_tasks_blocked()
        assert [each["max_bytes"] for each in asked(api)][2:] == [1000]


async def test_a_single_byte_is_not_asked_for_in_vain_again() -> None:
    found, api = pulling(AHEAD, 2, None, 1)
    found.put(message(1))
    found.put(message(2, b"2"))
    await found.receive()
    assert [each["max_bytes"] for each in asked(api)] == [1]
    found.put(answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=1))
    await found.receive()
    assert len(asked(api)) == 1


async def test_after_a_message_that_found_no_room_it_is_asked_ahead_again() -> None:
    found, api = pulling(AHEAD, 1000)
    with trio.move_on_after(0):
        await found.receive()
    found.put(message(1, bytes(100)))
    found.put(answer(api, 409, "Message Size Exceeds MaxBytes", Nats_Pending_Messages=9, Nats_Pending_Bytes=900))
    await found.receive()
    with trio.move_on_after(0):
        await found.receive()
    found.put(message(2, bytes(600)))
    found.put(message(3, bytes(100)))
    await found.receive()
    assert len(asked(api)) == 2
    await found.receive()
    assert len(asked(api)) == 3


@pytest.mark.parametrize(("code", "text"), [(404, ""), (408, "Request Timeout"), (409, "Batch Completed")])
async def test_a_loop_goes_on_behind_the_end_of_a_pull(code: int, text: str) -> None:
    found, api = pulling()
    async with looping(found) as taken:
        found.put(answer(api, code, text, Nats_Pending_Messages=10))
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 10]
        assert taken == []
    assert api.client.events == []


@pytest.mark.parametrize(
    ("code", "text"), [(409, "Consumer Deleted"), (409, "Consumer is push based"), (400, "Bad Request"), (777, "")]
)
async def test_a_loop_ends_with_an_error(code: int, text: str) -> None:
    found, api = pulling()
    with pytest.RaisesGroup(StatusError):
        async with looping(found) as taken:
            found.put(message(1, b"1"))
            found.put(answer(api, code, text))
            await wait_all_tasks_blocked()
    assert taken == [b"1"]
    assert len(asked(api)) == 1
    with trio.move_on_after(0):
        await found.receive()  # and may be begun again
    assert len(asked(api)) == 2


@pytest.mark.parametrize(("code", "text"), [(409, "Leadership Change"), (409, "Exceeded MaxWaiting"), (503, "")])
async def test_a_loop_tries_again_ever_more_slowly(autojump_clock: MockClock, code: int, text: str) -> None:
    found, api = pulling()
    times: list[float] = []

    async def refuse() -> None:
        while True:
            await wait_all_tasks_blocked()
            if len(asked(api)) > len(times):
                times.append(trio.current_time())
                found.put(answer(api, code, text))
            else:
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse)
        with pytest.raises(StatusError):
            await found.receive()
        nursery.cancel_scope.cancel()
    assert len(times) == MAX_FAILURES + 1
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5], abs=0.02)
    assert [type(event) for event in api.client.events] == [PullFailed] * MAX_FAILURES


async def test_the_end_of_a_pull_that_nobody_knows_is_none() -> None:
    """It was asked for on the connection before."""
    found, api = pulling()
    async with looping(found):
        old = answer(api, 409, "Consumer Deleted")
        list(found.again())
        await wait_all_tasks_blocked()
        found.put(old)
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 10]
    assert api.client.events == []


async def test_a_wait_that_is_over_is_not_waited_for_again_and_again(autojump_clock: MockClock) -> None:
    """A server that shuts down says so, and the connection goes with it."""
    found, api = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.receive)
        await wait_all_tasks_blocked()
        found.put(answer(api, 409, "Server Shutdown"))
        api.client.is_connected = False
        with trio.fail_after(10):
            await trio.sleep(1)  # the clock moves on only if nobody runs
        api.client.is_connected = True
        found.put(message(1))


async def test_a_fetch_behind_a_loop_that_was_to_try_again(autojump_clock: MockClock) -> None:
    found, api = pulling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.receive)
        await wait_all_tasks_blocked()
        found.put(answer(api, 409, "Leadership Change"))
        nursery.cancel_scope.cancel()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: found.fetch(1, expires=20.0))
        await trio.sleep(10)
        found.put(message(1))
    assert trio.current_time() == began + 10


async def test_failures_are_counted_in_a_row(autojump_clock: MockClock) -> None:
    found, api = pulling(1)
    async with looping(found) as taken:
        for number in range(3 * MAX_FAILURES):
            count = len(asked(api))
            found.put(answer(api, 409, "Leadership Change"))
            await trio.sleep(0.15)
            assert len(asked(api)) > count
            found.put(message(number))
            await wait_all_tasks_blocked()
        assert len(taken) == 3 * MAX_FAILURES


async def test_a_silent_server_is_told_of_and_asked_again(autojump_clock: MockClock) -> None:
    found, api = pulling()
    with trio.move_on_after(70):
        await found.receive()
    assert api.client.events == [HeartbeatMissed(found, 30.0)] * 2
    assert len(asked(api)) == 3


async def test_a_silent_server_and_who_looks_now_and_then(autojump_clock: MockClock) -> None:
    """It is told, and asked again; behind a while without a pull nothing was to come."""
    found, api = pulling()
    for _ in range(70):
        with trio.move_on_after(1):
            await found.receive()
    assert api.client.events == [HeartbeatMissed(found, 30.0)] * 2
    assert len(asked(api)) == 3
    found.put(answer(api, 408))
    await trio.sleep(100)
    with trio.move_on_after(29):
        await found.receive()
    assert (len(api.client.events), len(asked(api))) == (2, 4)


async def test_heartbeats_keep_a_loop_quiet(autojump_clock: MockClock) -> None:
    found, api = pulling()
    async with looping(found):
        for _ in range(10):
            await trio.sleep(29)
            found.put(answer(api, 100, "Idle Heartbeat"))
        assert api.client.events == []


async def test_a_loop_on_another_connection() -> None:
    found, api = pulling()
    async with looping(found):
        api.client.is_connected = False
        await wait_all_tasks_blocked()
        api.client.is_connected = True
        list(found.again())
        await wait_all_tasks_blocked()
        assert [each["batch"] for each in asked(api)] == [10, 10]


async def test_consume() -> None:
    found, _ = pulling()
    taken: list[bytes] = []

    async def handle(each: object) -> None:
        taken.append(each.payload)  # type: ignore[attr-defined]
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.consume, handle)
        await wait_all_tasks_blocked()
        found.put(message(1, b"1"))
        found.put(message(2, b"2"))
        found.end()
    assert taken == [b"1", b"2"]


# With servers


@asynccontextmanager
async def stream(server: NatsServer, count: int) -> AsyncGenerator[JetStream]:
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="pulls", storage=Storage.MEMORY, subjects=("pulls",)))
        for number in range(count):
            await js.publish("pulls", b"%d" % number)
        try:
            yield js
        finally:
            await js.delete_stream("pulls")


async def test_fetching_from_servers(server: NatsServer) -> None:
    async with stream(server, 7) as js, js.subscribe_pull("pulls", durable="d") as found:
        assert [each.payload for each in await found.fetch(3)] == [b"0", b"1", b"2"]
        assert [each.payload for each in await found.fetch(9, no_wait=True)] == [b"3", b"4", b"5", b"6"]
        assert await found.fetch(1, no_wait=True) == []
        assert await found.next(expires=0.05) is None
        await js.publish("pulls", bytes(1000))
        with pytest.raises(StatusError, match="409 Message Size Exceeds MaxBytes"):
            await found.fetch(1, max_bytes=500)
        assert len(await found.fetch(1, max_bytes=5000)) == 1
        assert await found.fetch(1, expires=31, no_wait=True) == []


async def test_a_loop_with_servers(server: NatsServer) -> None:
    """Of two loops on one consumer each message goes to one."""
    async with stream(server, 300) as js:
        await js.create_consumer("pulls", ConsumerConfig(durable="d"))
        seen: list[bytes] = []

        async def take(number: int) -> None:
            async with js.subscribe_pull(stream="pulls", consumer="d", ahead=20 + number) as found:
                async for each in found:
                    await each.ack_sync()
                    seen.append(each.payload)
                    if len(seen) == 300:
                        nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, 0)
            nursery.start_soon(take, 1)
        assert sorted(map(int, seen)) == list(range(300))
        assert (await js.consumer("pulls", "d")).ack_floor.stream == 300


async def test_how_far_a_loop_is_ahead_of_servers(server: NatsServer) -> None:
    """What is left when it asks again is what it was told."""
    async with stream(server, 0) as js:
        for _ in range(20):
            await js.publish("pulls", bytes(1000))
        for said, delivered in (
            ({"ahead": 10}, {10}),
            ({"ahead": 10, "threshold": 0}, {10}),
            ({"ahead": 10, "threshold": 8}, {12}),
            ({"ahead": 10, "threshold": 10}, {13}),
            ({"ahead_bytes": 10_000, "threshold_bytes": 0}, {9}),
            ({"ahead_bytes": 10_000, "threshold_bytes": 9_000}, {10, 11, 12}),
        ):
            config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
            async with js.subscribe_pull(stream="pulls", config=config, **said) as found:
                for _ in range(4):
                    (await found.receive()).ack()
                with trio.fail_after(60):
                    while (at := (await js.consumer("pulls", found.consumer)).delivered.consumer) < min(delivered):
                        await trio.lowlevel.checkpoint()
                assert at in delivered, said


@pytest.mark.parametrize("threshold", [None, 0, 1000])
@pytest.mark.parametrize("is_there", [True, False])
async def test_messages_larger_than_what_is_left_of_a_pull(
    server: NatsServer, threshold: int | None, is_there: bool
) -> None:
    """And smaller than what is asked for ahead, which come; one that is larger than that ends the loop."""
    sizes = [100, 850, 100, 700, 500, 400, 850]
    async with stream(server, 0) as js:
        for size in sizes if is_there else ():
            await js.publish("pulls", bytes(size))
        async with js.subscribe_pull("pulls", ahead_bytes=1000, threshold_bytes=threshold) as found:
            with trio.fail_after(60):
                for size in sizes:
                    if not is_there:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(js.publish, "pulls", bytes(size))
                            assert len((await found.receive()).payload) == size
                    else:
                        assert len((await found.receive()).payload) == size
                await js.publish("pulls", bytes(1500))
                with pytest.raises(StatusError, match="Message Size Exceeds MaxBytes"):
                    await found.receive()


async def test_what_was_asked_for_has_room(server: NatsServer) -> None:
    """What is dropped counts as delivered, and a message that is delivered once only would be lost."""
    async with connect(server.url, max_bytes=100_000) as client:
        js = client.jetstream()
        await js.create_stream(StreamConfig(name="large", subjects=("large",)))
        async with js.publisher() as publisher:
            for _ in range(40):
                await publisher.publish("large", bytes(50_000))
        once = ConsumerConfig(max_deliver=1)
        async with js.subscribe_pull("large", config=once) as found:
            assert len(await found.fetch(20)) == 20
            with trio.fail_after(60):
                await found.receive()
                while len(found) < 19:
                    await trio.lowlevel.checkpoint()
            assert found.dropped == 0
        await js.delete_stream("large")


async def test_a_consumer_that_goes(server: NatsServer) -> None:
    async with stream(server, 0) as js, js.subscribe_pull("pulls", durable="d") as found:
        async with trio.open_nursery() as nursery:

            async def fetch() -> None:
                with pytest.raises(StatusError, match="409 Consumer Deleted"):
                    await found.fetch(1, expires=20)

            nursery.start_soon(fetch)
            while not (await js.consumer("pulls", "d")).waiting:
                await trio.lowlevel.checkpoint()
            await js.delete_consumer("pulls", "d")
        found.is_created = False


async def test_a_consumer_that_is_not_there_yet(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer server says so, and an older one says nothing."""
    monkeypatch.setattr("trunkline.nats.client.jetstream.pull.GRACE", 0.05)
    async with stream(server, 1) as js, js.subscribe_pull("pulls", consumer="d") as found:
        assert found.info is None
        with pytest.raises((StatusError, RequestTimeout), match=r"503|said nothing"):
            await found.fetch(1, expires=0.05)
        await js.create_consumer("pulls", ConsumerConfig(durable="d"))
        assert len(await found.fetch(1)) == 1


async def test_a_pull_from_what_is_pushed(server: NatsServer) -> None:
    async with stream(server, 1) as js, js.subscribe_pull("pulls", consumer="d") as found:
        await js.create_consumer("pulls", ConsumerConfig(durable="d", deliver_subject="there"))
        with pytest.raises(StatusError, match="409 Consumer is push based"):
            await found.fetch(1)
