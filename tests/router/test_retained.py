"""`trunkline.router.retained`."""

import sys
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.strategies import filters, topics
from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import matches
from trunkline.router import RetainedStore, RetainResult
from trunkline.router.retained import Retained


def message(topic: str, payload: bytes = b"x", expires_at: float = inf) -> Message:
    return Message(topic, payload, retain=True, expires_at=expires_at)


@pytest.fixture
def store() -> RetainedStore:
    return RetainedStore()


def topics_of(store: RetainedStore, filter: str, now: float = 0.0) -> list[str]:
    return sorted(each.topic for each in found(store, filter, now))


def found(store: RetainedStore, filter: str, now: float = 0.0) -> list[Message]:
    return [each.message for each in store.match(filter, now) if each is not None]


def test_the_last_message_of_a_topic(store: RetainedStore) -> None:
    first, second = message("a", b"12345"), message("a", b"12")
    assert store.store(first, 0.0) is RetainResult.STORED
    assert store.get("a", 0.0) is first
    assert store.byte_size == first.weight
    assert store.store(second, 0.0) is RetainResult.REPLACED
    assert found(store, "a") == [second]
    assert (len(store), store.byte_size) == (1, second.weight)


@pytest.mark.parametrize("topic", ["a", "a/b", "$SYS/x"])
def test_an_empty_payload_deletes(store: RetainedStore, topic: str) -> None:
    assert store.store(message(topic, b""), 0.0) is RetainResult.ABSENT
    store.store(message(topic), 0.0)
    assert store.store(message(topic, b""), 0.0) is RetainResult.DELETED
    assert store.get(topic, 0.0) is None
    assert (len(store), store.byte_size) == (0, 0)
    assert not found(store, "#")


def test_delete(store: RetainedStore) -> None:
    kept = message("a", b"abc", expires_at=9.0)
    store.store(kept, 0.0)
    store.store(message("a/b"), 0.0)
    assert store.delete("nothing") is None
    assert store.delete("a") is kept
    assert store.next_deadline == inf
    store.delete("a/b")
    assert (len(store), store.byte_size, topics_of(store, "#")) == (0, 0, [])


@given(
    st.lists(st.tuples(topics, st.sampled_from([b"", b"1", b"22"]), st.sampled_from([inf, 1.0, 5.0])), max_size=30),
    st.lists(filters, min_size=1, max_size=8),
    st.sampled_from([0.0, 1.0, 3.0, 6.0]),
    st.booleans(),
)
def test_like_a_dict(stored: list[tuple[str, bytes, float]], asked: list[str], now: float, swept: bool) -> None:
    store = RetainedStore()
    model: dict[str, Message] = {}
    for topic, payload, expires_at in stored:
        each = message(topic, payload, expires_at)
        store.store(each, 0.0)
        if payload:
            model[topic] = each
        else:
            model.pop(topic, None)
    if swept:
        expired = store.sweep(now, 1000)
        assert sorted(each.topic for each in expired) == sorted(t for t, m in model.items() if m.expires_at <= now)
    model = {topic: each for topic, each in model.items() if not swept or each.expires_at > now}
    assert len(store) == len(model)
    assert store.byte_size == sum(each.weight for each in model.values() if not each.topic.startswith("$SYS/"))
    assert store.next_deadline == min((each.expires_at for each in model.values()), default=inf)
    for filter in asked:
        got = found(store, filter, now)
        expected = [each for topic, each in model.items() if matches(filter, topic) and each.expires_at > now]
        assert sorted(map(id, got)) == sorted(map(id, expected))
    for topic in {each for each, _, _ in stored}:
        kept = model.get(topic)
        assert store.get(topic, now) is (kept if kept is not None and kept.expires_at > now else None)
    listed: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = store.page(now, after=after, limit=2)
        listed += [each.topic for each in page]
    assert listed == sorted(topic for topic, each in model.items() if each.expires_at > now)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "delete", "sweep", "look"]), topics, filters, st.sampled_from([inf, 3.0, 9.0])
        ),
        max_size=40,
    )
)
def test_like_a_dict_whatever_changes_in_between(events: list[tuple[str, str, str, float]]) -> None:
    store = RetainedStore()
    model: dict[str, Message] = {}
    for now, (event, topic, filter, lives) in enumerate(events):
        if event == "store":
            model[topic] = message(topic, str(now).encode(), now + lives)
            store.store(model[topic], now)
        elif event == "delete":
            assert store.delete(topic) is model.pop(topic, None)
        elif event == "sweep":
            store.sweep(now)
            model = {each: kept for each, kept in model.items() if kept.expires_at > now}
        there = {each: kept for each, kept in model.items() if kept.expires_at > now}
        expected = sorted(id(kept) for each, kept in there.items() if matches(filter, each))
        assert store.may_match(filter) or not expected
        assert sorted(map(id, found(store, filter, now))) == expected
        assert store.byte_size == sum(kept.weight for kept in model.values() if not kept.topic.startswith("$SYS/"))
        kept_now = [store.find(each, now) for each in there]
        assert sorted(there, key=lambda each: int(there[each].payload)) == [
            each.message.topic for each in sorted(filter_none(kept_now), key=lambda each: each.sequence)
        ]


def filter_none(kept: list[Retained | None]) -> list[Retained]:
    return [each for each in kept if each is not None]


def test_never_early_and_not_at_the_deadline(store: RetainedStore) -> None:
    store.store(message("a/b", expires_at=10.0), 0.0)
    assert store.deadline("a/b") == 10.0
    assert store.sweep(9.999) == []
    assert topics_of(store, "a/+", 9.999) == ["a/b"]
    for filter in ("a/b", "a/+", "#"):
        assert topics_of(store, filter, 10.0) == []
    assert [each.topic for each in store.sweep(10.0)] == ["a/b"]
    assert len(store) == 0


def test_the_interval_of_the_store_is_an_upper_bound() -> None:
    store = RetainedStore(expiry_interval=60)
    store.store(message("long"), 100.0)
    store.store(message("short", expires_at=110.0), 100.0)
    store.store(message("longer", expires_at=1000.0), 100.0)
    assert (store.deadline("long"), store.deadline("short"), store.deadline("longer")) == (160.0, 110.0, 160.0)
    # Each new message counts anew.
    store.store(message("long"), 150.0)
    assert store.deadline("long") == 210.0


def test_a_replaced_deadline_is_forgotten(store: RetainedStore) -> None:
    store.store(message("a", expires_at=5.0), 0.0)
    store.store(message("a", expires_at=50.0), 0.0)
    assert store.next_deadline == 50.0
    store.store(message("a"), 0.0)
    assert store.next_deadline == inf
    assert store.sweep(1000.0) == []
    assert len(store) == 1


def test_sweep_is_bounded(store: RetainedStore) -> None:
    for number in range(25):
        store.store(message(str(number), expires_at=float(number)), 0.0)
    swept = store.sweep(100.0, limit=10)
    assert [each.topic for each in swept] == [str(number) for number in range(10)]
    assert store.next_deadline == 10.0
    assert (len(store.sweep(100.0, limit=10)), len(store.sweep(100.0, limit=10)), len(store)) == (10, 5, 0)


def test_no_more_topics_than_allowed() -> None:
    store = RetainedStore(max_messages=2)
    assert store.store(message("a"), 0.0) is RetainResult.STORED
    assert store.store(message("b"), 0.0) is RetainResult.STORED
    assert store.store(message("c"), 0.0) is RetainResult.FULL
    assert store.store(message("a", b"new"), 0.0) is RetainResult.REPLACED
    store.store(message("b", b""), 0.0)
    assert store.store(message("c"), 0.0) is RetainResult.STORED
    assert topics_of(store, "#") == ["a", "c"]


def test_a_message_above_the_limit_takes_the_old_one_away() -> None:
    store = RetainedStore(max_message_size=4)
    assert store.store(message("a", b"123"), 0.0) is RetainResult.STORED
    assert store.store(message("a", b"1234"), 0.0) is RetainResult.TOO_LARGE
    assert store.get("a", 0.0) is None
    assert [outcome for outcome in RetainResult if outcome.refused] == [RetainResult.TOO_LARGE, RetainResult.FULL]


def test_properties_count() -> None:
    store = RetainedStore(max_message_size=1000)
    heavy = Message("a", b"x", retain=True, properties={"user_property": (("k", "v" * 1000),)})
    assert store.store(heavy, 0.0) is RetainResult.TOO_LARGE


def test_no_more_bytes_than_allowed() -> None:
    size = message("a", b"1234").weight
    store = RetainedStore(max_bytes=2 * size)
    assert store.store(message("a", b"1234"), 0.0) is RetainResult.STORED
    assert store.store(message("b", b"1234"), 0.0) is RetainResult.STORED
    assert store.store(message("c", b""), 0.0) is RetainResult.ABSENT
    assert store.store(message("c", b"1"), 0.0) is RetainResult.FULL
    assert store.store(message("a", b"1"), 0.0) is RetainResult.REPLACED
    assert store.store(message("b", b"1234567"), 0.0) is RetainResult.REPLACED
    assert store.store(message("b", b"12345678"), 0.0) is RetainResult.FULL
    assert topics_of(store, "#") == ["a"]  # nobody gets what the topic no longer says
    assert store.byte_size == message("a", b"1").weight


def test_the_brokers_own_topics_have_no_limit() -> None:
    store = RetainedStore(max_messages=1, max_bytes=message("a").weight)
    for number in range(10):
        assert store.store(message(f"$SYS/{number}"), 0.0) is RetainResult.STORED
    assert store.store(message("a"), 0.0) is RetainResult.STORED
    assert store.store(message("b"), 0.0) is RetainResult.FULL
    store.delete("$SYS/1")
    assert store.store(message("b"), 0.0) is RetainResult.FULL
    assert (len(store), store.limited, store.byte_size) == (10, 1, message("a").weight)


def test_what_is_stored_is_numbered(store: RetainedStore) -> None:
    for topic in ("a", "b", "a"):
        store.store(message(topic), 0.0)
    kept = [store.find(topic, 0.0) for topic in "ab"]
    assert [each.sequence for each in kept if each is not None] == [3, 2]


def test_changes_while_a_match_is_suspended(store: RetainedStore) -> None:
    for number in range(6):
        store.store(message(f"a/{number}"), 0.0)
    running = store.match("a/+", 0.0)
    assert next(running) is store.find("a/0", 0.0)
    newest = message("a/2", b"newest")
    store.store(newest, 0.0)
    store.delete("a/1")
    store.delete("a/3")
    store.store(message("a/3", b"again"), 0.0)
    store.store(message("a/4/below"), 0.0)
    rest = [each.message for each in running if each is not None]
    assert [each.topic for each in rest] == ["a/2", "a/3", "a/4", "a/5"]
    assert rest[0] is newest
    assert rest[1].payload == b"again"


def test_the_whole_tree_goes_while_a_match_is_suspended(store: RetainedStore) -> None:
    for number in range(50):
        store.store(message(f"{number % 5}/{number}/x"), 0.0)
    running = store.match("#", 0.0)
    next(running)
    for number in range(50):
        store.delete(f"{number % 5}/{number}/x")
    assert not any(running)


def test_a_match_costs_what_it_finds(store: RetainedStore) -> None:
    for site in range(100):
        for device in range(100):
            store.store(message(f"{site}/{device}/on"), 0.0)
    steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        one = list(store.match("7/9/#", 0.0))
        narrow, steps = steps, 0
        several = list(store.match("7/+/on", 0.0))
        wide, steps = steps, 0
        none = list(store.match("+/+/off", 0.0)) + list(store.match("+/+/on/+", 0.0)) + list(store.match("+/x/#", 0.0))
        nothing = steps
    finally:
        sys.setprofile(before)
    assert (len(one), sum(map(bool, several)), none) == (1, 100, [])
    # Calls of functions: of 10,000 topics only the ones that match cost any.
    assert narrow < 50
    assert wide < 50 * 100
    assert nothing < 100


def test_a_match_in_vain_stops_now_and_then(store: RetainedStore) -> None:
    for number in range(10_000):
        store.store(message(f"{number}/a/{number % 2}"), 0.0)
    store.store(message("x/b/2"), 0.0)
    got = list(store.match("+/b/1", 0.0))
    assert set(got) == {None}  # both levels are there, but not in one topic
    assert len(got) > 100


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("", ["$SYS/a", "a", "a/b", "a/c", "ab", "b"]),
        ("#", ["a", "a/b", "a/c", "ab", "b"]),
        ("+/a", []),
        ("a", ["a"]),
        ("a/#", ["a", "a/b", "a/c"]),
        ("a/+", ["a/b", "a/c"]),
        ("+", ["a", "ab", "b"]),
        ("$SYS/#", ["$SYS/a"]),
        ("+/b", ["a/b"]),
        ("nothing/#", []),
    ],
)
def test_pages_of_a_filter(store: RetainedStore, filter: str, expected: list[str]) -> None:
    for topic in ("a/c", "ab", "$SYS/a", "a", "b", "a/b"):
        store.store(message(topic), 0.0)
    for limit in (1, 2, 10):
        listed: list[str] = []
        after: str | None = ""
        while after is not None:
            page, after = store.page(0.0, after=after, limit=limit, filter=filter)
            assert len(page) <= limit
            listed += [each.topic for each in page]
        assert listed == expected


def test_a_page_looks_at_a_bounded_number_of_topics(store: RetainedStore) -> None:
    for number in range(1000):
        store.store(message(f"{number:03}/a"), 0.0)
    store.store(message("zzz/b"), 0.0)
    page, after = store.page(0.0, filter="+/b", scan=100)
    assert (page, after) == ([], "099/a")
    calls = 1
    while after is not None:
        page, after = store.page(0.0, after=after, filter="+/b", scan=100)
        calls += 1
    assert [each.topic for each in page] == ["zzz/b"]
    assert calls == 11


def test_pages_while_the_store_changes(store: RetainedStore) -> None:
    for number in range(20):
        store.store(message(f"{number:02}"), 0.0)
    page, after = store.page(0.0, limit=5)
    assert after == "04"
    for topic in ("03", "04", "05"):
        store.delete(topic)
    store.store(message("001"), 0.0)
    store.store(message("061"), 0.0)
    page, after = store.page(0.0, after=after, limit=5)
    assert [each.topic for each in page] == ["06", "061", "07", "08", "09"]


def test_what_was_kept_before_is_kept_again() -> None:
    store = RetainedStore(expiry_interval=100)
    assert store.restore(message("a", expires_at=200.0), 150.0, 7) is RetainResult.STORED
    assert store.restore(message("b"), inf, 3) is RetainResult.STORED
    kept = {each.message.topic: (each.sequence, each.deadline) for each in store}
    assert kept == {"a": (7, 150.0), "b": (3, inf)}, "as it was, whatever the store's own interval"
    store.store(message("c"), 0.0)
    newest = store.find("c", 0.0)
    assert newest is not None
    assert newest.sequence == 8
    store.restore(message("d"), 5.0, 1)
    assert [each.topic for each in store.sweep(6.0)] == ["d"]


def test_what_is_beyond_the_limits_is_not_kept_again() -> None:
    store = RetainedStore(max_messages=2)
    results = [store.restore(message(topic), inf, 1) for topic in "abc"]
    assert results == [RetainResult.STORED, RetainResult.STORED, RetainResult.FULL]


def test_what_bridges_say_of_themselves_is_not_the_brokers_own() -> None:
    store, changed = RetainedStore(max_messages=1), list[str]()
    store.changed = lambda topic, _: changed.append(topic)
    assert store.store(message("$SYS/broker/connection/a/state"), 0.0) is RetainResult.STORED
    assert store.store(message("$SYS/broker/connection/b/state"), 0.0) is RetainResult.FULL
    assert changed == ["$SYS/broker/connection/a/state"]


def test_changes_are_told() -> None:
    store, changed = RetainedStore(max_messages=2), list[str]()
    store.changed = lambda topic, _: changed.append(topic)
    store.store(message("a"), 0.0)
    store.store(message("$SYS/a"), 0.0)
    store.store(message("b", expires_at=1.0), 0.0)
    store.store(message("c"), 0.0)
    assert changed == ["a", "b"], "not the broker's own, and not what was refused"
    changed.clear()
    store.store(message("a", b"newer"), 0.0)
    store.store(message("c", b""), 0.0)
    store.store(message("a", b""), 0.0)
    store.sweep(2.0)
    store.delete("a")
    store.delete("$SYS/a")
    assert changed == ["a", "a", "b"]
    assert store.kept("a") is None


def test_what_has_expired_is_kept_until_it_is_swept() -> None:
    store = RetainedStore()
    store.store(message("a", expires_at=1.0), 0.0)
    assert store.find("a", 2.0) is None
    assert store.kept("a") is not None
    store.sweep(2.0)
    assert store.kept("a") is None


def test_changes_are_told_with_the_weight_of_what_is_there_now() -> None:
    store, changed = RetainedStore(), list[tuple[str, int]]()
    store.changed = lambda topic, weight: changed.append((topic, weight))
    kept = message("a", b"x" * 100)
    store.store(kept, 0.0)
    store.delete("a")
    assert changed == [("a", kept.weight), ("a", 0)]
