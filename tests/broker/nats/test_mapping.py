"""Topics and subjects: what two real servers were seen to do, and that nothing is lost on the way there and back."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.nats import mapping
from trunkline.broker.nats.mapping import filter_of, pattern_of, read_subject, shared_filter, subject_of, topic_of
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import NO_LEVEL_LIMIT, matches, validate_filter
from trunkline.nats.errors import BadSubject
from trunkline.nats.protocol import subjects

LEVELS = 100
TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("mapping.json").read_text())
SEEN: list[dict[str, Any]] = TABLE["rows"]
PROBES: list[str] = TABLE["probes"]
#: What a server cannot carry, and closes the connection for, or lets into other clients' lines.
ESCAPED = {
    "a b": "a/20b",
    "a\tb": "a/09b",
    "a/ /b": "a./20.b",
    "a\x7fb": "a/7fb",
    "a\x01b": "a/01b",
}
#: What a server makes the same as another subject; and a control character, whose subject would be another one.
REFUSED = {"a\x01b", "foo/bar", "foo/", "/foo", "foo///bar", "a/b.c/d", "x/.y", "x./y"}

#: What the first of these filters, #, matches.
EVERYTHING: list[str] = next(row for row in SEEN if row["kind"] == "subscribe")["2.15.1"]["probes_matched"]
#: Filters that servers take otherwise: their patterns here, and what of the probes they match.
OWN_FILTERS: dict[str, tuple[list[str], list[str]]] = {
    "+/#": ([">"], EVERYTHING),
    # in MQTT, * and > stand for themselves
    "foo/*/bar": (["foo.*.bar"], []),
    "foo/>": (["foo.>"], []),
    "a b": (["a/20b"], []),
    "$MQTT/#": (["$MQTT", "$MQTT.>"], []),
    "$MQTT.sub.>": (["$MQTT//sub//>"], []),
}
NO_FILTERS = {"a/#/b", "a+", "foo#"}

TOPICS = st.text(st.sampled_from("ab./ \t\x01\x7f*>2f0é$\u2028"), min_size=1, max_size=12)
SUBJECTS = st.text(st.sampled_from("ab./207f*>é$"), min_size=1, max_size=12)


@pytest.mark.parametrize("row", [row for row in SEEN if row["kind"] == "publish"], ids=lambda row: ascii(row["mqtt"]))
def test_a_topic_becomes_the_subject_that_servers_make_of_it(row: dict[str, Any]) -> None:
    topic, seen = row["mqtt"], row["2.15.1"]
    if "+" in topic or "#" in topic or "\0" in topic:
        assert seen["closed"]  # no topic name in the first place
    else:
        assert subject_of(topic) == ESCAPED.get(topic, seen["nats"])
        assert topic_of(subject_of(topic).encode(), LEVELS) == topic


@pytest.mark.parametrize("row", [row for row in SEEN if row["kind"] == "deliver"], ids=lambda row: ascii(row["nats"]))
def test_a_subject_becomes_the_topic_that_servers_make_of_it_or_none(row: dict[str, Any]) -> None:
    subject, seen = row["nats"], row["2.15.1"]
    if subject in REFUSED:
        with pytest.raises(BadSubject):
            topic_of(subject.encode(), LEVELS)
    else:
        topic = topic_of(subject.encode(), LEVELS)
        assert topic == (seen["mqtt"] or seen["by_exact_filter"])
        assert subject_of(topic) == subject


@pytest.mark.parametrize("row", [row for row in SEEN if row["kind"] == "subscribe"], ids=lambda row: ascii(row["mqtt"]))
def test_a_filter_matches_the_subjects_that_it_does_on_servers(row: dict[str, Any]) -> None:
    filter, seen = row["mqtt"], row["2.15.1"]
    if filter in NO_FILTERS:
        with pytest.raises(ProtocolError):
            validate_filter(filter, LEVELS)
    else:
        validate_filter(filter, LEVELS)
        patterns, probes = OWN_FILTERS.get(filter, (seen["nats"], seen["probes_matched"]))
        assert pattern_of(filter) == patterns
        assert [probe for probe in PROBES if is_matched(probe, filter)] == probes


def is_matched(subject: str, filter: str) -> bool:
    try:
        return matches(filter, topic_of(subject.encode(), LEVELS))
    except BadSubject:
        return False


@pytest.mark.parametrize("row", [row for row in SEEN if row["kind"] == "nats-subscriber"], ids=str)
def test_a_pattern_matches_what_it_does_on_servers(row: dict[str, Any]) -> None:
    topic, received = row["mqtt"], row["2.15.1"]["received"]
    found = [subject_of(topic)] if matches(filter_of(row["nats"], LEVELS), topic) else []
    assert found == ([] if topic.startswith("$") else received)  # MQTT's wildcards do not match these


@given(TOPICS)
def test_every_topic_has_a_subject_of_its_own(topic: str) -> None:
    subject = subject_of(topic)
    assert topic_of(subject.encode(), LEVELS) == topic
    subjects.check_pattern(subject.replace(">", "x"))  # which a line can hold


@given(SUBJECTS)
def test_every_subject_that_is_taken_has_a_topic_of_its_own(subject: str) -> None:
    try:
        topic = topic_of(subject.encode(), LEVELS)
    except BadSubject:
        return
    assert subject_of(topic) == subject


def test_a_filter_matches_the_topics_of_the_subjects_that_its_pattern_matches() -> None:
    drawn = random.Random(3)
    tokens = ["a", "b", "/", "a//b", "/20", "x*y"]
    for _ in range(5000):
        subject = ".".join(drawn.choices(tokens, k=drawn.randint(1, 4)))
        pattern = ".".join(drawn.choices([*tokens, "*"], k=drawn.randint(1, 4))) + drawn.choice(["", ".>"])
        if "/" in (subject, pattern):
            continue  # the topic would be empty
        topic = topic_of(subject.encode(), LEVELS)
        assert matches(filter_of(pattern, LEVELS), topic) == subjects.matches(pattern, subject), (pattern, subject)


@pytest.mark.parametrize(
    ("pattern", "filter"),
    [
        (">", "#"),
        ("*", "+"),
        ("a.>", "a/+/#"),
        ("a.*.>", "a/+/+/#"),
        ("a.*.b", "a/+/b"),
        ("/.a", "/a"),
        ("a*.b>", "a*/b>"),
        ("$SYS.>", "$SYS/+/#"),
    ],
)
def test_patterns(pattern: str, filter: str) -> None:
    assert filter_of(pattern, LEVELS) == filter


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a.>.b",
        ">.a",
        "a/b",
        "a/",
        "a+b",
        "+",
        "a.#",
        "#",
        "/00",
        "$share.g.a",
        "$stream.s.a",
    ],
)
def test_patterns_without_a_filter(pattern: str) -> None:
    with pytest.raises(BadSubject):
        filter_of(pattern, LEVELS)


@pytest.mark.parametrize(
    "subject",
    [b"", b".", b"a.", b"a..b", b"a/b", b"a+", b"#", b"/00", b"a\xff", b"a\x0cb", b"$share.g.a", b"$stream.s"],
)
def test_subjects_without_a_topic(subject: bytes) -> None:
    with pytest.raises(BadSubject):
        topic_of(subject + b".x" if subject.startswith(b"$") else subject, LEVELS)


def test_limits_of_levels_hold() -> None:
    assert topic_of(b"a.b.c", 3) == "a/b/c"
    for subject in (b"a.b.c.d", b"a" + b".a" * 300):
        with pytest.raises(BadSubject):
            topic_of(subject, 3)
    with pytest.raises(BadSubject):
        filter_of("a.b.c.*", 3)


def test_long_names_are_mapped_as_well() -> None:
    topic = "a.b/" * 200 + "c"
    assert topic_of(subject_of(topic).encode(), 300) == topic


def test_groups() -> None:
    assert shared_filter("q.1", "a/+") == "$share/q.1/a/+"
    for queue in ("", "a/b", "a+", "#"):
        with pytest.raises(BadSubject):
            shared_filter(queue, "a")


def test_what_a_line_says() -> None:
    assert read_subject("é.a".encode()) == "é.a"
    assert read_subject(b"") == ""
    for data in (b"\xff", b"a\x01"):
        with pytest.raises(BadSubject):
            read_subject(data)


def test_subjects_of_replies_are_not_remembered() -> None:
    before = mapping._known_topic.cache_info().currsize
    assert mapping.topic_of_reply(b"_INBOX.of.one", NO_LEVEL_LIMIT) == "_INBOX/of/one"
    assert mapping._known_topic.cache_info().currsize == before
