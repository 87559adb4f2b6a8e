"""From a topic to the receivers of its messages: looked up once for each topic, then remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from trunkline.mqtt.topics import matches, plain_filter

if TYPE_CHECKING:
    from collections.abc import Iterable

R = TypeVar("R")

#: Topics that are remembered. Beyond them the memory is cleared.
MAX_REMEMBERED: Final = 4096


class Dispatch(Generic[R]):
    def __init__(self) -> None:
        #: The topic filters of each receiver; none: it gets what no filter matches.
        self._filters: dict[R, list[str]] = {}
        self._found: dict[str, tuple[R, ...]] = {}

    def add(self, receiver: R, topic_filters: Iterable[str]) -> None:
        """Of a shared subscription the part behind the group's name counts."""
        self._filters[receiver] = [plain_filter(each) for each in topic_filters]
        self._found.clear()

    def remove(self, receiver: R) -> None:
        self._filters.pop(receiver, None)
        self._found.clear()

    @property
    def receivers(self) -> list[R]:
        return list(self._filters)

    def find(self, topic: str) -> tuple[R, ...]:
        """The receivers of messages with this topic, in the order in which they were added."""
        found = self._found.get(topic)
        if found is None:
            if len(self._found) >= MAX_REMEMBERED:
                self._found.clear()
            found = self._found[topic] = self._search(topic)
        return found

    def _search(self, topic: str) -> tuple[R, ...]:
        found = [
            receiver for receiver, filters in self._filters.items() if any(matches(each, topic) for each in filters)
        ]
        return tuple(found or [receiver for receiver, filters in self._filters.items() if not filters])
