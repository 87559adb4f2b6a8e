"""Topic filters with wildcards, matched against a topic name.

A node has one branch for each literal level, one for `+`, and two places for values: of the filter that ends at the
node, and of the one that goes on with `#`. A lookup carries the set of nodes that the levels so far lead to, so its
cost is the number of filters' beginnings that match, however many filters there are. Where these are many, the set has
been met before, see `trunkline.router.wide`.

A branch that a single filter goes along is a leaf with the rest of that filter, not a chain of nodes: a million filters
like `device/17/+/set` are a million leaves. Nothing recurses: a filter may have as many levels as fit into 64 KiB.
"""

from typing import Final, Generic, TypeVar

from trunkline.router.branches import Leaf, TrieNode
from trunkline.router.wide import WideMatches

V = TypeVar("V")


#: So many rests of filters are shared between leaves.
_COMMON = 1024
#: A set of so many nodes is worth being remembered.
_WIDE: Final = 64


class FilterTrie(Generic[V]):
    """Values by topic filter; `match` finds those of all filters that match a topic."""

    def __init__(self) -> None:
        self._root: TrieNode[V] = TrieNode()
        self._common: dict[str, str] = {}
        self._wide: WideMatches[V] = WideMatches()
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
            if isinstance(branch, Leaf):
                return branch.value if branch.suffix == _after(filter, offset) else None
            node = branch
        return node.value

    def set(self, filter: str, value: V) -> None:
        self._put(filter, value, True)

    def setdefault(self, filter: str, value: V) -> V:
        """The value that the filter has, and `value` if it had none."""
        return self._put(filter, value, False)

    def _put(self, filter: str, value: V, replace: bool) -> V:
        self._wide.forget(self._root, filter)
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
                node.attach(level, Leaf(None if suffix is None else self._share(suffix), value))
                self.filters += 1
                self.nodes += 1
                return value
            if isinstance(branch, Leaf):
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

    def _split(self, leaf: Leaf[V]) -> TrieNode[V]:
        """A node in place of a leaf, so that another filter can go along the same branch."""
        node: TrieNode[V] = TrieNode()
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
        """The filters of a million devices have the same ending: keep that text once."""
        if len(self._common) >= _COMMON:
            self._common.clear()
        return self._common.setdefault(suffix, suffix) if len(suffix) < 64 else suffix

    def remove(self, filter: str) -> V | None:
        """Take the filter out, with every node that only it needed."""
        self._wide.forget(self._root, filter)
        node = self._root
        path: list[tuple[TrieNode[V], str]] = []
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
            if isinstance(branch, Leaf):
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
            following: list[TrieNode[V]] = []
            for node in nodes:
                if node.children is not None and (branch := node.children.get(level)) is not None:
                    if not isinstance(branch, Leaf):
                        following.append(branch)
                    elif branch.matches(levels, depth):
                        found.append(branch.value)
                if reserved:
                    continue
                if node.rest is not None:
                    found.append(node.rest)
                if (branch := node.plus) is not None:
                    if not isinstance(branch, Leaf):
                        following.append(branch)
                    elif branch.matches(levels, depth):
                        found.append(branch.value)
            if not following:
                return found
            if len(following) > _WIDE:
                return found + self._wide.match(following, levels, depth)
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
