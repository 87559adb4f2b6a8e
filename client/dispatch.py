"""From a topic to the receivers of its messages: looked up once for each topic, then remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from trunkline.mqtt.topics import plain_filter
from trunkline.router.trie import FilterTrie

if TYPE_CHECKING:
    from collections.abc import Iterable

R = TypeVar("R")

#: Topics that are remembered, and how long they may be. Beyond that number the memory is cleared.
MAX_REMEMBERED: Final = 4096
MAX_REMEMBERED_LENGTH: Final = 256


class Dispatch(Generic[R]):
    def __init__(self) -> None:
        #: The topic filters of each receiver; none: it gets what no filter matches.
        self._filters: dict[R, list[str]] = {}
        #: The receivers of each topic filter, with their places in the order of `add`.
        self._trie = FilterTrie[dict[R, int]]()
        self._found: dict[str, tuple[R, ...]] = {}
        self._added = 0

    def add(self, receiver: R, topic_filters: Iterable[str]) -> None:
        """Of a shared subscription the part behind the group's name counts."""
        self._added += 1
        plain = self._filters[receiver] = list(dict.fromkeys(map(plain_filter, topic_filters)))
        for each in plain:
            self._trie.setdefault(each, {})[receiver] = self._added
        self._found.clear()

    def remove(self, receiver: R) -> None:
        for each in self._filters.pop(receiver, ()):
            others = self._trie.setdefault(each, {})
            others.pop(receiver, None)
            if not others:
                self._trie.remove(each)
        self._found.clear()

    def __contains__(self, receiver: R) -> bool:
        return receiver in self._filters

    @property
    def receivers(self) -> list[R]:
        return list(self._filters)

    def find(self, topic: str) -> tuple[R, ...]:
        """The receivers of messages with this topic, in the order in which they were added."""
        found = self._found.get(topic)
        if found is None:
            found = self._search(topic)
            if len(topic) <= MAX_REMEMBERED_LENGTH:
                if len(self._found) >= MAX_REMEMBERED:
                    self._found.clear()
                self._found[topic] = found
        return found

    def _search(self, topic: str) -> tuple[R, ...]:
        found: dict[R, int] = {}
        for receivers in self._trie.match(topic):
            found |= receivers
        if found:
            return tuple(sorted(found, key=found.__getitem__))
        return tuple(receiver for receiver, filters in self._filters.items() if not filters)
