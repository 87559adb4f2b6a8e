from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import pytest

from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig
from trunkline.nats.jetstream.fields import (
    BadReply,
    Form,
    ManySeconds,
    Moment,
    Part,
    Parts,
    Seconds,
    Texts,
    Word,
    from_json,
    to_json,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    unknown: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    name: str
    count: Annotated[int, Form("n", always=True)] = -1
    flag: bool = False
    wait: Annotated[float, Seconds("wait_ns")] = 0.0
    waits: Annotated[tuple[float, ...], ManySeconds()] = ()
    words: Annotated[tuple[str, ...], Texts()] = ()
    colour: Annotated[Colour | str, Word(kind=Colour)] = Colour.RED
    at: Annotated[float | None, Moment()] = None
    inner: Annotated[Inner | None, Part(kind=Inner)] = None
    inners: Annotated[tuple[Inner, ...], Parts(kind=Inner)] = ()
    table: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, Any] = field(default_factory=dict)


FULL = Thing(
    name="a",
    count=3,
    flag=True,
    wait=1.5,
    waits=(1.0, 0.25),
    words=("x", "y"),
    colour=Colour.BLUE,
    at=1_700_000_000.123456,
    inner=Inner(name="i"),
    inners=(Inner(name="j"), Inner(name="k")),
    table={"a": "b"},
    unknown={"new": [1]},
)
WRITTEN = {
    "name": "a",
    "n": 3,
    "flag": True,
    "wait_ns": 1_500_000_000,
    "waits": [1_000_000_000, 250_000_000],
    "words": ["x", "y"],
    "colour": "blue",
    "at": "2023-11-14T22:13:20.123456Z",
    "inner": {"name": "i"},
    "inners": [{"name": "j"}, {"name": "k"}],
    "table": {"a": "b"},
    "new": [1],
}


def test_all_forms() -> None:
    assert to_json(FULL) == WRITTEN
    assert from_json(Thing, WRITTEN) == FULL


def test_what_has_its_default_is_left_out() -> None:
    assert to_json(Thing(name="a")) == {"name": "a", "n": -1}
    assert from_json(Thing, {"name": "a"}) == Thing(name="a")
    assert from_json(Thing, {"name": "a", "words": None, "table": None, "inner": None}) == Thing(name="a")


def test_a_text_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError, match="a tuple of texts, not 'zap'"):
        to_json(Thing(name="a", words="zap"))  # type: ignore[arg-type]


def test_a_word_that_is_not_known_is_kept() -> None:
    found = from_json(Thing, {"name": "a", "colour": "green"})
    assert found.colour == "green"
    assert to_json(found)["colour"] == "green"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T22:13:20.1Z", 1_700_000_000.1),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000.123456),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000.5),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_moments(text: str, at: float | None) -> None:
    assert from_json(Thing, {"name": "a", "at": text}).at == at


@pytest.mark.parametrize(
    ("json", "why"),
    [
        ([], r"Thing: \[\] is no object"),
        ("x", "Thing: 'x' is no object"),
        ({}, "Thing has no name"),
        ({"name": None}, "Thing has no name"),
        ({"name": 7}, "Thing, name: 7"),
        ({"name": "a", "n": "7"}, "Thing, n: '7'"),
        ({"name": "a", "n": True}, "Thing, n: True"),
        ({"name": "a", "flag": 1}, "Thing, flag: 1"),
        ({"name": "a", "wait_ns": "1s"}, "Thing, wait_ns: '1s'"),
        ({"name": "a", "wait_ns": 10**400}, "Thing, wait_ns: 1"),
        ({"name": "a", "waits": 1}, "Thing, waits: 1"),
        ({"name": "a", "words": 1}, "Thing, words: 1"),
        ({"name": "a", "at": 7}, "Thing, at: 7"),
        ({"name": "a", "at": "soon"}, "Thing, at: 'soon'"),
        ({"name": "a", "at": "2023-11-14T22:13:20.xZ"}, "Thing, at: "),
        ({"name": "a", "inner": []}, "Inner: "),
        ({"name": "a", "inner": {}}, "Inner has no name"),
        ({"name": "a", "inners": {"name": "x"}}, "Inner: "),
    ],
)
def test_nonsense(json: Any, why: str) -> None:
    with pytest.raises(BadReply, match=why):
        from_json(Thing, json)


@pytest.mark.parametrize(
    "config",
    [
        StreamConfig(name="s", max_age=timedelta(days=1)),  # type: ignore[arg-type]
        StreamConfig(name="s", max_age="7d"),  # type: ignore[arg-type]
        ConsumerConfig(ack_wait=timedelta(seconds=5)),  # type: ignore[arg-type]
        ConsumerConfig(start_time=datetime(2026, 1, 1, tzinfo=UTC)),  # type: ignore[arg-type]
        ConsumerConfig(filter_subjects="x"),  # type: ignore[arg-type]
        ConsumerConfig(backoff=5),  # type: ignore[arg-type]
        ConsumerConfig(pause_until=float("nan")),
        StreamConfig(name="s", sources=("o",)),  # type: ignore[arg-type]
        StreamConfig(name="s", republish={"src": "a"}),  # type: ignore[arg-type]
    ],
    ids=lambda config: str({name: value for name, value in to_changed(config).items() if name != "name"}),
)
def test_a_field_of_another_type_is_named(config: StreamConfig | ConsumerConfig) -> None:
    [name] = to_changed(config).keys() - {"name"}
    with pytest.raises(TypeError, match=rf"^{type(config).__name__}, {name}: "):
        to_json(config)


def to_changed(config: StreamConfig | ConsumerConfig) -> dict[str, object]:
    plain = StreamConfig(name="") if isinstance(config, StreamConfig) else ConsumerConfig()
    return {
        each.name: value
        for each in fields(config)
        if (value := getattr(config, each.name)) != getattr(plain, each.name)
    }
