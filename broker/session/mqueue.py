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
from itertools import takewhile
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


class QueueHead(NamedTuple):
    """What is known of a stored queue without reading it."""

    #: The number of its last message.
    last: int
    byte_size: int
    #: Messages, by priority.
    lengths: dict[int, int]

    @property
    def length(self) -> int:
        return sum(self.lengths.values())


class ReadPart(Protocol[T]):
    """Messages of QoS 1 and 2 that were in a store."""

    #: By priority, in order.
    lanes: dict[int, deque[Queued[T]]]
    byte_size: int
    #: Everything up to this number came before all that waits in backlogs.
    before_backlogs: int


class UnreadPart(Protocol):
    """Messages of a queue that are in a store. It is the source in front of the queue."""

    @property
    def head(self) -> QueueHead: ...

    def begin(self) -> None:
        """Read them, and let the queue adopt them."""
        ...

    def then(self, action: Callable[[], object]) -> None:
        """Read them, and do this afterwards."""
        ...

    async def read_now(self) -> None:
        """In place of the session, which has crashed."""
        ...

    @property
    def waits(self) -> bool: ...

    def take(self, room: int, now: float) -> Sequence[Taken[Any]]: ...


class QueueSettings(TypedDict, total=False):
    """The arguments of `MessageQueue`."""

    max_length: int
    max_bytes: int
    store_qos0: bool
    overloads: Collection[object]
    overflow: Overflow
    priority: Callable[[str], int | None] | None
    default_priority: int


class _Class(Generic[T]):
    """The messages of one priority."""

    __slots__ = ("priority", "qos0", "rest")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.qos0: deque[Queued[T]] = _NO_LANE
        self.rest: deque[Queued[T]] = _NO_LANE

    def open_lane(self, qos: int) -> deque[Queued[T]]:
        """The first message for this lane has come."""
        lane: deque[Queued[T]] = deque()
        if qos:
            self.rest = lane
        else:
            self.qos0 = lane
        return lane

    def __iter__(self) -> Iterator[Queued[T]]:
        return merge(self.qos0, self.rest, key=_number)


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
        self._top: _Class[T] = _Class(LOWEST)
        #: All classes that are not empty, the highest priority first. Not used without priorities.
        self._classes: SortedDict[int, _Class[T]] | None = None if priority is None else SortedDict()
        #: Of the message that came last.
        self.number = 0
        #: Everything up to this number came before all that waits in backlogs.
        self.before_backlogs = 0
        self.length = 0
        self.byte_size = 0
        self.unread: UnreadPart | None = None

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
        lane = into.rest if qos else into.qos0
        if lane is _NO_LANE:
            lane = into.open_lane(qos)
        lane.append((message, target, qos, number))
        self.length = length = self.length + 1
        self.byte_size = byte_size = self.byte_size + message.weight
        if length > self._max_length or byte_size > self._max_bytes:
            return self._shorten(into, qos)
        return ()

    @property
    def first(self) -> Queued[T]:
        """The next message, which may have expired; there is one."""
        qos0, rest = self._top.qos0, self._top.rest
        return (qos0 if qos0 and (not rest or qos0[0][3] < rest[0][3]) else rest)[0]

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
        if qos0 and (not rest or qos0[0][3] < rest[0][3]):
            entry = qos0.popleft()
        elif room or rest[0][0].expires_at <= now:
            entry = rest.popleft()
        else:
            return ()
        message = entry[0]
        self.length -= 1
        self.byte_size -= message.weight
        if self._classes is not None and not rest and not qos0:
            self._forget(top)
        return ((message, entry[1], "waited", 0),)

    def leave_unread(self, unread: UnreadPart) -> None:
        """Messages that came before all others are in a store."""
        self.unread, head = unread, unread.head
        self.number = max(self.number, head.last)
        self.length += head.length
        self.byte_size += head.byte_size

    def adopt(self, read: ReadPart[T]) -> list[Dropped[T]]:
        """This was unread. Returns what the limits do not allow: if new messages are dropped, that is none, as these
        are there."""
        if self.unread is not None:
            self.length -= self.unread.head.length
            self.byte_size -= self.unread.head.byte_size
            self.unread = None
        for priority, lane in read.lanes.items():
            into = self._top if self._classes is None else self._class(priority)
            self.length += len(lane)
            lane.extend(into.rest)
            into.rest = lane
        self.byte_size += read.byte_size
        self.before_backlogs = max(self.before_backlogs, read.before_backlogs)
        dropped: list[Dropped[T]] = []
        if not self._drop_new:
            for at in list(self._each_class()):
                while len(at.qos0) + len(at.rest) > self._max_length:
                    dropped.append(self._drop_oldest(at))
            while self.byte_size > self._max_bytes:
                dropped.append(self._drop_oldest(list(self._each_class())[-1]))
        return dropped

    def shed(self, count: float, weight: float, limit: int) -> list[Dropped[T]]:
        """Drop messages until they are so many and so heavy, QoS 0 first and then the oldest; `limit` at most."""
        dropped: list[Dropped[T]] = []
        for has_some in (attrgetter("qos0"), attrgetter("rest")):
            for at in list(self._each_class())[::-1]:
                while has_some(at) and (count > 0 or weight > 0) and len(dropped) < limit:
                    dropped.append(self._drop_oldest(at))
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
            new = list(takewhile(lambda entry: entry[3] > number, reversed(at.rest)))
            if new:
                found.append((at.priority, new[::-1]))
        return found

    def firsts(self) -> dict[int, int]:
        """Of each priority the number of the first message. All with lower numbers have left."""
        return {at.priority: at.rest[0][3] for at in self._each_class() if at.rest}

    def _each_class(self) -> Iterable[_Class[T]]:
        return (self._top,) if self._classes is None else self._classes.values()

    def priority_of(self, topic: str) -> int:
        priority = self._top.priority if self._priority is None else self._priority(topic)
        return self._default_priority if priority is None else priority

    def _class_of(self, topic: str) -> _Class[T]:
        return self._class(self.priority_of(topic))

    def _class(self, priority: int) -> _Class[T]:
        assert self._classes is not None
        found = self._classes.get(-priority)
        if found is None:
            found = self._classes[-priority] = _Class(priority)
            if len(self._classes) == 1 or priority > self._top.priority:
                self._top = found
        return found

    def _forget(self, empty: _Class[T]) -> None:
        assert self._classes is not None
        del self._classes[-empty.priority]
        if self._top is empty and self._classes:
            self._top = self._classes.peekitem(0)[1]

    def _shorten(self, into: _Class[T], qos: int) -> tuple[Dropped[T], ...]:
        """Bring the queue back within its limits after a message with `qos` was added to the class `into`."""
        here, unread = len(into.qos0) + len(into.rest), self.unread
        too_long = here + (0 if unread is None else unread.head.lengths.get(into.priority, 0)) > self._max_length
        if not too_long and self.byte_size <= self._max_bytes:
            return ()  # long as a whole, but only classes are limited
        lane = into.rest if qos else into.qos0
        size = lane[-1][0].weight
        # a message that would not fit even alone must not push everything else out
        if self._drop_new or size > self._max_bytes:
            return (self._drop(into, lane.pop()),)
        elsewhere = 0
        if unread is not None:  # the oldest are there; until they are here, what has come since is limited by itself
            unread.begin()
            too_long, elsewhere = here > self._max_length, unread.head.byte_size
        dropped: list[Dropped[T]] = []
        if too_long:
            dropped.append(self._drop_oldest(into))
        while self.byte_size - elsewhere > self._max_bytes:
            dropped.append(self._drop_oldest(into if self._classes is None else self._classes.peekitem(-1)[1]))
        return tuple(dropped)

    def _drop_oldest(self, at: _Class[T]) -> Dropped[T]:
        return self._drop(at, (at.qos0 or at.rest).popleft())

    def _drop(self, at: _Class[T], entry: Queued[T]) -> Dropped[T]:
        self._count_out(entry)
        if self._classes is not None and not at.qos0 and not at.rest:
            self._forget(at)
        return Dropped(entry[0], entry[1], entry[2], _QUEUE_FULL)

    def _count_out(self, entry: Queued[T]) -> None:
        self.length -= 1
        self.byte_size -= entry[0].weight
