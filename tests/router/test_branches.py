import pytest

from trunkline.router.branches import Leaf, TrieNode


@pytest.mark.parametrize(
    ("suffix", "topic", "depth", "expected"),
    [
        (None, "a", 1, True),
        (None, "a/b", 1, False),
        ("", "a/", 1, True),
        ("", "a", 1, False),
        ("b/c", "a/b/c", 1, True),
        ("b/c", "a/b", 1, False),
        ("+/c", "a/x/c", 1, True),
        ("#", "a", 1, True),
        ("b/#", "a/b/c/d", 1, True),
        ("b/c", "a/b/c", 0, False),
    ],
)
def test_a_leaf_matches_what_follows(suffix: str | None, topic: str, depth: int, expected: bool) -> None:
    assert Leaf(suffix, 1).matches(topic.split("/"), depth) is expected


def test_branches_by_their_levels() -> None:
    node: TrieNode[int] = TrieNode()
    leaves = {level: Leaf[int](None, number) for number, level in enumerate(["a", "", "+", "$x"])}
    assert [node.branch(level) for level in leaves] == [None] * 4
    for level, leaf in leaves.items():
        node.attach(level, leaf)
    assert [node.branch(level) for level in leaves] == list(leaves.values())
    assert node.branch("b") is None
    other: Leaf[int] = Leaf(None, 9)
    node.attach("a", other)
    assert node.branch("a") is other


def test_a_node_tells_when_nothing_is_left_of_it() -> None:
    node: TrieNode[int] = TrieNode()
    for level in ("a", "b", "+"):
        node.attach(level, Leaf(None, 1))
    assert [node.detach(level) for level in ("a", "+", "b")] == [False, False, True]
    assert node.children is None


@pytest.mark.parametrize("kept", ["value", "rest"])
def test_a_node_with_a_value_is_not_empty(kept: str) -> None:
    node: TrieNode[int] = TrieNode()
    node.attach("+", Leaf(None, 1))
    setattr(node, kept, 7)
    assert not node.detach("+")
