"""What a shard knows of the figures of the others, so that it can tell those of the node.

Each tells its own in the interval of `$SYS`, and when it is asked. Counters never go back: what a shard has told last
counts on while it is down, and its next life, which learns it from the others, goes on from there. Gauges are gone with
it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from trunkline.broker.whole_figures import MAXIMA, TakenFigures, summed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trunkline.broker.shards.words import Words

    #: The life of a shard, the counters of all its lives, its gauges and rates: these only if it tells them itself.
    Told: TypeAlias = tuple[int, dict[str, int], dict[str, int], list[float]]

_FIGURES: Final = "figures"
#: Seconds to wait for shards that were asked for theirs.
MAX_WAIT: Final = 1.0


@dataclass(slots=True)
class _Other:
    #: The last life that has told them.
    term: int = 0
    #: Of all its lives.
    counters: dict[str, int] = field(default_factory=dict[str, int])
    #: While it can be reached.
    gauges: dict[str, int] = field(default_factory=dict[str, int])
    rates: list[float] = field(default_factory=list[float])


class CommonFigures:
    """Of one shard."""

    def __init__(self, words: Words, number: int, term: int, epoch: float) -> None:
        """`epoch` is what has to be added to node time for a time that all shards know."""
        self._words = words
        self._number = number
        self._term = term
        self._epoch = epoch
        #: By the time that all know: the first of all shards.
        self._started_at = trio.current_time() + epoch
        #: What earlier lives of this one have counted.
        self._former: dict[str, int] = {}
        self._others: dict[int, _Other] = {}
        #: This shard's own, as the others know it.
        self._told: Told | None = None
        #: The most that the node had at once.
        self._maxima: dict[str, int] = {}
        words.came.append(self._tell_all)
        words.went.append(self._forget)
        words.hear(_FIGURES, self._heard)

    def serve(self, read: Callable[[], Awaitable[TakenFigures]], start_task: Callable[..., None]) -> None:
        """`read` this shard's own for others that ask."""

        async def answer(reply: Callable[[Any], None]) -> None:
            reply((self._started_at, {self._number: self._as_told(await read())}))

        def start(_shard: int, _content: Any, reply: Callable[[Any], None]) -> None:
            start_task(answer, reply)

        self._words.answer(_FIGURES, start)

    # The node's

    @property
    def uptime(self) -> float:
        """In seconds: since the first of the shards started."""
        return trio.current_time() + self._epoch - self._started_at

    def whole(self, own: TakenFigures) -> TakenFigures:
        """With those of the other shards, as they are known."""
        others = self._others.values()
        counters = summed([self._of_all_lives(own), *[other.counters for other in others]])
        gauges = summed([own.gauges, self._maxima, *[other.gauges for other in others]])
        self._maxima = {name: gauges[name] for name in MAXIMA if name in gauges}
        rates = [sum(some) for some in zip(own.rates, *[other.rates for other in others if other.rates], strict=True)]
        return TakenFigures(counters, gauges, rates)

    def _of_all_lives(self, own: TakenFigures) -> dict[str, int]:
        """What this shard has counted since the node started."""
        return {name: value + self._former.get(name, 0) for name, value in own.counters.items()}

    def tell(self, own: TakenFigures) -> None:
        """Say it to all others."""
        self._told = self._as_told(own)
        self._words.tell(_FIGURES, (self._started_at, {self._number: self._told}))

    async def ask(self) -> None:
        """Have all others that can be reached tell theirs now."""
        left, all_have = set(self._words.reached), trio.Event()

        def take(shard: int, content: Any) -> None:
            if content is not None:
                self._heard(shard, content)
            left.discard(shard)
            if not left:
                all_have.set()

        for shard in list(left):
            self._words.ask(shard, _FIGURES, None, partial(take, shard))
        with trio.move_on_after(MAX_WAIT):
            if left:
                await all_have.wait()

    # What is said and heard

    def _as_told(self, own: TakenFigures) -> Told:
        return self._term, self._of_all_lives(own), summed([own.gauges, self._maxima]), list(own.rates)

    def _tell_all(self, shard: int) -> None:
        """To one that has come, which may know nothing of what its own life before has told."""
        known: dict[int, Told] = {
            number: (other.term, other.counters, {}, []) for number, other in self._others.items()
        }
        if self._told is not None:
            known[self._number] = self._told
        self._words.tell_one(shard, _FIGURES, (self._started_at, known))

    def _forget(self, shard: int) -> None:
        if shard in self._others:
            self._others[shard].gauges, self._others[shard].rates = {}, []

    def _heard(self, shard: int, content: tuple[float, Mapping[int, Told]]) -> None:
        started_at, figures = content
        self._started_at = min(self._started_at, started_at)
        for number, (term, counters, gauges, rates) in figures.items():
            if number == self._number:
                if term < self._term:
                    _raise(self._former, counters)
                continue
            other = self._others.setdefault(number, _Other())
            other.term = max(other.term, term)
            _raise(other.counters, counters)
            if number == shard:
                other.gauges, other.rates = gauges, rates


def _raise(counters: dict[str, int], by: Mapping[str, int]) -> None:
    """To what was told later."""
    for name, value in by.items():
        counters[name] = max(value, counters.get(name, 0))
