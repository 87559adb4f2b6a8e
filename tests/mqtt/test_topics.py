import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import matches, parse_shared, validate_filter, validate_name


@pytest.mark.parametrize("topic", ["a", "/", "//", "a/b/c", " ", "$SYS", "$share", "a/$share/b", "A b", "ä"])
def test_names(topic: str) -> None:
    validate_name(topic)


@pytest.mark.parametrize("topic", ["", "+", "#", "a/+", "a/#", "a+b", "#/a"])
def test_refuses_what_is_no_name(topic: str) -> None:
    """[MQTT-3.3.2-2] [MQTT-4.7.1-1] [MQTT-4.7.3-1]"""
    with pytest.raises(MalformedPacket):
        validate_name(topic)


@pytest.mark.parametrize("topic", ["$share/", "$share/g/t"])
def test_refuses_names_of_groups(topic: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        validate_name(topic)
    assert caught.value.reason == Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("judge", [validate_name, validate_filter])
def test_a_long_text_is_not_quoted_whole(judge: Callable[[str], None]) -> None:
    with pytest.raises(ProtocolError) as caught:
        judge("+" * 65_535)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "topic_filter",
    ["a", "#", "+", "/", "a/#", "/#", "+/#", "+/+", "a/+/b", "+/a/#", "//+", "$SYS/#", "$share", "$share/g/a"]
    + ["$share/g/#", "$share/g/+/b", "$share/g//", "$share/g/$SYS/#", "$share/ä b/x"],
)
def test_filters(topic_filter: str) -> None:
    validate_filter(topic_filter)


@pytest.mark.parametrize(
    "topic_filter",
    [
        "#/",
        "a#",
        "#a",
        "a/#/b",
        "##",
        "a/b#",
        "+a",
        "a+",
        "a/+b",
        "a/b+/c",
        "++",
        "+#",
        "a/++/b",
        "$share/",
        "$share//a",
    ]
    + ["$share/g", "$share/g/", "$share/+/a", "$share/#/a", "$share/a+/a", "$share/g/#/a", "$share/g/a+"],
)
def test_refuses_filters(topic_filter: str) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2]"""
    with pytest.raises(MalformedPacket):
        validate_filter(topic_filter)


def test_refuses_an_empty_filter_as_malformed() -> None:
    with pytest.raises(ProtocolError) as caught:
        validate_filter("")
    assert caught.value.reason == Reason.MALFORMED_PACKET


def test_levels_are_limited() -> None:
    validate_name("a/b", 2)
    validate_filter("a/#", 2)
    validate_filter("$share/g/a/b", 2)
    for refuse, topic in ((validate_name, "a/b/"), (validate_filter, "a/+/#"), (validate_filter, "$share/g/a/b/c")):
        with pytest.raises(ProtocolError, match="2 levels"):
            refuse(topic, 2)


@pytest.mark.parametrize(
    ("topic_filter", "shared"),
    [
        ("a", None),
        ("$share", None),
        ("$SYS/#", None),
        ("$share/g/a", ("g", "a")),
        ("$share/g//", ("g", "/")),
        ("$share/g/a/#", ("g", "a/#")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
    ],
)
def test_parses_shared_ones(topic_filter: str, shared: tuple[str, str] | None) -> None:
    assert parse_shared(topic_filter) == shared


@pytest.mark.parametrize(
    ("topic_filter", "takes", "leaves"),
    [
        ("a", ["a"], ["A", "a/", "/a", "b", "a/b"]),
        ("a/b", ["a/b"], ["a", "a/b/", "a/b/c"]),
        ("#", ["a", "a/b", "/", "//", "/a"], ["$SYS", "$SYS/x", "$"]),
        ("+", ["a", " "], ["a/b", "/", "/a", "$SYS"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c", "a//"], ["ab", "b", "/a"]),
        ("a/+", ["a/b", "a/"], ["a", "a/b/c", "b/a"]),
        ("+/+", ["/a", "a/", "/", "a/b"], ["a", "//", "$SYS/a"]),
        ("/+", ["/a", "/"], ["a", "/a/b"]),
        ("+/a/#", ["b/a", "b/a/c", "/a"], ["a", "b", "b/b/a", "$SYS/a"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/d", "a/b/c/d"]),
        ("$SYS/#", ["$SYS", "$SYS/", "$SYS/a"], ["SYS/a", "$SYSa"]),
        ("$SYS/+", ["$SYS/a"], ["$SYS", "$SYS/a/b"]),
        ("a/#", ["a/$x", "a/$x/b"], []),
        ("/#", ["/", "/a", "//", ""], ["a", "a/"]),
    ],
)
def test_matches(topic_filter: str, takes: list[str], leaves: list[str]) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.2-1] [MQTT-4.7.3-4]"""
    assert [topic for topic in takes if not matches(topic_filter, topic)] == []
    assert [topic for topic in leaves if matches(topic_filter, topic)] == []


levels = st.sampled_from(["", "a", "b", "$x", "ab"])


def expression(topic_filter: str) -> str:
    """The filter as a regular expression, written from the words of section 4.7."""
    guard = r"(?!\$)" if topic_filter[0] in "+#" else ""
    if topic_filter == "#":
        return guard + ".*"
    tail = ""
    if topic_filter.endswith("/#"):
        topic_filter, tail = topic_filter[:-2], "(/.*)?"
    return guard + "/".join("[^/]*" if level == "+" else re.escape(level) for level in topic_filter.split("/")) + tail


@given(
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=4),
    st.booleans(),
    st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool),
)
def test_matches_as_the_words_say(wanted: list[str], rest: bool, topic: str) -> None:
    topic_filter = "/".join([*wanted, "#"] if rest else wanted)
    if topic_filter:
        validate_filter(topic_filter)
        assert matches(topic_filter, topic) == bool(re.fullmatch(expression(topic_filter), topic))
