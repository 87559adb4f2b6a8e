"""What publishers say of the lives of their messages: as servers of NATS read it."""

from contextlib import suppress
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.properties import Properties
from trunkline.streams.config import StreamConfig
from trunkline.streams.errors import InvalidLife, LifeForbidden
from trunkline.streams.lives import check_ttl, life, lives_forever, read_ttl, write_ttl

STREAM = StreamConfig(name="s", filters=("#",), allow_message_ttl=True, allow_rollup=True)
#: Go's longest duration.
LONGEST = 2**63 / 1e9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5),
        ("1", 1),
        ("5s", 5),
        ("1.5s", 1.5),
        ("+5s", 5),
        ("1m30s", 90),
        ("1h", 3600),
        (".5m", 30),
        ("1000ms", 1),
        ("3600000000us", 3600),
        ("1000000µs", 1),
        ("1000000μs", 1),
        ("2.s", 2),
        ("never", inf),
        ("NEVER", inf),
        ("9223372037", LONGEST),
        ("99999999999999999999", LONGEST),
    ],
)
def test_lives(text: str, seconds: float) -> None:
    assert read_ttl(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0s",
        "-1",
        "-5s",
        "-0s",
        "+5",
        "1.5",
        "500ms",
        "999ms",
        "x",
        "1d",
        "5 s",
        "1e3s",
        "9999999999h",
        "٥",
        "s",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InvalidLife):
        read_ttl(text)


@given(st.text(max_size=12))
def test_anything_else_is_refused(text: str) -> None:
    with suppress(InvalidLife):
        assert read_ttl(text) >= 1


@given(st.integers(1, 10**9))
def test_what_is_written_is_read(seconds: int) -> None:
    assert read_ttl(write_ttl(seconds + 0.5)) == seconds


def test_an_empty_one_is_none_and_what_is_none_is_said_before_what_is_forbidden() -> None:
    forbidding = StreamConfig(name="s", filters=("#",))
    check_ttl(forbidding, "")
    check_ttl(STREAM, "5")
    with pytest.raises(InvalidLife):
        check_ttl(forbidding, "x")
    with pytest.raises(LifeForbidden):
        check_ttl(forbidding, "never")


def said(ttl: str, expiry: int | None = None) -> Properties:
    properties: Properties = {"user_property": [("a", "b"), ("Nats-TTL", ttl)]}
    if expiry is not None:
        properties["message_expiry_interval"] = expiry
    return properties


def test_how_long_a_message_lives() -> None:
    assert life(STREAM, {}) == inf
    assert life(STREAM, said("")) == inf
    assert life(STREAM, said("never")) == inf
    assert life(STREAM, said("5")) == 5
    assert life(STREAM, said("5", 3)) == 3
    assert life(STREAM, said("never", 3)) == 3
    assert life(STREAM, {"message_expiry_interval": 0}) == 0
    assert life(STREAM, said("x")) == inf, "as another stream has taken it"
    assert life(STREAM, said("0", 3)) == 3


@pytest.mark.parametrize(("history", "seconds"), [(0, 60), (1, 5), (2, 60)])
def test_where_markers_live_longer(history: int, seconds: float) -> None:
    config = StreamConfig(
        name="s",
        filters=("#",),
        allow_message_ttl=True,
        allow_rollup=True,
        delete_marker_ttl=60.0,
        max_messages_per_topic=history,
    )
    assert life(config, said("5")) == seconds
    assert life(config, said("", 5)) == 5


def test_what_lives_forever() -> None:
    assert lives_forever(said("Never"))
    assert not lives_forever(said("5"))
    assert not lives_forever({"user_property": [("a", "never")]})
    assert not lives_forever({})
