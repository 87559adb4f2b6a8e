"""`trunkline.router.topictree` against the definition of matching."""

from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.topics import matches
from trunkline.router.topictree import PATIENCE, TopicTree


def found(tree: TopicTree, filter: str) -> list[str]:
    return sorted(topic for topic in tree.match(filter) if topic is not None)


@given(st.lists(topics, max_size=25), st.lists(filters, min_size=1, max_size=10), st.data())
def test_like_the_definition(added: list[str], asked: list[str], data: st.DataObject) -> None:
    tree = TopicTree()
    for topic in added:
        tree.add(topic)
    left = set(added)
    for topic in data.draw(st.lists(topics, max_size=10)):
        tree.discard(topic)
        left.discard(topic)
    assert len(tree) == len(left)
    for filter in asked:
        assert found(tree, filter) == sorted(topic for topic in left if matches(filter, topic))
    for topic in left:
        tree.discard(topic)
    assert (len(tree), tree.nodes) == (0, 0)
    assert not found(tree, "#")
    assert not found(tree, "$x/#")


@given(st.lists(topics, max_size=25), st.lists(topics, max_size=25))
def test_nodes_stand_only_where_topics_part(added: list[str], taken: list[str]) -> None:
    tree, fresh = TopicTree(), TopicTree()
    for topic in added:
        tree.add(topic)
    for topic in taken:
        tree.discard(topic)
    for topic in set(added) - set(taken):
        fresh.add(topic)
    # What comes and goes must not leave more than if it had never been there.
    assert tree.nodes == fresh.nodes


def test_it_looks_at_no_more_than_so_many_branches_in_vain() -> None:
    tree = TopicTree()
    for number in range(1000):
        tree.add(f"{number}/a/x")
        tree.add(f"{number}/b/y")
    running = tree.match("+/a/y")
    assert list(running) == [None] * (2001 // PATIENCE)


def test_what_no_topic_has_costs_no_look() -> None:
    tree = TopicTree()
    for number in range(1000):
        tree.add(f"{number}/a")
    assert list(tree.match("+/b")) == list(tree.match("+/+/+")) == list(tree.match("+/+/a/#")) == []
    tree.add("x/y/a")
    assert found(tree, "+/+/a/#") == ["x/y/a"]
    tree.discard("x/y/a")
    assert list(tree.match("+/+/+")) == []


def test_many_levels() -> None:
    tree = TopicTree()
    one = "/".join("a" * 30_000)
    two = one + "/b"
    tree.add(one)
    tree.add(two)
    assert found(tree, "a/#") == [one, two]
    assert found(tree, "+/" * 30_000 + "b") == [two]
    tree.discard(one)
    assert tree.nodes == 0
    assert found(tree, "#") == [two]


@given(
    st.sets(topics, min_size=1, max_size=25),
    filters,
    st.lists(st.tuples(st.integers(0, 20), st.booleans(), topics), max_size=10),
)
def test_changes_while_suspended(stay: set[str], filter: str, changes: list[tuple[int, bool, str]]) -> None:
    tree = TopicTree()
    for topic in stay:
        tree.add(topic)
    touched = {topic for _, _, topic in changes}
    got: list[str] = []
    running = tree.match(filter)
    for step in range(21):
        for when, add, topic in changes:
            if when == step:
                (tree.add if add else tree.discard)(topic)
        topic_or_none = next(running, None)
        if topic_or_none is not None:
            got.append(topic_or_none)
    got += [topic for topic in running if topic is not None]
    # What was there all the time comes exactly once, whatever else came and went.
    assert sorted(topic for topic in got if topic not in touched) == sorted(
        topic for topic in stay - touched if matches(filter, topic)
    )
    assert all(matches(filter, topic) for topic in got)
