"""Topic names, matched against a topic filter: the way round of retained messages.

The cost of a match is the number of topics that match (for a `+` inside a filter, the number of levels it stands for).

A node stands where at least two topics part, or where one ends and others go on. A branch that one topic goes along is
that topic's name itself. Topics that begin with $ have a root of their own, which filters that begin with a wildcard never
see.
"""

from collections.abc import Iterator
from typing import TypeAlias

from trunkline.router.levels import tail_matches


class _Node:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        #: The whole topic name if it ends here.
        self.topic: str | None = None


_Branch: TypeAlias = _Node | str

#: In place of a number of levels: the filter's `#` has been reached.
_ALL = -1


class TopicTree:
    """A set of topic names."""

    def __init__(self) -> None:
        self._root = _Node()
        self._reserved = _Node()
        self._size = 0
        #: Number of nodes beside the roots.
        self.nodes = 0

    def __len__(self) -> int:
        return self._size

    def add(self, topic: str) -> None:
        node = self._reserved if topic[:1] == "$" else self._root
        other: str | None = None
        others: list[str] = []
        for depth, level in enumerate(topic.split("/"), 1):
            branch = node.children.get(level)
            if branch is None:
                node.children[level] = topic
                self._size += 1
                return
            if isinstance(branch, str):
                if branch == topic:
                    return
                # Another topic had the branch for itself: it goes one level down.
                if branch is not other:
                    other = branch
                    others = branch.split("/")
                new = node.children[level] = _Node()
                self.nodes += 1
                if depth < len(others):
                    new.children[others[depth]] = branch
                else:
                    new.topic = branch
                branch = new
            node = branch
        if node.topic is None:
            node.topic = topic
            self._size += 1

    def discard(self, topic: str) -> None:
        """Take the topic out, with every node that only it needed."""
        node = self._reserved if topic[:1] == "$" else self._root
        path: list[tuple[_Node, str]] = []
        for level in topic.split("/"):
            branch = node.children.get(level)
            if branch is None:
                return
            if isinstance(branch, str):
                if branch != topic:
                    return
                del node.children[level]
                break
            path.append((node, level))
            node = branch
        else:
            if node.topic is None:
                return
            node.topic = None
        self._size -= 1
        while path:
            only = node.topic
            if node.children:
                if only is not None or len(node.children) > 1:
                    return
                (branch,) = node.children.values()
                if not isinstance(branch, str):
                    return
                only = branch
            node, level = path.pop()
            self.nodes -= 1
            if only is None:
                del node.children[level]
            else:
                node.children[level] = only

    def match(self, filter: str) -> Iterator[str]:
        """The topics that match, found while they are asked for.

        The tree may change between two of them: topics that were taken out meanwhile may still come, those added
        meanwhile may or may not.
        """
        levels = filter.split("/")
        count = len(levels)
        node = self._reserved if filter[:1] == "$" else self._root
        depth = 0
        # Straight down, as long as there is one way.
        while depth < count and (level := levels[depth]) not in ("+", "#"):
            branch = node.children.get(level)
            if branch is None:
                return
            depth += 1
            if isinstance(branch, str):
                if _leaf_matches(branch, levels, depth):
                    yield branch
                return
            node = branch
        # What is left to visit: branches, and how many levels of the filter led to them.
        pending: list[tuple[Iterator[_Branch], int]] = [(iter((node,)), depth)]
        while pending:
            branches, depth = pending[-1]
            for branch in branches:
                if isinstance(branch, str):
                    if depth == _ALL or _leaf_matches(branch, levels, depth):
                        yield branch
                    continue
                if depth == count:
                    if branch.topic is not None:
                        yield branch.topic
                    continue
                level = "#" if depth == _ALL else levels[depth]
                if level == "#":
                    # `a/#` matches `a` as well.
                    if branch.topic is not None:
                        yield branch.topic
                    pending.append((iter(list(branch.children.values())), _ALL))
                elif level == "+":
                    pending.append((iter(list(branch.children.values())), depth + 1))
                elif (child := branch.children.get(level)) is not None:
                    pending.append((iter((child,)), depth + 1))
                else:
                    continue
                break
            else:
                pending.pop()


def _leaf_matches(topic: str, levels: list[str], depth: int) -> bool:
    """Whether a topic whose first `depth` levels match does so to the end."""
    if depth == len(levels):
        return topic.count("/") == depth - 1
    if levels[depth] == "#":
        return True
    return tail_matches(levels[depth:], topic.split("/")[depth:])
