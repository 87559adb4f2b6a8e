"""Topics that match the beginnings of very many filters.

`a` and `+` in turn at each of thirteen levels make 8,192 filters, all of which match one topic, and each further topic
would be carried through all of them again. So a large set of nodes becomes a state of an automaton: the levels that
lead on from it, and the next state for each of them, are computed once. All levels that no filter of the set names lead
to the same next state, so that varying the topic does not help. A state is dropped when one of its nodes changes.
"""

from collections.abc import Sequence
from itertools import compress, zip_longest
from typing import Final, Generic, TypeVar

from trunkline.router.branches import Leaf, TrieNode

V = TypeVar("V")

#: References that all states may hold together.
_CAPACITY: Final = 1_000_000
#: A state whose filters name more levels than this does not tell them from others.
_NAMES: Final = 65_536


class _Tails(Generic[V]):
    """The rests of filters that have no nodes of their own any more, side by side: a level of all is taken at once."""

    __slots__ = ("_column", "_columns", "_depth", "_found", "_levels", "values")

    def __init__(self, values: Sequence[V], columns: Sequence[Sequence[str | None]], found: Sequence[int], depth: int):
        """`found` are the places, in the columns, of those whose first `depth` levels have matched. A filter that has
        ended has None in the columns that follow."""
        self.values = values
        self._columns = columns
        self._found = found
        self._depth = depth
        #: The level that comes next in each filter, and all of these.
        self._column: Sequence[str | None] = ()
        if depth < len(columns):
            column = columns[depth]
            self._column = column if len(column) == len(found) else list(map(column.__getitem__, found))
        else:
            self._column = (None,) * len(found)
        self._levels = set(self._column)

    def having(self, level: str | None) -> list[V]:
        """The values of those whose next level this is."""
        if level not in self._levels:
            return []
        return [value for value, each in zip(self.values, self._column, strict=True) if each == level]

    @property
    def named(self) -> set[str]:
        return {level for level in self._levels if level is not None and level not in ("+", "#")}

    def follow(self, level: str) -> "_Tails[V] | None":
        """Those that go on with this level of a topic."""
        depth = self._depth + 1
        if self._levels <= {level, "+"}:
            return _Tails(self.values, self._columns, self._found, depth)
        taken = [each in (level, "+") for each in self._column]
        found = list(compress(self._found, taken))
        return _Tails(list(compress(self.values, taken)), self._columns, found, depth) if found else None


def _tails_of(leaves: list[Leaf[V]]) -> _Tails[V]:
    levels = [[] if leaf.suffix is None else leaf.suffix.split("/") for leaf in leaves]
    return _Tails([leaf.value for leaf in leaves], list(zip_longest(*levels)), range(len(leaves)), 0)


class _State(Generic[V]):
    __slots__ = ("ends", "named", "nodes", "passes", "steps", "tails")

    def __init__(self, nodes: list[TrieNode[V]], tails: list[_Tails[V]]) -> None:
        self.nodes = nodes
        self.tails = tails
        #: Values of the filters that match if the topic ends here, and of those that match if it goes on in any way.
        self.ends: list[V] = []
        self.passes: list[V] = []
        #: The levels that have a step of their own; None stands for all.
        self.named: set[str] | None = None
        #: The next state for each level; None stands for all levels that no filter names.
        self.steps: dict[str | None, _State[V]] = {}
        named: set[str] = set()
        names = 0
        for node in nodes:
            if node.value is not None:
                self.ends.append(node.value)
            if node.rest is not None:
                self.ends.append(node.rest)  # `a/#` matches `a` as well
                self.passes.append(node.rest)
            if node.children is not None:
                names += len(node.children)
                if names <= _NAMES:
                    named.update(node.children)
        for each in tails:
            passes = each.having("#")
            self.ends += each.having(None) + passes
            self.passes += passes
            named |= each.named
        if names <= _NAMES:
            self.named = named

    @property
    def size(self) -> int:
        return len(self.nodes) + sum([len(each.values) for each in self.tails]) + len(self.named or ())

    def follow(self, level: str) -> "_State[V]":
        nodes: list[TrieNode[V]] = []
        leaves: list[Leaf[V]] = []
        for node in self.nodes:
            child = node.children.get(level) if node.children is not None else None
            for branch in (child, node.plus):
                if isinstance(branch, Leaf):
                    leaves.append(branch)
                elif branch is not None:
                    nodes.append(branch)
        tails = [left for each in self.tails if (left := each.follow(level)) is not None]
        if leaves:
            tails.append(_tails_of(leaves))
        return _State(nodes, tails)


class WideMatches(Generic[V]):
    """The states of one trie."""

    __slots__ = ("_beginnings", "_nodes", "size")

    def __init__(self) -> None:
        self._beginnings: dict[tuple[TrieNode[V], ...], _State[V]] = {}
        #: The states by the nodes whose change invalidates them.
        self._nodes: set[TrieNode[V]] = set()
        #: References that the states hold.
        self.size = 0

    def match(self, nodes: list[TrieNode[V]], levels: list[str], depth: int) -> list[V]:
        """The values of all filters that match, from these nodes and the level at `depth` on."""
        beginning = tuple(nodes)
        state = self._beginnings.get(beginning)
        if state is None:
            state = _State(nodes, [])
            self._remember(state)
            self._beginnings[beginning] = state
        found: list[V] = []
        for level in levels[depth:]:
            found += state.passes
            key = level if state.named is None or level in state.named else None
            following = state.steps.get(key)
            if following is None:
                following = state.follow(level)
                self._remember(following)
                state.steps[key] = following
            state = following
            if not state.nodes and not state.tails:
                return found
        return found + state.ends

    def _remember(self, state: _State[V]) -> None:
        if self.size + state.size > _CAPACITY:
            self._clear()
        self.size += state.size + 1
        self._nodes.update(state.nodes)

    def forget(self, root: TrieNode[V], filter: str) -> None:
        """This filter is about to be changed."""
        if not self._nodes:
            return
        branch: TrieNode[V] | Leaf[V] | None = root
        for level in filter.split("/"):
            if not isinstance(branch, TrieNode):
                return
            if branch in self._nodes:
                self._clear()
                return
            branch = None if level == "#" else branch.branch(level)
        if branch in self._nodes:
            self._clear()

    def _clear(self) -> None:
        self._beginnings.clear()
        self._nodes.clear()
        self.size = 0
