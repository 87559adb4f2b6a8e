"""What parts of a shard say to the same parts of other shards, and ask them.

A word is lost with its connection, and a question then has no answer. So whoever keeps something in common with other
shards says all of it to a shard that has come, and what changes from then on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from trunkline.broker.links.frames import Said, ShardAnswer
from trunkline.broker.shards.homes import dealt, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.actors import Scheduler
    from trunkline.broker.links.frames import Word


class SpokenTo(Protocol):
    """One other shard."""

    @property
    def is_up(self) -> bool: ...
    def say(self, word: Word, /) -> None: ...


class Words:
    """Of one shard. Everything here is called within a turn of the run queue."""

    def __init__(self, own: int, peers: Mapping[int, SpokenTo], scheduler: Scheduler) -> None:
        #: The number of this shard.
        self.own = own
        self._peers = peers
        self._scheduler = scheduler
        self._hearers: dict[str, Callable[[int, Any], None]] = {}
        self._answerers: dict[str, Callable[[int, Any, Callable[[Any], None]], None]] = {}
        #: Called with the number of a shard that can be spoken to from now on, or cannot any more.
        self.came: list[Callable[[int], None]] = []
        self.went: list[Callable[[int], None]] = []
        #: By the number of the question: who was asked, and who waits for the answer.
        self._asked: dict[int, tuple[int, Callable[[Any], None]]] = {}
        self._last = 0

    def hear(self, subject: str, hearer: Callable[[int, Any], None]) -> None:
        """Call it with the number of the shard and what that has said. It takes the place of who has heard before."""
        self._hearers[subject] = hearer

    def answer(self, subject: str, answerer: Callable[[int, Any, Callable[[Any], None]], None]) -> None:
        """As `hear`; the answer goes to the function that comes last, at once or later."""
        self._answerers[subject] = answerer

    @property
    def count(self) -> int:
        """How many shards there are."""
        return len(self._peers) + 1

    def home_of(self, text: str) -> int:
        """The shard that decides about what has this name: that of a client with this id."""
        return dealt(self.count)[slot_of(text)]

    @property
    def reached(self) -> list[int]:
        """The shards that can be spoken to."""
        return [number for number, peer in self._peers.items() if peer.is_up]

    def tell(self, subject: str, content: object) -> None:
        """Say it to all that can be spoken to."""
        for number in self.reached:
            self.tell_one(number, subject, content)

    def tell_one(self, shard: int, subject: str, content: object) -> None:
        self._peers[shard].say(Said(subject, 0, content))

    def ask(self, shard: int, subject: str, content: object, answered: Callable[[Any], None]) -> None:
        """Call back with the answer; with None, if nobody there knows one, or it cannot come any more."""
        peer = self._peers[shard]
        if not peer.is_up:
            answered(None)
            return
        self._last += 1
        self._asked[self._last] = shard, answered
        peer.say(Said(subject, self._last, content))

    # What the links say

    def has_come(self, shard: int) -> None:
        self._call_all(self.came, shard)

    def has_gone(self, shard: int) -> None:
        for request in [number for number, (asked, _) in self._asked.items() if asked == shard]:
            self._answered(request, None)
        self._call_all(self.went, shard)

    def heard(self, shard: int, word: Said | ShardAnswer) -> None:
        if isinstance(word, ShardAnswer):
            self._answered(word.request, word.content)
        elif not word.request:
            hearer = self._hearers.get(word.subject)
            if hearer is not None:
                self._call(hearer, shard, word.content)
        else:
            answerer, peer, request = self._answerers.get(word.subject), self._peers[shard], word.request
            if answerer is None:
                peer.say(ShardAnswer(request, None))
            else:
                self._call(answerer, shard, word.content, partial(_reply, peer, request))

    def _answered(self, request: int, content: object) -> None:
        _, answered = self._asked.pop(request, (0, None))
        if answered is not None:
            self._call(answered, content)

    def _call_all(self, callbacks: list[Callable[[int], None]], shard: int) -> None:
        for callback in callbacks:
            self._call(callback, shard)

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        """What breaks in one part does not cost the others their link."""
        try:
            callback(*arguments)
        except Exception as error:  # noqa: BLE001
            self._scheduler.blame(None, callback, error)


def _reply(peer: SpokenTo, request: int, content: object) -> None:
    peer.say(ShardAnswer(request, content))
