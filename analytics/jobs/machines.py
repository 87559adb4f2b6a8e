"""State machines that see the events of one subject (a client, an address, a node) in the order of time.

The same machine serves recorded and streamed events. Recorded ones are sorted and given to it one after the other. Of a
stream, `Keeper` holds events back until the watermark has passed them: from then on nothing older can come, so a
machine sees the very same order however the events were cut into batches, and gives the very same rows.

A machine that waits for something names the time at which it is due. Events of that very time still come before.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

#: An output of a machine: a row of the job's result, with times as microseconds since the epoch.
Result: TypeAlias = dict[str, Any]
_NEVER: Final = 2**63 - 1
_json: Final = json.JSONEncoder(separators=(",", ":")).encode
#: Orders events; those that were saved are lists.
_order: Final = itemgetter(0, 1, 2, 3)


class Subject(NamedTuple):
    """The subject of a machine: `client`, `node` …, and its name."""

    scope: str
    name: str


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


E = TypeVar("E")


class Machine(Generic[E]):
    #: Attributes that make up what it knows, in values that JSON has.
    state: ClassVar[tuple[str, ...]] = ()
    #: Microseconds since the epoch: if no event comes until then, `expire` is called.
    due: int | None = None

    def event(self, event: E) -> Iterator[Result]:
        """Called in the order of time."""
        raise NotImplementedError

    def expire(self) -> Iterator[Result]:
        """It is `due`; afterwards it is due later, or not at all."""
        raise NotImplementedError

    def end(self, now: int) -> Iterator[Result]:
        """The recorded events end, and it was `now` then. Streams have no end."""
        return iter(())

    def knows_nothing(self) -> bool:
        return self.due is None

    def save(self) -> list[Any]:
        return [getattr(self, name) for name in self.state]

    def load(self, saved: list[Any]) -> None:
        """Know again what `save` gave."""
        for name, value in zip(self.state, saved, strict=True):
            setattr(self, name, value)


class Machines(NamedTuple):
    """The machines of a job. It is sent to Spark's workers."""

    #: The named tuple that they take. It begins with `at` (microseconds since the epoch), `node`, `incarnation` and
    #: `seq`, which give events their order: no two are alike in all four.
    event: type[Any]
    #: Makes the one of a subject, which knows nothing yet.
    make: Callable[[Subject], Machine[Any]]

    def restored(self, subject: Subject, saved: list[Any] | None, due: int | None = None) -> Machine[Any]:
        machine = self.make(subject)
        if saved is not None:
            machine.load(saved)
        machine.due = due
        return machine


def play(machine: Machine[Any], events: Iterable[Any], until: int) -> Iterator[Result]:
    """Give a machine its next events, in order, and let time go on to `until`."""
    for event in events:
        while machine.due is not None and machine.due < event.at:
            yield from machine.expire()
        yield from machine.event(event)
    while machine.due is not None and machine.due <= until:
        yield from machine.expire()


class _Kept:
    """The state of a subject between batches."""

    __slots__ = ("due", "pending", "state")

    def __init__(self, text: str | None) -> None:
        self.due: int | None = None
        self.state: list[Any] | None = None
        self.pending: list[Any] = []
        if text is not None:
            self.due, self.state, self.pending = json.loads(text.partition(" ")[2])

    def text(self) -> str:
        """When there is something to do, and then all of it."""
        times = [event[0] for event in self.pending]
        if self.due is not None:
            times.append(self.due)
        return f"{min(times, default=_NEVER)} {_json([self.due, self.state, self.pending])}"


def _when(text: str) -> int:
    return int(text.partition(" ")[0])


class Keeper:
    """The machines of many subjects in a stream, and the events that they have not seen yet.

    Most subjects have nothing to do in a batch, so each is kept as a text, which is only read when it has. What is held
    back is bounded by what comes in one batch and within the lateness of the watermark: both are for the caller to
    choose.
    """

    def __init__(self, machines: Machines, saved: str | None = None) -> None:
        """Raises ValueError: `saved` is not what `save` gave."""
        self._machines = machines
        self._texts: dict[str, str] = {} if saved is None else json.loads(saved)
        #: Those whose texts were read; they have no text meanwhile.
        self._read: dict[str, _Kept] = {}

    def _get(self, key: str) -> _Kept:
        kept = self._read.get(key)
        if kept is None:
            kept = self._read[key] = _Kept(self._texts.pop(key, None))
        return kept

    def add(self, subject: Subject, event: Any) -> None:
        """An event that came just now; in any order."""
        self._get(f"{subject.scope} {subject.name}").pending.append(event)

    def advance(self, now: int) -> Iterator[Result]:
        """Time, in microseconds since the epoch, has come to `now`: no event that is as old will come any more."""
        for key in [key for key, text in self._texts.items() if _when(text) <= now]:
            self._get(key)
        for key, kept in self._read.items():
            ready = sorted((event for event in kept.pending if event[0] <= now), key=_order)
            if not ready and (kept.due is None or kept.due > now):
                continue
            kept.pending = [event for event in kept.pending if event[0] > now]
            scope, _, name = key.partition(" ")
            machine = self._machines.restored(Subject(scope, name), kept.state, kept.due)
            yield from play(machine, map(self._machines.event._make, ready), now)
            kept.due, kept.state = machine.due, None if machine.knows_nothing() else machine.save()

    def _write(self) -> None:
        for key, kept in self._read.items():
            if kept.state is not None or kept.pending:
                self._texts[key] = kept.text()
        self._read.clear()

    def next(self) -> int | None:
        """When `advance` will have something to do, unless events come before."""
        self._write()
        earliest = min(map(_when, self._texts.values()), default=_NEVER)
        return None if earliest == _NEVER else earliest

    def save(self) -> str | None:
        """For the next batch; None when nothing is left."""
        self._write()
        return _json(self._texts) if self._texts else None
