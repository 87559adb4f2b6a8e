"""What becomes of a stream's messages, as its configuration says it."""

from dataclasses import asdict
from typing import Any

import pytest

from trunkline.streams.config import StreamConfig
from trunkline.streams.errors import InvalidStreamConfig, InvalidTransform
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange, check_origins, shape_from_plain

CHANGE = TopicChange("a/+", "b/$1")
ORIGIN = StreamOrigin("o", 5, 7.5, "", (CHANGE, TopicChange("c", "")))


@pytest.mark.parametrize("shape", [CHANGE, Republication("a", "b", headers_only=True), ORIGIN, StreamOrigin("o")])
def test_there_and_back(shape: Any) -> None:
    assert shape_from_plain(type(shape), asdict(shape)) == shape


def test_a_configuration_with_all_of_them_there_and_back() -> None:
    for more in ({"mirror": ORIGIN}, {"filters": ("x",), "sources": (ORIGIN, StreamOrigin("p"))}):
        settings: dict[str, Any] = {"filters": (), "transform": CHANGE, "republish": Republication("a", "b"), **more}
        config = StreamConfig(name="s", **settings)
        config.check()
        assert StreamConfig.from_plain(config.to_plain()) == config


@pytest.mark.parametrize(
    ("plain", "why"),
    [
        ("x", "no object"),
        ({"stream": 5}, "stream is 5"),
        ({"stream": "o", "more": 1}, "more is not known"),
        ({"stream": "o", "changes": ["x"]}, "no object"),
        ({"stream": "o", "start_time": "now"}, "start_time is 'now'"),
    ],
)
def test_what_is_none(plain: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        shape_from_plain(StreamOrigin, plain)
    with pytest.raises(InvalidStreamConfig, match=why):
        StreamConfig.from_plain({"name": "s", "filters": [], "mirror": plain})
    assert shape_from_plain(StreamOrigin, None) is None


@pytest.mark.parametrize(
    ("mirror", "sources", "why"),
    [
        (StreamOrigin("o"), (StreamOrigin("o"),), "cannot be a mirror and have sources"),
        (StreamOrigin("s"), (), "from itself"),
        (None, (StreamOrigin("o"), StreamOrigin("o", 5)), "are the same"),
        (None, (StreamOrigin("o", filter="a", changes=(CHANGE,)),), "a filter and changes"),
        (None, (StreamOrigin("o", -1),), "negative"),
        (None, (StreamOrigin("o", changes=(TopicChange("a", "{{x()}}"),)),), "unknown function"),
    ],
)
def test_origins_that_cannot_be(mirror: StreamOrigin | None, sources: tuple[StreamOrigin, ...], why: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=why):
        check_origins("s", mirror, sources)


def test_what_only_some_streams_can_have() -> None:
    for settings, why in (
        ({"filters": ("a",), "mirror": StreamOrigin("o")}, "cannot have filters"),
        ({"mirror": StreamOrigin("o"), "first_sequence": 5}, "first_sequence"),
        ({}, "no filters"),
    ):
        with pytest.raises(InvalidStreamConfig, match=why):
            StreamConfig(**{"name": "s", "filters": (), **settings}).check()  # type: ignore[arg-type]
    for change in ({"transform": TopicChange("a", "b/+")}, {"republish": Republication("a", "b/+")}):
        with pytest.raises(InvalidTransform):
            StreamConfig(name="s", filters=("a",), **change).check()  # type: ignore[arg-type]


def test_a_mirror_can_only_be_taken_away() -> None:
    plain, mirror = (
        StreamConfig(name="s", filters=("a",)),
        StreamConfig(name="s", filters=(), mirror=StreamOrigin("o")),
    )
    mirror.check_update(plain)
    for one, two in ((plain, mirror), (mirror, StreamConfig(name="s", filters=(), mirror=StreamOrigin("p")))):
        with pytest.raises(InvalidStreamConfig, match="can only be taken away"):
            one.check_update(two)


def test_what_only_clients_of_nats_say_stays() -> None:
    known = StreamConfig(name="s", filters=("a",), transform=CHANGE, sources=(ORIGIN,))
    declared = StreamConfig(name="s", filters=("b",), max_messages=5)
    kept = declared.with_shapes_of(known)
    assert (kept.filters, kept.max_messages, kept.transform, kept.sources) == (("b",), 5, CHANGE, (ORIGIN,))


def test_origins_are_told_apart_by_what_they_choose() -> None:
    keys = {StreamOrigin("o", filter=each).key for each in ("", "a", "b")} | {ORIGIN.key}
    assert len(keys) == 4
    assert StreamOrigin("o", 5).key == StreamOrigin("o").key


def test_origins_are_told_apart_by_what_becomes_of_topics() -> None:
    sources = tuple(StreamOrigin("o", changes=(TopicChange("a", to),)) for to in ("b", "c"))
    check_origins("s", None, sources)


def test_what_topics_become() -> None:
    assert [TopicChange("a/+", to).filter for to in ("b/$1", "")] == ["b/+", ""]
