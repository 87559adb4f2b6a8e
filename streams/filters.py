"""Several topic filters together."""

from typing import Final

from trunkline.mqtt.topics import matches
from trunkline.router.trie import FilterTrie

#: Topics whose answer is remembered.
MAX_REMEMBERED: Final = 4096


class TopicFilters:
    """Matches what one of the filters matches; without any, everything."""

    __slots__ = ("_remembered", "_trie", "filters")

    def __init__(self, filters: tuple[str, ...]) -> None:
        self.filters = filters
        self._remembered: dict[str, bool] = {}
        #: Of several: their number costs nothing.
        self._trie: FilterTrie[bool] | None = None
        if len(filters) > 1:
            self._trie = FilterTrie()
            for each in filters:
                self._trie.set(each, True)

    def match(self, topic: str) -> bool:
        if not self.filters:
            return True
        found = self._remembered.get(topic)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            trie = self._trie
            found = matches(self.filters[0], topic) if trie is None else bool(trie.match(topic))
            self._remembered[topic] = found
        return found

    def overlap(self, other: "TopicFilters") -> tuple[str, str] | None:
        """Two filters, one of each, that some topic matches both of."""
        if other is NOTHING:
            return None
        mine, others = self.filters or ("#",), other.filters or ("#",)
        if not (self.filters and other.filters):
            return mine[0], others[0]  # no filter is more than `#`: it matches what begins with `$`, too
        cut = [(two, two.split("/")) for two in others]
        for one in mine:
            levels = one.split("/")
            for two, its in cut:
                if _overlap(levels, its):
                    return one, two
        return None


class _NoTopics(TopicFilters):
    __slots__ = ()

    def match(self, topic: str) -> bool:
        return False

    def overlap(self, other: TopicFilters) -> tuple[str, str] | None:
        return None


#: What a consumer without filters has.
EVERYTHING: Final = TopicFilters(())
#: What a stream without filters has, which takes messages from other streams alone.
NOTHING: Final[TopicFilters] = _NoTopics(())


def of_stream(filters: tuple[str, ...]) -> TopicFilters:
    """What comes to a stream with these filters."""
    return TopicFilters(filters) if filters else NOTHING


def overlap(one: str, two: str) -> bool:
    """Is there a topic that both filters match?"""
    return _overlap(one.split("/"), two.split("/"))


def _overlap(first: list[str], second: list[str]) -> bool:
    for mine, its in ((first[0], second[0]), (second[0], first[0])):
        if mine.startswith("$") and its in ("+", "#"):
            return False  # [MQTT-4.7.2-1]
    for mine, its in zip(first, second, strict=False):
        if mine == "#" or its == "#":
            return True
        if mine != its and mine != "+" and its != "+":
            return False
    if len(first) == len(second):
        return True
    longer = max(first, second, key=len)
    return longer[min(len(first), len(second))] == "#"  # which matches the level above, too
