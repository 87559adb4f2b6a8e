"""Topic names, matched against a topic filter: the reverse of routing, for retained messages.

The cost of a match is the number of topics that match, and of branches that a `+` inside a filter leads to. The tree
counts how often each level occurs at each position, so that a filter with a level that no topic has there costs
nothing.

A node stands where at least two topics part, or where one ends and others go on. A branch that one topic goes along is
that topic's name itself. Topics that begin with $ have a root of their own, which filters that begin with a wildcard
never see.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from trunkline.router.levels import tail_matches


class _TopicNode:
    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        #: The whole topic name if it ends here.
        self.topic: str | None = None


_Branch: TypeAlias = _TopicNode | str

#: In place of a number of levels: the filter's `#` has been reached.
_ALL = -1
#: Branches that a match examines before it gives control back to its caller.
PATIENCE: Final = 64


class TopicTree:
    """A set of topic names."""

    def __init__(self) -> None:
        self._root = _TopicNode()
        self._reserved = _TopicNode()
        self._size = 0
        #: By position: how many topics have which level there.
        self._levels: list[dict[str, int]] = []
        #: Number of nodes beside the roots.
        self.nodes = 0

    def __len__(self) -> int:
        return self._size

    def add(self, topic: str) -> None:
        node = self._reserved if topic[:1] == "$" else self._root
        other: str | None = None
        others: list[str] = []
        levels = topic.split("/")
        for depth, level in enumerate(levels, 1):
            branch = node.children.get(level)
            if branch is None:
                node.children[level] = topic
                self._count(levels)
                return
            if isinstance(branch, str):
                if branch == topic:
                    return
                # Another topic had the branch to itself: it moves one level down.
                if branch is not other:
                    other = branch
                    others = branch.split("/")
                new = node.children[level] = _TopicNode()
                self.nodes += 1
                if depth < len(others):
                    new.children[others[depth]] = branch
                else:
                    new.topic = branch
                branch = new
            node = branch
        if node.topic is None:
            node.topic = topic
            self._count(levels)

    def _count(self, levels: list[str]) -> None:
        self._size += 1
        while len(self._levels) < len(levels):
            self._levels.append({})
        for counts, level in zip(self._levels, levels, strict=False):
            counts[level] = counts.get(level, 0) + 1

    def _uncount(self, levels: list[str]) -> None:
        self._size -= 1
        for counts, level in zip(self._levels, levels, strict=False):
            left = counts[level] - 1
            if left:
                counts[level] = left
            else:
                del counts[level]
        while self._levels and not self._levels[-1]:
            self._levels.pop()

    def discard(self, topic: str) -> None:
        """Take the topic out, with every node that only it needed."""
        node = self._reserved if topic[:1] == "$" else self._root
        path: list[tuple[_TopicNode, str]] = []
        levels = topic.split("/")
        for level in levels:
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
        self._uncount(levels)
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

    def match(self, filter: str) -> Iterator[str | None]:
        """The topics that match, found while they are asked for; None after each `PATIENCE` branches, which may lead
        nowhere.

        The tree may change between two of them: topics that were taken out meanwhile may still come, those added
        meanwhile may or may not.
        """
        if not self.may_match(filter):
            return
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
        # Most topics are told apart by their end, without being taken to pieces.
        end = "" if levels[-1] in ("+", "#") else "/" + levels[-1]
        # What is left to visit: branches, and how many levels of the filter led to them.
        pending: list[tuple[Iterator[_Branch], int]] = [(iter((node,)), depth)]
        looked = 0
        while pending:
            branches, depth = pending[-1]
            for branch in branches:
                looked += 1
                if looked == PATIENCE:
                    looked = 0
                    yield None
                if isinstance(branch, str):
                    if depth == _ALL or (branch.endswith(end) and _leaf_matches(branch, levels, depth)):
                        yield branch
                    continue
                level = "#" if depth == _ALL else levels[depth] if depth < count else ""
                if branch.topic is not None and (depth == count or level == "#"):
                    yield branch.topic  # `a/#` matches `a` as well
                if level == "#":
                    pending.append((iter(list(branch.children.values())), _ALL))
                elif depth == count:
                    continue
                elif level == "+":
                    pending.append((iter(list(branch.children.values())), depth + 1))
                elif (child := branch.children.get(level)) is not None:
                    pending.append((iter((child,)), depth + 1))
                else:
                    continue
                break
            else:
                pending.pop()

    def may_match(self, filter: str) -> bool:
        """Is there, for each level of a filter, some topic that has it there?"""
        counts, levels = self._levels, filter.split("/")
        wanted = levels[:-1] if levels[-1] == "#" else levels
        if len(wanted) > len(counts):
            return False
        for level, known in zip(wanted, counts, strict=False):  # noqa: SIM110
            if level != "+" and level not in known:
                return False
        return True


def _leaf_matches(topic: str, levels: list[str], depth: int) -> bool:
    """Whether a topic whose first `depth` levels match does so to the end."""
    if depth == len(levels):
        return topic.count("/") == depth - 1
    if levels[depth] == "#":
        return True
    return tail_matches(levels[depth:], topic.split("/")[depth:])
