from math import inf

import pytest
import trio
from trio.testing import MockClock

from tests.nats.client.test_subscription import Owner
from trunkline.nats.client.message import Message
from trunkline.nats.client.requests import Inbox, code_of, is_refusal
from trunkline.nats.protocol.operations import Deliver


def wire(subject: str, payload: bytes = b"", block: bytes = b"") -> Deliver:
    return Deliver(subject.encode(), b"1", b"", block, payload)


def inbox_of(told: list[str] | None = None) -> Inbox:
    return Inbox("_INBOX.me", b"1", Owner(), ([] if told is None else told).append)


async def test_answers_find_their_request() -> None:
    inbox = inbox_of()
    assert list(inbox.again()) == [b"SUB _INBOX.me.* 1\r\n"]
    one, two = inbox.open("a", inf, 9, 100), inbox.open("a", inf, 9, 100)
    assert one.token != two.token
    inbox.put(wire(f"{inbox.prefix}{two.token.decode()}", b"2"))
    inbox.put(wire(f"{inbox.prefix}{one.token.decode()}", b"1"))
    inbox.put(wire(f"{inbox.prefix}{one.token.decode()}", b"more"))
    inbox.put(wire(f"{inbox.prefix}nobody"))
    await one.wait()
    assert [message.payload for message in one.messages] == [b"1", b"more"]
    assert [message.payload for message in two.messages] == [b"2"]
    two.close()
    two.close()
    inbox.put(wire(f"{inbox.prefix}{two.token.decode()}", b"late"))
    assert len(two.messages) == 1


async def test_waiting() -> None:
    inbox = inbox_of()
    answers = inbox.open("a", inf, 9, 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        inbox.put(wire(f"{inbox.prefix}{answers.token.decode()}"))
    answers.messages.clear()
    with trio.move_on_after(0.01) as scope:
        await answers.wait()
    assert scope.cancelled_caught


async def test_more_than_is_asked_for_is_nothing_to_tell() -> None:
    told: list[str] = []
    inbox = inbox_of(told)
    one, two = inbox.open("a", 1, 9, 100), inbox.open("b", 2, 9, 100)
    for answers in (one, two):
        for number in range(4):
            inbox.put(wire(f"{inbox.prefix}{answers.token.decode()}", b"%d" % number))
    assert [len(answers.messages) for answers in (one, two)] == [1, 2]
    two.take()
    inbox.put(wire(f"{inbox.prefix}{two.token.decode()}", b"more"))
    assert len(two.messages) == 1
    assert not told


async def test_what_finds_no_room_is_told_once() -> None:
    told: list[str] = []
    inbox = inbox_of(told)
    few, small, large = inbox.open("few", inf, 2, 100), inbox.open("small", inf, 9, 10), inbox.open("large", 1, 9, 10)
    for answers in (few, small):
        for number in range(4):
            inbox.put(wire(f"{inbox.prefix}{answers.token.decode()}", b"%d" % number * 4))
    assert [len(answers.messages) for answers in (few, small)] == [2, 2]
    assert told == ["few", "small"]
    assert small.take().payload == b"0000"
    inbox.put(wire(f"{inbox.prefix}{small.token.decode()}", b"12345"))
    inbox.put(wire(f"{inbox.prefix}{small.token.decode()}", b"", b"NATS/1.0\r\n\r\n"))
    assert [small.take().payload for _ in range(2)] == [b"1111", b"12345"]
    for number in range(2):  # each by itself is larger than what may wait: one does
        inbox.put(wire(f"{inbox.prefix}{small.token.decode()}", b"%d" % number * 11))
    assert [message.payload for message in small.messages] == [b"0" * 11]
    inbox.put(wire(f"{inbox.prefix}{large.token.decode()}", b"x" * 11))
    assert len(large.messages) == 1
    assert told == ["few", "small"]


async def test_what_comes_too_late_does_not_count(autojump_clock: MockClock) -> None:
    """However late the answers are taken that have come in time."""
    inbox = inbox_of()
    answers = inbox.open("a", inf, 9, 100)
    answers.deadline = 2.0
    for _ in range(4):
        await trio.sleep(0.9)
        inbox.put(wire(f"{inbox.prefix}{answers.token.decode()}", b"%.1f" % trio.current_time()))
    assert [message.payload for message in answers.messages] == [b"0.9", b"1.8"]


async def test_no_more_will_come() -> None:
    inbox = inbox_of()
    answers = inbox.open("a", 1, 9, 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers.wait)
        await trio.testing.wait_all_tasks_blocked()
        inbox.end()
    await answers.wait()
    assert answers.messages == []


@pytest.mark.parametrize(
    ("block", "payload", "code"),
    [
        (b"NATS/1.0 503\r\n\r\n", b"", 503),
        (b"NATS/1.0 503 No Responders\r\n\r\n", b"", 503),
        (b"NATS/1.0 503\r\n\r\n", b"x", 0),
        (b"NATS/1.0 404\r\n\r\n", b"", 404),
        (b"NATS/1.0\r\nStatus: 503\r\n\r\n", b"", 0),
        (b"", b"", 0),
        (b"nonsense", b"", 0),
    ],
)
def test_a_status(block: bytes, payload: bytes, code: int) -> None:
    message = Message(wire("a", payload, block), Owner())
    assert code_of(message) == code
    assert is_refusal(message) == (code == 503)
