"""Retained messages on their way to new subscriptions, read from the store as fast as the client accepts them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.weight import OVERHEAD
from trunkline.router.table import FilterTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import RetainedStore, Target
    from trunkline.router.retained import Retained

#: Bytes of a message that is cheaper to keep in its encoded forms than to encode again.
SMALL: Final = OVERHEAD + 1024


class Replay:
    """Messages stored after the subscription was made are never sent, because they are delivered live. So no message
    comes twice."""

    __slots__ = ("_allowed", "_matches", "_sent", "_since", "filter", "over", "target")

    def __init__(
        self,
        grant: Grant,
        target: Target[Subscriber],
        store: RetainedStore,
        allowed: Callable[[Message], bool],
        now: float,
    ) -> None:
        """`allowed` says whether the client may receive a retained message."""
        self.target = target
        #: Whether the last message has been found.
        self.over = False
        self._allowed = allowed
        self.filter = grant.filter
        self._since = grant.since
        self._matches = store.match(grant.filter, now)
        #: Topics that were sent.
        self._sent: set[str] = set()

    def next(self) -> Message | None:
        """Take a bounded step. Returns the message that was found, if any."""
        for kept in self._matches:
            if kept is None or kept.sequence > self._since or kept.message.topic in self._sent:
                return None
            self._sent.add(kept.message.topic)
            return _to_send(kept) if self._allowed(kept.message) else None
        self.over = True
        return None

    def overtaken_by(self, kept: Retained) -> Message | None:
        """The retained message that has to come before a live message of its topic, unless it was sent."""
        if kept.sequence > self._since or kept.message.topic in self._sent:
            return None
        self._sent.add(kept.message.topic)
        return _to_send(kept) if self._allowed(kept.message) else None


def _to_send(kept: Retained) -> Message:
    """Subscribers share the encoded forms of a small message. Those of a larger one are dropped with it."""
    return kept.message if kept.weight <= SMALL else kept.message.bare()


class Replays:
    """The replays of one session, one after the other."""

    __slots__ = ("_batch", "_by_filter", "_in_order", "_steps", "_store")

    def __init__(self, store: RetainedStore, batch: int) -> None:
        """Others have their turn after a `batch` of messages, or of steps towards them."""
        self._store = store
        self._batch = batch
        self._steps = 0
        self._in_order: OrderedDict[str, Replay] = OrderedDict()
        #: Finds the replays that a live message concerns, however many there are.
        self._by_filter: FilterTable[Replay] = FilterTable()

    def __len__(self) -> int:
        return len(self._in_order)

    def add(self, replay: Replay) -> None:
        """Replaces one for the same filter, which was subscribed before: it starts anew."""
        self._in_order[replay.filter] = replay
        self._by_filter.set(replay.filter, replay)

    @property
    def waits(self) -> bool:
        return bool(self._in_order)

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]] | None:
        del now
        while self._in_order:
            replay = next(iter(self._in_order.values()))
            if not room and replay.target.qos:
                return ()
            if self._steps >= self._batch:
                self._steps = 0
                return None
            self._steps += 1
            message = replay.next()
            if message is not None:
                return ((message, replay.target, "retained", 0),)
            if replay.over:
                self.end((replay.filter,))
        return ()

    def end(self, filters: Iterable[str]) -> None:
        for filter in filters:
            if self._in_order.pop(filter, None) is not None:
                self._by_filter.remove(filter)

    def overtaken_by(self, topic: str, now: float) -> Taken[Target[Subscriber]] | None:
        """The next retained message that has to come before a live message of this topic."""
        kept = self._store.find(topic, now)
        if kept is not None:
            for replay in self._by_filter.match(topic):
                earlier = replay.overtaken_by(kept)
                if earlier is not None:
                    return earlier, replay.target, "retained", 0
        return None
