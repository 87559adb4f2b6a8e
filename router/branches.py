"""The nodes of a trie of topic filters."""

from typing import Generic, TypeAlias, TypeVar

from trunkline.router.levels import tail_matches

V = TypeVar("V")


class Leaf(Generic[V]):
    __slots__ = ("suffix", "value")

    def __init__(self, suffix: str | None, value: V) -> None:
        #: The levels that follow the one leading here; None if there are none (an empty string is an empty level).
        self.suffix = suffix
        self.value = value

    def matches(self, levels: list[str], depth: int) -> bool:
        """Whether the levels from `depth` on are what follows."""
        if self.suffix is None:
            return depth == len(levels)
        return tail_matches(self.suffix.split("/"), levels[depth:])


class TrieNode(Generic[V]):
    __slots__ = ("children", "plus", "rest", "value")

    def __init__(self) -> None:
        self.children: dict[str, Branch[V]] | None = None
        self.plus: Branch[V] | None = None
        self.value: V | None = None
        self.rest: V | None = None

    def branch(self, level: str) -> "Branch[V] | None":
        if level == "+":
            return self.plus
        return self.children.get(level) if self.children is not None else None

    def attach(self, level: str, branch: "Branch[V]") -> None:
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


Branch: TypeAlias = TrieNode[V] | Leaf[V]
