from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.mqueue import (
    HIGHEST,
    LOWEST,
    Dropped,
    MessageQueue,
    Overflow,
)
from trunkline.mqtt.message import Message

#: What an empty message weighs, with a topic of one letter and one of two.
EMPTY, EMPTY2 = Message("t", b"").weight, Message("t1", b"").weight

PRIORITIES = {"t1": 1, "t2": 2, "t3": 3}


def message(payload: bytes = b"", topic: str = "t", expires_at: float = inf) -> Message:
    return Message(topic, payload, expires_at=expires_at)


def push(queue: MessageQueue[str], payload: bytes, qos: int = 1, topic: str = "t") -> list[bytes]:
    """Payloads of what had to go."""
    return [dropped.message.payload for dropped in queue.push(message(payload, topic), "target", qos)]


def exported(queue: MessageQueue[str]) -> list[tuple[Message, str, int]]:
    return [entry[:3] for entry in queue]


def take(queue: MessageQueue[str], room: int = 1, now: float = 0.0) -> bytes | None:
    """The payload of the next message."""
    taken = queue.take(room, now)
    if not taken:
        return None
    ((publication, _, delivery, packet_id),) = taken
    assert (delivery, packet_id) == ("waited", 0)
    return publication.payload


def drain(queue: MessageQueue[str]) -> list[bytes]:
    return [payload for payload in iter(lambda: take(queue), None)]


def test_a_new_queue_is_empty() -> None:
    queue = MessageQueue[str](max_length=5)
    assert (len(queue), queue.length, queue.byte_size) == (0, 0, 0)
    assert not queue.waits
    assert queue.take(1, 0.0) == ()


def test_messages_of_any_qos_wait_up_to_the_bound() -> None:
    queue = MessageQueue[str](max_length=5)
    for waiting, qos in enumerate([0, 1, 2, 0, 0], 1):
        assert queue.push(message(), "target", qos) == ()
        assert len(queue) == waiting


def test_what_leaves_is_what_came_with_its_target() -> None:
    queue = MessageQueue[str]()
    pushed = message(b"x")
    queue.push(pushed, "target", 2)
    assert queue.waits
    assert queue.first == (pushed, "target", 2, 1)
    assert queue.take(1, 0.0) == ((pushed, "target", "waited", 0),)
    assert (len(queue), queue.waits) == (0, False)


def test_qos0_is_handed_back_where_it_is_not_stored() -> None:
    queue = MessageQueue[str](store_qos0=False)
    lost = message()
    assert queue.push(lost, "target", 0) == (Dropped(lost, "target", 0, DropReason.QOS0_NOT_STORED),)
    assert len(queue) == 0


def test_arrival_order_holds_across_qos() -> None:
    queue = MessageQueue[str]()
    for number, qos in enumerate([1, 0, 0, 2, 1, 0]):
        push(queue, b"%d" % number, qos)
    assert drain(queue) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_while_anything_is_overloaded_no_qos_0_message_waits() -> None:
    overloads = list[str]()
    queue = MessageQueue[str](overloads=overloads)
    first, second, third = message(b"a"), message(b"b"), message(b"c")
    assert queue.push(first, "target", 0) == ()
    overloads.append("memory")
    assert queue.push(second, "target", 0) == (Dropped(second, "target", 0, DropReason.OVERLOADED),)
    assert queue.push(second, "target", 1) == ()
    overloads.clear()
    assert queue.push(third, "target", 0) == ()
    assert [entry[0] for entry in queue] == [first, second, third]


def test_a_full_queue_loses_its_oldest() -> None:
    queue = MessageQueue[str](max_length=3, store_qos0=False)
    assert [push(queue, payload) for payload in (b"1", b"2", b"3", b"4")] == [[], [], [], [b"1"]]
    assert drain(queue) == [b"2", b"3", b"4"]


def test_the_lost_message_is_named_with_its_reason() -> None:
    queue = MessageQueue[str](max_length=1)
    first = message(b"1")
    queue.push(first, "target", 1)
    assert queue.push(message(b"2"), "other", 1) == (Dropped(first, "target", 1, DropReason.QUEUE_FULL),)


def test_a_full_queue_loses_qos0_before_anything_older() -> None:
    queue = MessageQueue[str](max_length=3)
    for payload, qos in ((b"1", 1), (b"a", 0), (b"b", 0)):
        push(queue, payload, qos)
    assert push(queue, b"2", 2) == [b"a"]
    assert push(queue, b"3", 1) == [b"b"]
    assert push(queue, b"4", 1) == [b"1"]
    assert drain(queue) == [b"2", b"3", b"4"]


def test_incoming_qos0_goes_first_when_all_that_waits_is_more() -> None:
    queue = MessageQueue[str](max_length=3)
    for payload in (b"1", b"2", b"3"):
        push(queue, payload)
    assert push(queue, b"a", 0) == [b"a"]
    assert drain(queue) == [b"1", b"2", b"3"]


def test_zero_is_no_bound() -> None:
    queue = MessageQueue[str](max_length=0, store_qos0=False)
    for number in range(255):
        assert push(queue, bytes([number])) == []
    assert len(queue) == 255
    assert take(queue) == b"\x00"


def test_zero_is_no_bound_for_any_priority() -> None:
    queue = MessageQueue[str](max_length=0, priority=PRIORITIES.get)
    for number in range(255):
        assert push(queue, bytes([number]), topic="t1") == []
        assert push(queue, bytes([number]), topic="t") == []
    assert len(queue) == 510


def test_drop_new_refuses_the_newcomer() -> None:
    queue = MessageQueue[str](max_length=2, overflow=Overflow.DROP_NEW)
    assert [push(queue, payload, qos) for payload, qos in ((b"a", 0), (b"1", 1), (b"2", 1), (b"b", 0))] == [
        [],
        [],
        [b"2"],
        [b"b"],
    ]
    assert drain(queue) == [b"a", b"1"]


def test_the_bound_counts_per_priority() -> None:
    queue = MessageQueue[str](max_length=3, priority=PRIORITIES.get)
    for topic in ("t2", "t1", "t3", "t2", "t2"):
        assert push(queue, topic.encode(), topic=topic) == []
    assert len(queue) == 5
    assert push(queue, b"t2", topic="t2") == [b"t2"]
    assert len(queue) == 5
    assert take(queue) == b"t3"
    assert len(queue) == 4


def test_without_priorities_topics_share_the_bound() -> None:
    queue = MessageQueue[str](max_length=2)
    dropped = [push(queue, payload, topic=topic) for payload, topic in ((b"1", "x"), (b"2", "x"), (b"3", "y"))]
    assert dropped == [[], [], [b"1"]]
    assert drain(queue) == [b"2", b"3"]


def test_a_higher_priority_leaves_first_however_long_it_goes_on() -> None:
    queue = MessageQueue[str](max_length=0, priority=PRIORITIES.get)
    for number in range(100):
        push(queue, b"low%d" % number, topic="t1")
        push(queue, b"high%d" % number, topic="t3")
    assert [take(queue) for _ in range(50)] == [b"high%d" % number for number in range(50)]
    push(queue, b"middle", topic="t2")
    push(queue, b"high", topic="t3")
    assert drain(queue) == [
        *(b"high%d" % number for number in range(50, 100)),
        b"high",
        b"middle",
        *(b"low%d" % number for number in range(100)),
    ]


@pytest.mark.parametrize(
    ("default", "order"),
    [
        (LOWEST, [b"listed1", b"listed2", b"other1", b"other2"]),
        (HIGHEST, [b"other1", b"other2", b"listed1", b"listed2"]),
    ],
)
def test_topics_without_priority_come_last_or_first(default: int, order: list[bytes]) -> None:
    queue = MessageQueue[str](priority=PRIORITIES.get, default_priority=default)
    for payload, topic in ((b"other1", "x"), (b"listed1", "t1"), (b"other2", "y"), (b"listed2", "t1")):
        push(queue, payload, topic=topic)
    assert drain(queue) == order


def test_what_goes_in_comes_out_or_is_named() -> None:
    queue = MessageQueue[str](max_length=4, priority=PRIORITIES.get)
    gone: list[bytes] = []
    pushed = [b"%d" % number for number in range(200)]
    for number, payload in enumerate(pushed):
        gone += push(queue, payload, number % 3, f"t{number % 4}")
        if number % 5 == 0 and (payload_out := take(queue)) is not None:
            gone.append(payload_out)
    assert sorted(gone + drain(queue)) == sorted(pushed)


def test_the_byte_gauge_follows_the_messages() -> None:
    queue = MessageQueue[str](max_length=2)
    push(queue, b"12345", 0)
    push(queue, b"1", 1)
    assert queue.byte_size == 6 + 2 * EMPTY
    push(queue, b"123", 1)  # takes the place of the QoS 0 message
    assert queue.byte_size == 4 + 2 * EMPTY
    drain(queue)
    assert queue.byte_size == 0


def test_the_bound_in_bytes_drops_as_much_as_it_takes() -> None:
    queue = MessageQueue[str](max_bytes=4 * (EMPTY + 10))
    for number in range(4):
        assert push(queue, b"%010d" % number) == []
    assert push(queue, bytes(20 + EMPTY)) == [b"%010d" % 0, b"%010d" % 1]
    assert queue.byte_size == 4 * (EMPTY + 10)


def test_the_bound_in_bytes_takes_from_the_lowest_priority() -> None:
    queue = MessageQueue[str](max_bytes=2 * (EMPTY2 + 1), priority=PRIORITIES.get)
    push(queue, b"3", 0, "t3")
    push(queue, b"1", 2, "t1")
    assert push(queue, b"2", 1, "t2") == [b"1"]
    assert push(queue, b"1", 1, "t1") == [b"1"]
    assert drain(queue) == [b"3", b"2"]


def test_what_never_fits_pushes_nothing_out() -> None:
    queue = MessageQueue[str](max_bytes=2 * EMPTY)
    push(queue, b"1")
    huge = bytes(EMPTY + 1)
    assert push(queue, huge) == [huge]
    assert drain(queue) == [b"1"]


def test_drop_new_holds_for_the_bound_in_bytes() -> None:
    queue = MessageQueue[str](max_bytes=2 * (EMPTY + 1), overflow=Overflow.DROP_NEW)
    assert [push(queue, payload) for payload in (b"1", b"2", b"3")] == [[], [], [b"3"]]
    assert drain(queue) == [b"1", b"2"]


def test_without_room_in_the_window_only_qos0_at_the_head_leaves() -> None:
    queue = MessageQueue[str]()
    for payload, qos in ((b"a", 0), (b"b", 0), (b"1", 1), (b"c", 0)):
        push(queue, payload, qos)
    assert [take(queue, room=0) for _ in range(4)] == [b"a", b"b", None, None]
    assert drain(queue) == [b"1", b"c"]


def test_without_room_expired_messages_still_make_way() -> None:
    queue = MessageQueue[str]()
    for payload, qos, expires_at in ((b"1", 1, 1.0), (b"a", 0, 1.0), (b"b", 0, 9.0), (b"2", 2, 9.0)):
        queue.push(message(payload, expires_at=expires_at), "target", qos)
    assert [take(queue, room=0, now=1.0) for _ in range(4)] == [b"1", b"a", b"b", None]
    assert len(queue) == 1


@dataclass(eq=False)
class Waiting:
    """A message of the naive model."""

    message: Message
    qos: int
    priority: int
    number: int

    @property
    def size(self) -> int:
        return len(self.message.payload) + EMPTY


class QueueModel(RuleBasedStateMachine):
    """A queue against a plain list in the order of arrival."""

    max_length = 4
    max_bytes = 12 * (EMPTY + 8)
    overflow = Overflow.DROP_OLDEST
    priorities: dict[str, int] | None = None
    store_qos0 = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.waiting: list[Waiting] = []
        self.queue = self.fresh()

    def fresh(self) -> MessageQueue[int]:
        return MessageQueue(
            max_length=self.max_length,
            max_bytes=self.max_bytes,
            store_qos0=self.store_qos0,
            overflow=self.overflow,
            priority=None if self.priorities is None else self.priorities.get,
            default_priority=2,
        )

    def in_order(self) -> list[Waiting]:
        return sorted(self.waiting, key=lambda w: (-w.priority, w.number))

    def size(self) -> int:
        return sum(w.size for w in self.waiting)

    def oldest(self, priority: int) -> Waiting:
        return min((w for w in self.waiting if w.priority == priority), key=lambda w: (w.qos > 0, w.number))

    @rule(
        topic=st.sampled_from(["a", "b", "c"]),
        qos=st.integers(0, 2),
        size=st.one_of(st.integers(0, 9), st.just(700), st.just(12 * (EMPTY + 8))),
        life=st.one_of(st.just(inf), st.integers(0, 5)),
    )
    def push(self, topic: str, qos: int, size: int, life: float) -> None:
        self.number += 1
        priority = 0 if self.priorities is None else self.priorities.get(topic, 2)
        new = Waiting(Message(topic, bytes(size), expires_at=self.now + life), qos, priority, self.number)
        expected: list[Waiting] = []
        if qos == 0 and not self.store_qos0:
            expected.append(new)
        else:
            self.waiting.append(new)
            too_long = sum(w.priority == priority for w in self.waiting) > self.max_length
            too_big = self.size() > self.max_bytes
            if (too_long or too_big) and (self.overflow is Overflow.DROP_NEW or new.size > self.max_bytes):
                expected.append(self.waiting.pop())
            else:
                while too_long or self.size() > self.max_bytes:
                    lost = self.oldest(priority if too_long else min(w.priority for w in self.waiting))
                    self.waiting.remove(lost)
                    expected.append(lost)
                    too_long = False
        dropped = self.queue.push(new.message, self.number, qos)
        assert [d.target for d in dropped] == [w.number for w in expected]

    @rule(step=st.integers(0, 3))
    def pass_time(self, step: int) -> None:
        self.now += step

    @rule(room=st.sampled_from([2, 2, 0]))
    def take(self, room: int) -> None:
        expected: list[int] = []
        for w in self.in_order()[:1]:
            if room or not w.qos or w.message.expires_at <= self.now:
                self.waiting.remove(w)
                expected.append(w.number)
        assert [number for _, number, _, _ in self.queue.take(room, self.now)] == expected

    @precondition(lambda self: self.store_qos0)
    @rule()
    def move(self) -> None:
        moved = self.fresh()
        for entry in self.queue:
            assert not moved.push(*entry[:3])
        self.queue = moved

    @invariant()
    def same(self) -> None:
        assert [(e[0], e[1], e[2]) for e in self.queue] == [(w.message, w.number, w.qos) for w in self.in_order()]
        assert len(self.queue) == self.queue.length == len(self.waiting)
        assert self.queue.byte_size == self.size()


class PrioritiesModel(QueueModel):
    priorities = {"a": 1, "b": 3}  # noqa: RUF012


class DropNewModel(QueueModel):
    overflow = Overflow.DROP_NEW
    priorities = {"a": 1, "b": 3}  # noqa: RUF012


class NoQos0Model(QueueModel):
    store_qos0 = False


_settings = settings(max_examples=40, stateful_step_count=40)
TestQueueModel = QueueModel.TestCase
TestPrioritiesModel = PrioritiesModel.TestCase
TestDropNewModel = DropNewModel.TestCase
TestNoQos0Model = NoQos0Model.TestCase
for case in (TestQueueModel, TestPrioritiesModel, TestDropNewModel, TestNoQos0Model):
    case.settings = _settings
