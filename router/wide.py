"""Topics that match the beginnings of very many filters.

`a` and `+` in turn at each of thirteen levels make 8,192 filters, all of which match one topic, and each further topic
would be carried through all of them again. So a large set of nodes becomes a state of an automaton: the levels that
lead on from it, and the next state for each of them, are computed once. All levels that no filter of the set names lead
to the same next state, so that varying the topic does not help. A state is dropped when one of its nodes changes.
"""

from typing import Final, Generic, TypeAlias, TypeVar

from trunkline.router.branches import Leaf, TrieNode

V = TypeVar("V")

#: The rest of a filter that has no nodes of its own any more: its value, its levels, and how many of them have matched.
_Tail: TypeAlias = tuple[V, list[str], int]

#: References that all states may hold together.
_CAPACITY: Final = 1_000_000
#: A state whose filters name more levels than this does not tell them from others.
_NAMES: Final = 65_536


class _State(Generic[V]):
    __slots__ = ("ends", "named", "nodes", "passes", "steps", "tails")

    def __init__(self, nodes: list[TrieNode[V]], tails: list[_Tail[V]]) -> None:
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
        for value, levels, met in tails:
            if met == len(levels):
                self.ends.append(value)
            elif levels[met] == "#":
                self.ends.append(value)
                self.passes.append(value)
            elif levels[met] != "+":
                named.add(levels[met])
        if names <= _NAMES:
            self.named = named

    @property
    def size(self) -> int:
        return len(self.nodes) + len(self.tails) + len(self.named or ())

    def follow(self, level: str) -> "_State[V]":
        nodes: list[TrieNode[V]] = []
        tails: list[_Tail[V]] = []
        for node in self.nodes:
            child = node.children.get(level) if node.children is not None else None
            for branch in (child, node.plus):
                if isinstance(branch, Leaf):
                    tails.append((branch.value, [] if branch.suffix is None else branch.suffix.split("/"), 0))
                elif branch is not None:
                    nodes.append(branch)
        for value, levels, met in self.tails:
            if met < len(levels) and levels[met] in (level, "+"):
                tails.append((value, levels, met + 1))
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
