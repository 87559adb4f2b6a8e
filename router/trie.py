"""Topic filters with wildcards, matched against a topic name.

A node has one child for each literal level, one for `+`, and two places for values: of the filter that ends at the node,
and of the one that goes on with `#`. A lookup carries the set of nodes that the levels so far lead to, so its cost is the
number of filters' beginnings that match, however many filters there are. Nothing recurses: a filter may have as many
levels as fit into 64 KiB.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("children", "plus", "rest", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] | None = None
        self.plus: _Node[V] | None = None
        self.value: V | None = None
        self.rest: V | None = None

    def child(self, level: str) -> "_Node[V] | None":
        if level == "+":
            return self.plus
        return self.children.get(level) if self.children is not None else None


class FilterTrie(Generic[V]):
    """Values by topic filter; `match` finds those of all filters that match a topic."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        #: Number of filters that have a value.
        self.filters = 0
        #: Number of nodes beside the root.
        self.nodes = 0

    def get(self, filter: str) -> V | None:
        levels = filter.split("/")
        rest = levels[-1] == "#"
        if rest:
            levels.pop()
        node = self._root
        for level in levels:
            child = node.child(level)
            if child is None:
                return None
            node = child
        return node.rest if rest else node.value

    def set(self, filter: str, value: V) -> None:
        levels = filter.split("/")
        rest = levels[-1] == "#"
        if rest:
            levels.pop()
        node = self._root
        for level in levels:
            if level == "+":
                child = node.plus
                if child is None:
                    child = node.plus = _Node()
                    self.nodes += 1
            else:
                if node.children is None:
                    node.children = {}
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = _Node()
                    self.nodes += 1
            node = child
        if rest:
            self.filters += node.rest is None
            node.rest = value
        else:
            self.filters += node.value is None
            node.value = value

    def remove(self, filter: str) -> V | None:
        """Take the filter out, with every node that only it needed."""
        levels = filter.split("/")
        rest = levels[-1] == "#"
        if rest:
            levels.pop()
        node = self._root
        path = [node]
        for level in levels:
            child = node.child(level)
            if child is None:
                return None
            path.append(child)
            node = child
        if rest:
            value, node.rest = node.rest, None
        else:
            value, node.value = node.value, None
        if value is None:
            return None
        self.filters -= 1
        while levels:
            node = path.pop()
            if node.children is not None or node.plus is not None or node.value is not None or node.rest is not None:
                break
            parent, level = path[-1], levels.pop()
            self.nodes -= 1
            if level == "+":
                parent.plus = None
            else:
                assert parent.children is not None
                del parent.children[level]
                if not parent.children:
                    parent.children = None
        return value

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic."""
        found: list[V] = []
        root = self._root
        levels = topic.split("/")
        nodes: list[_Node[V]]
        if topic[:1] == "$":
            # A wildcard at the first level does not match topics that begin with $ [MQTT-4.7.2-1].
            first = root.children.get(levels[0]) if root.children is not None else None
            if first is None:
                return found
            nodes = [first]
            del levels[0]
        else:
            nodes = [root]
        for level in levels:
            following: list[_Node[V]] = []
            for node in nodes:
                if node.rest is not None:
                    found.append(node.rest)
                if node.children is not None and (child := node.children.get(level)) is not None:
                    following.append(child)
                if node.plus is not None:
                    following.append(node.plus)
            if not following:
                return found
            nodes = following
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            if node.rest is not None:
                # `a/#` matches `a` as well.
                found.append(node.rest)
        return found

    def __iter__(self) -> Iterator[V]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.value is not None:
                yield node.value
            if node.rest is not None:
                yield node.rest
            if node.plus is not None:
                stack.append(node.plus)
            if node.children is not None:
                stack.extend(node.children.values())
