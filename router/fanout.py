"""The targets of a filter, and how the subscribers of several filters become one list.

Most filters have one subscriber: its target stands in the table itself. The others have a `Fanout`.
A topic that one filter matches takes the filter's own receivers, however many topics there are. One that several
filters match takes merged ones, remembered by the combination of filters: all topics that match the same filters share
them.
"""

from typing import Generic, TypeAlias

from trunkline.router.target import Receivers, S, Target, combine


class Fanout(Generic[S]):
    """The targets of a filter with several subscribers."""

    __slots__ = ("snapshot", "targets")

    def __init__(self, first: Target[S], second: Target[S]) -> None:
        self.targets = {first.subscriber: first, second.subscriber: second}
        #: The targets as they are now, made when a message needs it.
        self.snapshot: Receivers[S] | None = None


Entry: TypeAlias = Target[S] | Fanout[S]

#: Combinations of up to this many filters with one subscriber each are merged anew for each topic: merging them is as
#: cheap as a lookup.
_FEW = 4
#: Pointers that the remembered tuples may hold together.
_CAPACITY = 2_000_000


def receivers_of(entry: Entry[S]) -> Receivers[S]:
    if isinstance(entry, Target):
        return Receivers((entry,))
    if entry.snapshot is None:
        entry.snapshot = Receivers(entry.targets.values())
    return entry.snapshot


def _merge(entries: list[Entry[S]]) -> Receivers[S]:
    """One target for each subscriber of any of the filters."""
    merged: dict[S, Target[S]] = {}
    overlapping: dict[S, list[Target[S]]] = {}
    for entry in sorted(entries, key=_size, reverse=True):
        targets = {entry.subscriber: entry} if isinstance(entry, Target) else entry.targets
        if not merged:
            merged = targets.copy()
            continue
        for subscriber in targets.keys() & merged.keys():
            overlapping.setdefault(subscriber, [merged[subscriber]]).append(targets[subscriber])
        merged |= targets
    for subscriber, several in overlapping.items():
        merged[subscriber] = combine(several)
    return Receivers(merged.values())


def _size(entry: Entry[S]) -> int:
    return 1 if isinstance(entry, Target) else len(entry.targets)


class _Merged(Generic[S]):
    """The receivers of one combination. It is known by identity: a combination may have thousands of filters, and
    comparing it filter by filter would cost too much."""

    __slots__ = ("combination", "cost", "receivers")

    def __init__(self, combination: tuple[Entry[S], ...], receivers: Receivers[S]) -> None:
        self.combination = combination
        self.receivers = receivers
        self.cost = len(receivers.targets) + len(receivers.behind) + 8 * len(combination)


class Merges(Generic[S]):
    """The merged receivers of combinations of filters."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._merged: dict[tuple[Entry[S], ...], _Merged[S]] = {}
        self._with: dict[Entry[S], set[_Merged[S]]] = {}
        self.capacity = capacity
        self.cost = 0

    def merge(self, entries: list[Entry[S]]) -> Receivers[S]:
        if len(entries) == 1:
            return receivers_of(entries[0])
        if len(entries) <= _FEW and all(isinstance(entry, Target) for entry in entries):
            return _merge(entries)
        combination = tuple(entries)
        known = self._merged.get(combination)
        if known is None:
            known = _Merged(combination, _merge(entries))
            if self.cost + known.cost > self.capacity:
                self.clear()
            self.cost += known.cost
            self._merged[combination] = known
            for entry in entries:
                self._with.setdefault(entry, set()).add(known)
        return known.receivers

    def forget(self, entry: Entry[S]) -> None:
        """The filter's subscribers have changed: forget every combination with it."""
        for known in self._with.pop(entry, ()):
            del self._merged[known.combination]
            self.cost -= known.cost
            for other in known.combination:
                others = self._with.get(other)
                if others is not None:
                    others.discard(known)
                    if not others:
                        del self._with[other]

    def clear(self) -> None:
        self._merged.clear()
        self._with.clear()
        self.cost = 0
