"""The subscriptions of one client, and which of them match a topic."""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from trunkline.mqtt.topics import matches, parse_shared

MADE: Final = "session.subscribed"
ENDED: Final = "session.unsubscribed"
#: All subscriptions of the client are gone: its session ended, or began anew because the broker did.
GONE: Final = ("session.created", "session.discarded", "session.terminated")
#: Kinds of events that change subscriptions.
CHANGES: Final = (MADE, ENDED, *GONE)
#: Topics of which it is remembered which subscriptions match.
MAX_TOPICS: Final = 1000

T = TypeVar("T")


class Subscriptions(Generic[T]):
    """Something for each topic filter, of which there are at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_filter: dict[str, T] = {}
        self._by_topic: dict[str, list[T]] = {}

    def put(self, filter: str, value: T) -> None:
        """One more, or another value for a filter that is there. Beyond the limit it is left out."""
        if filter in self._by_filter or len(self._by_filter) < self._limit:
            self._by_filter[filter] = value
            self._by_topic.clear()

    def remove(self, kind: str, filter: str | None) -> list[T]:
        """What ends with an event of this kind, one of `CHANGES`."""
        self._by_topic.clear()
        if kind == ENDED:
            return [self._by_filter.pop(filter)] if filter in self._by_filter else []
        values = list(self._by_filter.values())
        self._by_filter.clear()
        return values

    def matching(self, topic: str) -> list[T]:
        """What there is for the filters that match the topic; shared ones without their group."""
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= MAX_TOPICS:
                self._by_topic.clear()
            found = self._by_topic[topic] = [
                value for filter, value in self._by_filter.items() if matches(_unshared(filter), topic)
            ]
        return found

    def items(self) -> list[tuple[str, T]]:
        return list(self._by_filter.items())

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_filter.values())

    def __contains__(self, filter: object) -> bool:
        return filter in self._by_filter

    def __len__(self) -> int:
        return len(self._by_filter)


def _unshared(filter: str) -> str:
    shared = parse_shared(filter)
    return filter if shared is None else shared[1]
