"""Values by topic filter: a dict for filters without wildcards, a trie for the others."""

from typing import Generic, TypeVar

from trunkline.router.trie import FilterTrie

V = TypeVar("V")


def has_wildcard(filter: str) -> bool:
    return "+" in filter or "#" in filter


class FilterTable(Generic[V]):
    """Values by topic filter."""

    def __init__(self) -> None:
        self.exact: dict[str, V] = {}
        self.wildcards: FilterTrie[V] = FilterTrie()

    def __len__(self) -> int:
        return len(self.exact) + self.wildcards.filters

    def get(self, filter: str) -> V | None:
        return self.wildcards.get(filter) if has_wildcard(filter) else self.exact.get(filter)

    def set(self, filter: str, value: V) -> None:
        if has_wildcard(filter):
            self.wildcards.set(filter, value)
        else:
            self.exact[filter] = value

    def setdefault(self, filter: str, value: V) -> V:
        """The value that the filter has, and `value` if it had none."""
        return (self.wildcards if has_wildcard(filter) else self.exact).setdefault(filter, value)

    def remove(self, filter: str) -> V | None:
        return self.wildcards.remove(filter) if has_wildcard(filter) else self.exact.pop(filter, None)

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic."""
        found = self.wildcards.match(topic) if self.wildcards.filters else []
        value = self.exact.get(topic)
        if value is not None:
            found.append(value)
        return found
