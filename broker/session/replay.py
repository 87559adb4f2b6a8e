"""Retained messages on their way to one new subscription, taken from the store as the client can take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.pubsub import Subscriber
    from trunkline.broker.routes import Grant
    from trunkline.mqtt.message import Message
    from trunkline.router import RetainedStore, Target


class Replay:
    """Never sends what was stored after the subscription was made: that comes live. So nothing comes twice."""

    __slots__ = ("_allowed", "_matches", "_now", "_sent", "_since", "_store", "filter", "over", "target")

    def __init__(
        self,
        grant: Grant,
        target: Target[Subscriber],
        store: RetainedStore,
        allowed: Callable[[Message], bool],
        now: float,
    ) -> None:
        """`allowed` says whether the client may have a retained message."""
        self.target = target
        #: Was the last message found?
        self.over = False
        self._allowed = allowed
        self.filter = grant.filter
        self._since = grant.since
        self._store = store
        self._now = now
        self._matches = store.match(grant.filter, now)
        #: Topics that were sent.
        self._sent: set[str] = set()

    def next(self) -> Message | None:
        """Go a bounded step on: the message that it led to, if any."""
        for kept in self._matches:
            if kept is None or kept.sequence > self._since or kept.message.topic in self._sent:
                return None
            self._sent.add(kept.message.topic)
            return kept.message if self._allowed(kept.message) else None
        self.over = True
        return None

    def overtaken_by(self, live: Message) -> Message | None:
        """The retained message that has to come before this live one, if it was not sent yet."""
        if live.topic in self._sent or not matches(self.filter, live.topic):
            return None
        self._sent.add(live.topic)
        kept = self._store.find(live.topic, self._now)
        if kept is None or kept.sequence > self._since or not self._allowed(kept.message):
            return None
        return kept.message
