"""Topic filters with wildcards, matched against a topic name.

A node has one branch for each literal level, one for `+`, and two places for values: of the filter that ends at the node,
and of the one that goes on with `#`. A lookup carries the set of nodes that the levels so far lead to, so its cost is the
number of filters' beginnings that match, however many filters there are.

A branch that a single filter goes along is a leaf with the rest of that filter, not a chain of nodes: a million filters
like `device/17/+/set` are a million leaves. Nothing recurses: a filter may have as many levels as fit into 64 KiB.
"""

from typing import Generic, TypeAlias, TypeVar

from trunkline.router.levels import tail_matches

V = TypeVar("V")


class _Leaf(Generic[V]):
    __slots__ = ("suffix", "value")

    def __init__(self, suffix: str | None, value: V) -> None:
        #: What follows the level that leads here; None if nothing does (an empty string is an empty level).
        self.suffix = suffix
        self.value = value

    def matches(self, levels: list[str], depth: int) -> bool:
        """Whether the levels from `depth` on are what follows."""
        if self.suffix is None:
            return depth == len(levels)
        return tail_matches(self.suffix.split("/"), levels[depth:])


class _Node(Generic[V]):
    __slots__ = ("children", "plus", "rest", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Branch[V]] | None = None
        self.plus: _Branch[V] | None = None
        self.value: V | None = None
        self.rest: V | None = None

    def branch(self, level: str) -> "_Branch[V] | None":
        if level == "+":
            return self.plus
        return self.children.get(level) if self.children is not None else None

    def attach(self, level: str, branch: "_Branch[V]") -> None:
        if level == "+":
            self.plus = branch
        elif self.children is None:
            self.children = {level: branch}
        else:
            self.children[level] = branch

    def detach(self, level: str) -> bool:
        """True if nothing is left."""
        if level == "+":
            self.plus = None
        elif self.children is not None:
            del self.children[level]
            if not self.children:
                self.children = None
        return self.children is None and self.plus is None and self.value is None and self.rest is None


_Branch: TypeAlias = _Node[V] | _Leaf[V]

#: So many rests of filters are shared between leaves.
_COMMON = 1024


class FilterTrie(Generic[V]):
    """Values by topic filter; `match` finds those of all filters that match a topic."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self._common: dict[str, str] = {}
        #: Number of filters that have a value.
        self.filters = 0
        #: Number of nodes and leaves beside the root.
        self.nodes = 0

    def get(self, filter: str) -> V | None:
        node = self._root
        offset = 0
        for level in filter.split("/"):
            if level == "#":
                return node.rest
            offset += len(level) + 1
            branch = node.branch(level)
            if branch is None:
                return None
            if isinstance(branch, _Leaf):
                return branch.value if branch.suffix == _after(filter, offset) else None
            node = branch
        return node.value

    def set(self, filter: str, value: V) -> None:
        self._put(filter, value, True)

    def setdefault(self, filter: str, value: V) -> V:
        """The value that the filter has, and `value` if it had none."""
        return self._put(filter, value, False)

    def _put(self, filter: str, value: V, replace: bool) -> V:
        node = self._root
        offset = 0
        for level in filter.split("/"):
            if level == "#":
                if node.rest is None or replace:
                    self.filters += node.rest is None
                    node.rest = value
                return node.rest
            offset += len(level) + 1
            branch = node.branch(level)
            if branch is None:
                suffix = _after(filter, offset)
                node.attach(level, _Leaf(None if suffix is None else self._share(suffix), value))
                self.filters += 1
                self.nodes += 1
                return value
            if isinstance(branch, _Leaf):
                if branch.suffix == _after(filter, offset):
                    if replace:
                        branch.value = value
                    return branch.value
                split = self._split(branch)
                node.attach(level, split)
                branch = split
            node = branch
        if node.value is None or replace:
            self.filters += node.value is None
            node.value = value
        return node.value

    def _split(self, leaf: _Leaf[V]) -> _Node[V]:
        """A node in place of a leaf, so that another filter can go along the same branch."""
        node: _Node[V] = _Node()
        if leaf.suffix is None:
            node.value = leaf.value
        elif leaf.suffix == "#":
            node.rest = leaf.value
        else:
            level, more, suffix = leaf.suffix.partition("/")
            leaf.suffix = self._share(suffix) if more else None
            node.attach(level, leaf)
            self.nodes += 1
        return node

    def _share(self, suffix: str) -> str:
        """Filters of a million devices end alike: keep that text once."""
        if len(self._common) >= _COMMON:
            self._common.clear()
        return self._common.setdefault(suffix, suffix) if len(suffix) < 64 else suffix

    def remove(self, filter: str) -> V | None:
        """Take the filter out, with every node that only it needed."""
        node = self._root
        path: list[tuple[_Node[V], str]] = []
        offset = 0
        for level in filter.split("/"):
            if level == "#":
                value, node.rest = node.rest, None
                break
            offset += len(level) + 1
            path.append((node, level))
            branch = node.branch(level)
            if branch is None:
                return None
            if isinstance(branch, _Leaf):
                if branch.suffix != _after(filter, offset):
                    return None
                path.pop()
                value = branch.value
                self.nodes -= 1
                node.detach(level)
                break
            node = branch
        else:
            value, node.value = node.value, None
        if value is None:
            return None
        self.filters -= 1
        if not self.filters:
            self._common.clear()
        if node.children is not None or node.plus is not None or node.value is not None or node.rest is not None:
            return value
        while path:
            node, level = path.pop()
            self.nodes -= 1
            if not node.detach(level):
                break
        return value

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic."""
        found: list[V] = []
        levels = topic.split("/")
        nodes = [self._root]
        # A wildcard at the first level does not match topics that begin with $ [MQTT-4.7.2-1].
        reserved = topic[:1] == "$"
        for depth, level in enumerate(levels, 1):
            following: list[_Node[V]] = []
            for node in nodes:
                if node.children is not None and (branch := node.children.get(level)) is not None:
                    if not isinstance(branch, _Leaf):
                        following.append(branch)
                    elif branch.matches(levels, depth):
                        found.append(branch.value)
                if reserved:
                    continue
                if node.rest is not None:
                    found.append(node.rest)
                if (branch := node.plus) is not None:
                    if not isinstance(branch, _Leaf):
                        following.append(branch)
                    elif branch.matches(levels, depth):
                        found.append(branch.value)
            if not following:
                return found
            nodes = following
            reserved = False
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            if node.rest is not None:
                # `a/#` matches `a` as well.
                found.append(node.rest)
        return found


def _after(filter: str, offset: int) -> str | None:
    """The filter from `offset` on; None behind its last level."""
    return filter[offset:] if offset <= len(filter) else None
