"""`trunkline.router.topictree` against the definition of matching."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.topics import matches
from trunkline.router.topictree import TopicTree


@settings(max_examples=300, deadline=None)
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
        assert sorted(tree.match(filter)) == sorted(topic for topic in left if matches(filter, topic))
    for topic in left:
        tree.discard(topic)
    assert (len(tree), tree.nodes) == (0, 0)
    assert not list(tree.match("#"))
    assert not list(tree.match("$x/#"))


@settings(max_examples=100, deadline=None)
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


def test_many_levels() -> None:
    tree = TopicTree()
    one = "/".join("a" * 30_000)
    two = one + "/b"
    tree.add(one)
    tree.add(two)
    assert sorted(tree.match("a/#")) == [one, two]
    assert list(tree.match("+/" * 30_000 + "b")) == [two]
    tree.discard(one)
    assert tree.nodes == 0
    assert list(tree.match("#")) == [two]


@settings(max_examples=200, deadline=None)
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
    found: list[str] = []
    running = tree.match(filter)
    for step in range(21):
        for when, add, topic in changes:
            if when == step:
                (tree.add if add else tree.discard)(topic)
        topic_or_none = next(running, None)
        if topic_or_none is not None:
            found.append(topic_or_none)
    found += running
    # What was there all the time comes exactly once, whatever else came and went.
    assert sorted(topic for topic in found if topic not in touched) == sorted(
        topic for topic in stay - touched if matches(filter, topic)
    )
    assert all(matches(filter, topic) for topic in found)
