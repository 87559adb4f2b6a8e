"""Messages that wait for room in the window, or for the client to come back.

A queue holds one class of messages for each priority that is in use; without priorities it is one class. A class with a
higher priority is emptied before a lower one gets its turn, and inside a class the order is that of arrival. Turns
shared out by weight, as some brokers have them, were left out: a queue is bounded for each class, so a low class that
waits costs no more than it would anyway, and users can rely on the strict order.

A class is two lanes, QoS 0 and the rest, joined again by a running number when messages leave. So the oldest QoS 0
message, the first to go when a class is too long, is found without a search.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from heapq import merge
from itertools import chain, takewhile
from operator import attrgetter, itemgetter
from sys import maxsize
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar

from sortedcontainers import SortedDict

from trunkline.broker.metrics import DropReason
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.window import Taken

T = TypeVar("T")

#: Below and above the configurable priorities 1 to 255.
LOWEST: Final = 0
HIGHEST: Final = 256

#: An entry: message, target, the QoS it will be sent with, and its number in the order of arrival. A plain tuple,
#: because one is made for every queued message.
Queued: TypeAlias = tuple[Message, T, int, int]

_QUEUE_FULL: Final = DropReason.QUEUE_FULL
_number = itemgetter(3)
#: A lane that no message has needed yet: most clients take what they are sent, and an empty deque takes 760 bytes.
_NO_LANE: Final[deque[Any]] = deque(maxlen=0)


class Overflow(Enum):
    """The message that a full queue drops."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEW = "drop_new"


class Dropped(NamedTuple, Generic[T]):
    message: Message
    target: T
    qos: int
    reason: DropReason


class Reader(Protocol):
    """Reads the part of a queue that is in a store."""

    def begin(self, priority: int) -> None:
        """Read the next messages of this priority."""
        ...

    def then(self, action: Callable[[], object]) -> None:
        """Read the next messages, and do this afterwards."""
        ...

    async def read_now(self) -> None:
        """The same in a task, in place of the session."""
        ...


class UnreadPart(Generic[T]):
    """Messages of a class that are in a store alone, and those that came behind them."""

    __slots__ = ("begin", "length", "since")

    def __init__(self, begin: int, length: int) -> None:
        #: The number of the first one, and how many there are.
        self.begin = begin
        self.length = length
        self.since: deque[Queued[T]] = deque()


class QueueSettings(TypedDict, total=False):
    """The arguments of `MessageQueue`."""

    max_length: int
    max_bytes: int
    store_qos0: bool
    overloads: Collection[object]
    overflow: Overflow
    priority: Callable[[str], int | None] | None
    default_priority: int


class QueueClass(Generic[T]):
    """The messages of one priority."""

    __slots__ = ("priority", "qos0", "rest", "unread")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.qos0: deque[Queued[T]] = _NO_LANE
        self.rest: deque[Queued[T]] = _NO_LANE
        #: What comes behind `rest`, if that is not all.
        self.unread: UnreadPart[T] | None = None

    def open_lane(self, qos: int) -> deque[Queued[T]]:
        """The first message for this lane has come."""
        lane: deque[Queued[T]] = deque()
        if qos:
            self.rest = lane
        else:
            self.qos0 = lane
        return lane

    def __iter__(self) -> Iterator[Queued[T]]:
        return merge(self.qos0, chain(self.rest, self.unread.since) if self.unread else self.rest, key=_number)

    @property
    def begin(self) -> int | None:
        """The number of the first message of QoS 1 or 2."""
        if self.rest:
            return self.rest[0][3]
        return None if self.unread is None else self.unread.begin

    def __len__(self) -> int:
        length, unread = len(self.qos0) + len(self.rest), self.unread
        return length if unread is None else length + unread.length + len(unread.since)


class MessageQueue(Generic[T]):
    """The queue of one session. `length` and `byte_size` are gauges for reading."""

    __slots__ = (
        "_classes",
        "_default_priority",
        "_drop_new",
        "_max_bytes",
        "_max_length",
        "_overloads",
        "_priority",
        "_store_qos0",
        "_top",
        "before_backlogs",
        "byte_size",
        "length",
        "number",
        "unread",
        "unread_size",
    )

    def __init__(
        self,
        *,
        max_length: int = 1000,
        max_bytes: int = 0,
        store_qos0: bool = True,
        overloads: Collection[object] = (),
        overflow: Overflow = Overflow.DROP_OLDEST,
        priority: Callable[[str], int | None] | None = None,
        default_priority: int = LOWEST,
    ) -> None:
        """`max_length` bounds each class, `max_bytes` the whole queue; 0 means no limit. `priority` gives the priority
        of a topic, or None for the default; without it there is one class. While `overloads` has any element, QoS 0
        messages are dropped."""
        self.limit(max_length, max_bytes, store_qos0=store_qos0)
        self._overloads = overloads
        self._drop_new = overflow is Overflow.DROP_NEW
        self._priority = priority
        self._default_priority = default_priority
        #: The class that the next message leaves from.
        self._top: QueueClass[T] = QueueClass(LOWEST)
        #: All classes that are not empty, the highest priority first. Not used without priorities.
        self._classes: SortedDict[int, QueueClass[T]] | None = None if priority is None else SortedDict()
        #: Of the message that came last.
        self.number = 0
        #: Everything up to this number came before all that waits in backlogs.
        self.before_backlogs = 0
        self.length = 0
        self.byte_size = 0
        #: None: all messages are in memory.
        self.unread: Reader | None = None
        #: The bytes of those that are not.
        self.unread_size = 0

    def limit(self, max_length: int, max_bytes: int, *, store_qos0: bool) -> None:
        """Limits from now on. What is there above them stays until it is sent; a new message takes an old one's
        place."""
        self._max_length = max_length or maxsize
        self._max_bytes = max_bytes or maxsize
        self._store_qos0 = store_qos0

    def __len__(self) -> int:
        return self.length

    def push(self, message: Message, target: T, qos: int) -> tuple[Dropped[T], ...]:
        """Queue a message to be sent with `qos`. Returns the messages dropped for it, perhaps including itself."""
        if qos == 0 and (self._overloads or not self._store_qos0):
            reason = DropReason.QOS0_NOT_STORED if not self._store_qos0 else DropReason.OVERLOADED
            return (Dropped(message, target, qos, reason),)
        into = self._top if self._classes is None else self._class_of(message.topic)
        self.number = number = self.number + 1
        lane = (into.rest if into.unread is None else into.unread.since) if qos else into.qos0
        if lane is _NO_LANE:
            lane = into.open_lane(qos)
        lane.append((message, target, qos, number))
        self.length = length = self.length + 1
        self.byte_size = byte_size = self.byte_size + message.weight
        if length > self._max_length or byte_size > self._max_bytes:
            return self._shorten(into, qos)
        return ()

    @property
    def first(self) -> Queued[T] | None:
        """The next message, which may have expired. None: there is none, or it has to be read."""
        top = self._top
        qos0, rest = top.qos0, top.rest
        if not rest:
            return qos0[0] if qos0 and (top.unread is None or qos0[0][3] < top.unread.begin) else None
        return qos0[0] if qos0 and qos0[0][3] < rest[0][3] else rest[0]

    @property
    def waits(self) -> bool:
        return self.length > 0

    def take(self, room: int, now: float) -> Sequence[Taken[T]]:
        """The next message, which may have expired. Without room, one of QoS 1 or 2 that has not stays where it is, and
        those behind it stay, too: nothing may overtake it."""
        if not self.length:
            return ()
        top = self._top
        qos0 = top.qos0
        rest = top.rest
        if not rest and top.unread is not None and not (qos0 and qos0[0][3] < top.unread.begin):
            self._read_on(top)
            return ()
        if qos0 and (not rest or qos0[0][3] < rest[0][3]):
            entry = qos0.popleft()
        elif room or rest[0][0].expires_at <= now:
            entry = rest.popleft()
        else:
            return ()
        message = entry[0]
        self.length -= 1
        self.byte_size -= message.weight
        if self._classes is not None and not rest and not qos0 and top.unread is None:
            self._forget(top)
        return ((message, entry[1], "waited", 0),)

    def _read_on(self, at: QueueClass[T]) -> None:
        assert self.unread is not None
        self.unread.begin(at.priority)

    def shed(self, count: float, weight: float, limit: int) -> list[Dropped[T]]:
        """Drop messages until they are so many and so heavy, QoS 0 first and then the oldest; `limit` at most."""
        dropped: list[Dropped[T]] = []
        for has_some in (attrgetter("qos0"), attrgetter("rest")):
            for at in list(self._each_class())[::-1]:
                while has_some(at) and (count > 0 or weight > 0) and len(dropped) < limit:
                    dropped += self._drop_oldest(at)
                    count, weight = count - 1, weight - dropped[-1].message.weight
        return dropped

    def __iter__(self) -> Iterator[Queued[T]]:
        """All messages, in the order in which they would leave."""
        for at in self._each_class():
            yield from at

    # For a store: messages of QoS 1 and 2

    def since(self, number: int) -> list[tuple[int, list[Queued[T]]]]:
        """Of each priority the messages that came after the one with this number, in order."""
        found: list[tuple[int, list[Queued[T]]]] = []
        for at in self._each_class():
            lane = at.rest if at.unread is None else at.unread.since
            new = list(takewhile(lambda entry: entry[3] > number, reversed(lane)))
            if new:
                found.append((at.priority, new[::-1]))
        return found

    def firsts(self) -> dict[int, int]:
        """Of each priority the number of the first message. All with lower numbers have left."""
        return {at.priority: begin for at in self._each_class() if (begin := at.begin) is not None}

    def _each_class(self) -> Iterable[QueueClass[T]]:
        return (self._top,) if self._classes is None else self._classes.values()

    def priority_of(self, topic: str) -> int:
        if self._priority is None:
            return LOWEST
        priority = self._priority(topic)
        return self._default_priority if priority is None else priority

    def _class_of(self, topic: str) -> QueueClass[T]:
        return self._class(self.priority_of(topic))

    def _class(self, priority: int) -> QueueClass[T]:
        assert self._classes is not None
        found = self._classes.get(-priority)
        if found is None:
            found = self._classes[-priority] = QueueClass(priority)
            if len(self._classes) == 1 or priority > self._top.priority:
                self._top = found
        return found

    def _forget(self, empty: QueueClass[T]) -> None:
        assert self._classes is not None
        del self._classes[-empty.priority]
        if self._top is empty and self._classes:
            self._top = self._classes.peekitem(0)[1]

    def _shorten(self, into: QueueClass[T], qos: int) -> tuple[Dropped[T], ...]:
        """Bring the queue back within its limits after a message with `qos` was added to the class `into`."""
        if len(into) <= self._max_length and self.byte_size <= self._max_bytes:
            return ()  # long as a whole, but only classes are limited
        unread = into.unread
        lane = (into.rest if unread is None else unread.since) if qos else into.qos0
        size = lane[-1][0].weight
        # a message that would not fit even alone must not push everything else out
        if self._drop_new or size > self._max_bytes:
            return (self._drop(into, lane.pop()),)
        return tuple(self._drop_excess(into))

    def trim(self) -> list[Dropped[T]]:
        """Messages were read: drop what the limits do not allow. If new ones are dropped, that is none."""
        classes = () if self._drop_new else list(self._each_class())
        return [gone for at in classes for gone in self._drop_excess(at)]

    def _drop_excess(self, at: QueueClass[T]) -> list[Dropped[T]]:
        """Drop the oldest of this class, and of those with the lowest priority, as far as they are in memory."""
        dropped: list[Dropped[T]] = []
        while len(at) > self._max_length and (gone := self._drop_oldest(at)):
            dropped += gone
        while self.byte_size > self._max_bytes:
            gone = self._drop_oldest(at if self._classes is None else self._classes.peekitem(-1)[1])
            if not gone:
                break
            dropped += gone
        return dropped

    def _drop_oldest(self, at: QueueClass[T]) -> tuple[Dropped[T], ...]:
        """Nothing, if it has to be read for that."""
        unread = at.unread
        if at.qos0 or at.rest:
            return (self._drop(at, (at.qos0 or at.rest).popleft()),)
        if unread is None:
            return ()
        self._read_on(at)
        # until they are here, what has come since is limited by itself
        is_too_much = len(unread.since) > self._max_length or self.byte_size - self.unread_size > self._max_bytes
        return (self._drop(at, unread.since.popleft()),) if unread.since and is_too_much else ()

    def _drop(self, at: QueueClass[T], entry: Queued[T]) -> Dropped[T]:
        self._count_out(entry)
        if self._classes is not None and not at.qos0 and not at.rest and at.unread is None:
            self._forget(at)
        return Dropped(entry[0], entry[1], entry[2], _QUEUE_FULL)

    def _count_out(self, entry: Queued[T]) -> None:
        self.length -= 1
        self.byte_size -= entry[0].weight
