"""The limits of a node that has several shards: each knows what the others have of what is limited, and what they draw
from the rates that all share.

Numbers are told when they change, at the end of the turn; large ones when they have changed by a hundredth of a shard's
part. So two shards exceed a limit together by what they take in the time that a word needs, and by no more than one per
cent otherwise. What is drawn from a rate is drawn at every shard: for a moment there may be a debt of several shards,
and the average is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.node_use import SESSIONS, SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.shards.words import Words

_NUMBERS: Final = "numbers"
_DRAWN: Final = "drawn"
#: What a shard still has when it is down.
_LASTING: Final = frozenset({SESSIONS, SUBSCRIPTIONS})
#: A number is told when it has changed by this part of what each shard may have on average.
_EXACTNESS: Final = 100


class CommonUse:
    """The `NodeUse` of one shard."""

    owner: Ref[Any] | None = None

    def __init__(self, words: Words, scheduler: Scheduler, shards: int) -> None:
        self._words = words
        self._scheduler = scheduler
        self._shards = shards
        #: What this one has, as the others know it, and what they do not know yet.
        self._told: dict[str, int] = {}
        self._untold: dict[str, int] = {}
        #: What was drawn in this turn.
        self._drawn: dict[str, float] = {}
        self._armed = False
        #: By shard: what each of the others has.
        self._others: dict[int, dict[str, int]] = {}
        self._drawers: dict[str, Callable[[float, float], None]] = {}
        self._watchers: dict[str, Callable[[], None]] = {}
        words.came.append(self._tell_all)
        words.went.append(self._forget)
        words.hear(_NUMBERS, self._heard)
        words.hear(_DRAWN, self._draw)

    # Numbers

    def has(self, what: str, count: int, limit: int) -> None:
        if not limit:
            count = 0
        if abs(count - self._told.get(what, 0)) <= limit // (_EXACTNESS * self._shards):
            self._untold.pop(what, None)
            return
        self._untold[what] = count
        self._arm()

    def elsewhere(self, what: str) -> int:
        return sum([numbers.get(what, 0) for numbers in self._others.values()])

    def when_fewer(self, what: str, callback: Callable[[], None]) -> None:
        self._watchers[what] = callback

    # Rates

    @property
    def is_alone(self) -> bool:
        return self._shards == 1

    def when_drawn(self, what: str, callback: Callable[[float, float], None]) -> None:
        self._drawers[what] = callback

    def drawn(self, what: str, amount: float) -> None:
        self._drawn[what] = self._drawn.get(what, 0.0) + amount
        self._arm()

    # Whatever else

    def tell(self, subject: str, content: object) -> None:
        self._words.tell(subject, content)

    def hear(self, subject: str, hearer: Callable[[Any], None]) -> None:
        self._words.hear(subject, lambda _, content: hearer(content))

    # What is said

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._scheduler.at_end(self)

    def end_turn(self) -> None:
        self._armed = False
        untold, self._untold = self._untold, {}
        drawn, self._drawn = self._drawn, {}
        for what, count in untold.items():
            if count:
                self._told[what] = count
            else:
                self._told.pop(what, None)
        if untold:
            self._words.tell(_NUMBERS, untold)
        if drawn:
            self._words.tell(_DRAWN, drawn)

    def _tell_all(self, shard: int) -> None:
        self._others.pop(shard, None)  # what it had before it was started again
        self._words.tell_one(shard, _NUMBERS, self._told)

    def _forget(self, shard: int) -> None:
        """Its connections are gone."""
        numbers = self._others.get(shard, {})
        self._others[shard] = {what: count for what, count in numbers.items() if what in _LASTING}

    # What is heard

    def _heard(self, shard: int, content: dict[str, int]) -> None:
        numbers = self._others.setdefault(shard, {})
        for what, count in content.items():
            before = numbers.pop(what, 0)
            if count:
                numbers[what] = count
            if count < before and what in self._watchers:
                self._watchers[what]()

    def _draw(self, shard: int, content: dict[str, float]) -> None:
        del shard
        for what, amount in content.items():
            callback = self._drawers.get(what)
            if callback is not None:
                callback(amount, self._scheduler.now)
