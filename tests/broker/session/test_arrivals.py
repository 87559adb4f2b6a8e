"""What waits in the memory and in the store is one line of messages; `test_order.py` sees it from outside."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from trunkline.broker.routes import Grant, Subscriber
from trunkline.broker.session.arrivals import Arrivals
from trunkline.broker.session.cursor import Piece
from trunkline.broker.session.mqueue import MessageQueue
from trunkline.broker.session.replay import Replay, Replays
from trunkline.mqtt.message import Message
from trunkline.router import Options, RetainedStore, Target

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = Target(Subscriber("a", lambda mail: None), Options(1))


@dataclass
class Store:
    """A cursor of what is read already."""

    page: deque[Piece] = field(default_factory=deque["Piece"])
    waits: bool = True
    is_busy: bool = False
    #: What it was asked with.
    rooms: list[int] = field(default_factory=list[int])

    @property
    def reader(self) -> Store:
        return self

    def next(self) -> Piece | None:
        return self.page[0] if self.page else None

    def take(self, room: int, now: float) -> object:
        del now
        self.rooms.append(room)
        if not room:
            return ()
        return ((self.page.popleft().publication, TARGET, "waited", 0),)


class House:
    """A session with both. The committer has given the number 100 last."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.woken = 0
        context = SimpleNamespace(
            services=SimpleNamespace(committer=SimpleNamespace(publications=SimpleNamespace(number=100))),
            soon=self.later.append,
        )
        self.queue = MessageQueue[Target[Subscriber]]()
        self.store = Store()
        self.arrivals = Arrivals(cast("Any", context), self.queue, self.wake)
        self.arrivals._cursor = cast("Any", self.store)  # pyright: ignore[reportPrivateUsage]

    def wake(self) -> None:
        self.woken += 1

    def in_memory(self, guid: int, qos: int = 0, topic: str = "t") -> None:
        self.queue.push(Message(topic, b"", qos, guid=guid), TARGET, qos)

    def in_store(self, guid: int, sequence: int = 1, topic: str = "t") -> None:
        self.store.page.append(Piece(sequence, 0, Message(topic, b"", 1, guid=guid), TARGET, ()))

    def hear(self) -> None:
        """The mailbox is worked off."""
        for each in self.later:
            each()
        self.later.clear()

    def know(self) -> None:
        """Nothing is in the mailbox."""
        self.arrivals._ask()  # pyright: ignore[reportPrivateUsage]
        self.hear()

    def take(self, room: int = 10) -> list[int]:
        """The ids of all that comes."""
        got: list[int] = []
        while taken := self.arrivals.take(room, 0.0):
            got += [publication.guid for publication, *_ in taken]
        return got


def test_what_came_first_leaves_first() -> None:
    house = House()
    house.know()
    for guid in (2, 3, 6):
        house.in_memory(guid)
    for guid in (1, 4, 5, 7):
        house.in_store(guid)
    assert house.arrivals.waits
    assert house.take() == [1, 2, 3, 4, 5, 6, 7]
    assert set(house.store.rooms) == {10}


def test_what_was_routed_before_there_was_a_backlog_goes_first_whatever_its_id() -> None:
    house = House()
    house.know()
    for guid in (8, 9):
        house.in_memory(guid)
    house.queue.before_backlogs = 1
    house.in_store(5)
    assert house.take() == [8, 5, 9]


def test_nothing_leaves_the_memory_while_something_older_may_be_read() -> None:
    house = House()
    house.in_memory(1)
    house.store.is_busy = True
    assert house.take() == []
    house.store.is_busy = False
    assert house.take() == [1]


def test_the_mailbox_is_worked_off_before_what_came_after_it_leaves() -> None:
    house = House()
    house.in_store(5, sequence=100)
    house.in_store(6, sequence=101)
    assert (house.take(), len(house.later), house.woken) == ([], 1, 0)
    house.in_memory(4)  # was in the mailbox
    house.hear()
    assert house.woken == 1
    assert house.take() == [4, 5]  # and asks again for the other one
    assert house.take() == []
    assert len(house.later) == 1


def test_without_room_only_the_memory_gives_what_needs_none() -> None:
    house = House()
    house.know()
    house.in_memory(1)
    house.in_store(2)
    house.in_memory(3)
    assert house.take(room=0) == [1]
    assert house.take() == [2, 3]


def test_a_session_that_is_not_behind_has_the_queue_alone() -> None:
    house = House()
    house.store.waits = False
    house.store.is_busy = True
    assert not house.arrivals.waits
    house.in_memory(1)
    assert house.arrivals.waits
    assert house.take() == [1]


def test_what_was_retained_comes_before_what_is_newer_and_only_with_room() -> None:
    house = House()
    house.know()
    retained = RetainedStore()
    for guid, topic in ((1, "t"), (2, "u")):
        retained.store(Message(topic, b"x", retain=True, guid=guid), 0.0)
    house.arrivals.replays = replays = Replays(retained, 10)
    replays.add(Replay(Grant("#", Options(), True, retained.sequence), TARGET, retained, lambda message: True, 0.0))
    house.in_memory(11, topic="t")
    house.in_store(12, topic="u")
    house.in_memory(13, topic="u")
    assert house.take(room=0) == []
    assert house.take() == [1, 11, 2, 12, 13]
    assert house.store.rooms == [1]  # the next one may be of a topic that has a retained message
    house.in_memory(14)
    replays.end(["#"])
    assert house.take(room=0) == [14]
