"""The subscriptions of one client, and which of them match a topic."""

from typing import Final, TypeVar

from trunkline.mqtt.topics import matches, parse_shared

#: A subscription is there: it was made, or was there already when recording began.
MADE: Final = ("session.subscribed", "session.subscription")
ENDED: Final = "session.unsubscribed"
#: All subscriptions of the client are gone: its session ended, or began anew because the broker did.
GONE: Final = ("session.created", "session.discarded", "session.terminated")
#: Kinds of events that change subscriptions.
CHANGES: Final = (*MADE, ENDED, *GONE)
#: Topics of which it is remembered which subscriptions match.
MAX_TOPICS: Final = 1000

T = TypeVar("T")


class Subscriptions(dict[str, T]):
    """A value for each topic filter of a client, for `limit` filters at most. Change it by `put` and `remove` alone."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._by_topic: dict[str, list[T]] = {}

    def put(self, filter: str, value: T) -> None:
        """Add a filter, or change its value. A new filter beyond the limit is ignored."""
        if filter in self or len(self) < self._limit:
            self[filter] = value
            self._by_topic.clear()

    def remove(self, kind: str, filter: str | None) -> list[T]:
        """Remove the subscriptions that an event of this kind ends (one of `CHANGES`), and return their values."""
        self._by_topic.clear()
        if kind == ENDED:
            return [self.pop(filter)] if filter is not None and filter in self else []
        values = list(self.values())
        self.clear()
        return values

    def matching(self, topic: str) -> list[T]:
        """The values of the filters that match the topic; shared ones are compared without their group."""
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= MAX_TOPICS:
                self._by_topic.clear()
            found = self._by_topic[topic] = [
                value for filter, value in self.items() if matches(_unshared(filter), topic)
            ]
        return found


def _unshared(filter: str) -> str:
    shared = parse_shared(filter)
    return filter if shared is None else shared[1]
