"""State machines that see the events of one subject (a client, an address, a node) in the order of time.

The same machine serves recorded and streamed events. Recorded ones are sorted and given to it one after the other. Of a
stream, `Keeper` holds back what comes until the watermark has passed it: from then on nothing older can come, so a
machine sees the very same order however the events were cut into batches, and gives the very same rows.

A machine that waits for something names the time at which it is due. Events of that very time still come before.
"""

import json
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

#: What a machine has to tell: a row of the job's result, with times as microseconds since the epoch.
Result: TypeAlias = dict[str, Any]
_NEVER: Final = 2**63 - 1
_json: Final = json.JSONEncoder(separators=(",", ":")).encode
#: Orders events; those that were saved are lists.
_order: Final = itemgetter(0, 1, 2, 3)
#: What a machine is about: what kind of a thing, and which.
Subject: TypeAlias = tuple[str, str]


class Event(Protocol):
    """A named tuple that begins with these; they give events their order. No two are alike in all four."""

    @property
    def at(self) -> int:
        """Microseconds since the epoch."""
        ...

    @property
    def node(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def seq(self) -> int: ...


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


E = TypeVar("E")


class Machine(Generic[E]):
    #: Microseconds since the epoch: when nothing has come until then, `expire` is called.
    due: int | None = None

    def event(self, event: E) -> Iterator[Result]:
        """Called in the order of time."""
        raise NotImplementedError

    def expire(self) -> Iterator[Result]:
        """It is `due`; afterwards it is due later, or not at all."""
        raise NotImplementedError

    def end(self, now: int) -> Iterator[Result]:
        """Nothing more was recorded, and it was `now` when that ended. Streams have no end."""
        return iter(())

    def save(self) -> list[Any] | None:
        """All that it knows, as JSON has it; None when that is nothing."""
        raise NotImplementedError


class Logic(Protocol[E]):
    """What a job does: makes machines. It is sent to Spark's workers."""

    #: The named tuple that its machines take, see `Event`.
    event: ClassVar[type[Any]]

    def machine(self, subject: Subject, saved: list[Any] | None) -> Machine[E]:
        """One that knows nothing, or what `save` gave."""
        ...


def play(machine: Machine[Any], events: Iterable[Event], until: int) -> Iterator[Result]:
    """Give a machine its next events, in order, and let time go on to `until`."""
    for event in events:
        while machine.due is not None and machine.due < event.at:
            yield from machine.expire()
        yield from machine.event(event)
    while machine.due is not None and machine.due <= until:
        yield from machine.expire()


class _Kept:
    """What is kept of a subject between batches."""

    __slots__ = ("due", "pending", "state")

    def __init__(
        self, due: int | None = None, state: list[Any] | None = None, pending: list[Any] | None = None
    ) -> None:
        self.due = due
        self.state = state
        self.pending: list[Any] = pending or []

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
    back is bounded by what comes in one batch and within the lateness that the watermark has: both are for the caller to
    choose.
    """

    def __init__(self, logic: Logic[Any], saved: str | None = None) -> None:
        """
        Raises:
            ValueError: when `saved` is not what `save` gave.
        """
        self._logic = logic
        self._texts: dict[str, str] = {} if saved is None else json.loads(saved)
        #: Those whose texts were read; they have no text meanwhile.
        self._read: dict[str, _Kept] = {}

    def _get(self, key: str) -> _Kept:
        kept = self._read.get(key)
        if kept is None:
            text = self._texts.pop(key, None)
            kept = self._read[key] = _Kept() if text is None else _Kept(*json.loads(text.partition(" ")[2]))
        return kept

    def add(self, subject: Subject, event: Event) -> None:
        """An event that came just now; in any order."""
        self._get(f"{subject[0]} {subject[1]}").pending.append(event)

    def advance(self, now: int) -> Iterator[tuple[Subject, Result]]:
        """Time, in microseconds since the epoch, has come to `now`: no event that is as old will come any more."""
        for key in [key for key, text in self._texts.items() if _when(text) <= now]:
            self._get(key)
        for key, kept in self._read.items():
            ready = sorted((event for event in kept.pending if event[0] <= now), key=_order)
            if not ready and (kept.due is None or kept.due > now):
                continue
            kept.pending = [event for event in kept.pending if event[0] > now]
            scope, _, name = key.partition(" ")
            machine = self._logic.machine((scope, name), kept.state)
            machine.due = kept.due
            for result in play(machine, map(self._logic.event._make, ready), now):
                yield (scope, name), result
            kept.due, kept.state = machine.due, machine.save()

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
