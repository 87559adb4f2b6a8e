"""What becomes of a stream's messages, as clients of NATS configure it; what is refused stands in the stories of
`test_against_servers`."""

from __future__ import annotations

import pytest

from trunkline.broker.nats.jetstream import shape_configs
from trunkline.nats.jetstream.configs import External, Republish, StreamConfig, StreamSource, SubjectTransform
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams.shapes import Republication, StreamOrigin, TopicChange


@pytest.mark.parametrize(
    ("source", "destination", "change"),
    [
        ("s.*.>", "t.{{wildcard(1)}}.>", TopicChange("s/+/+/#", "t/{{wildcard(1)}}/#")),
        ("", "t.>", TopicChange("#", "t/#")),
        (">", "$KV.t.>", TopicChange("#", "$KV/t/#")),
        ("s./.v1//2", "t./20.$1//x", TopicChange("s//v1.2", "t/ /$1.x")),
        ("s.*", "t.{{split(1,-)}}", TopicChange("s/+", "t/{{split(1,-)}}")),
    ],
)
def test_subjects_become_topics_and_back(source: str, destination: str, change: TopicChange) -> None:
    asked = SubjectTransform(source=source, destination=destination)
    assert shape_configs.read_transform(asked) == change
    shown = shape_configs.shown_transform(change)
    assert shown == SubjectTransform(source=source or ">", destination=destination)
    again = shape_configs.read_republish(Republish(source=source, destination=destination, headers_only=True), ("x",))
    assert again == Republication(change.source, change.destination, headers_only=True)
    assert shape_configs.shown_republish(again) == Republish(
        source=source or ">", destination=destination, headers_only=True
    )


def test_what_is_said_without_a_destination_is_nothing() -> None:
    assert shape_configs.read_transform(SubjectTransform(source="a")) is None
    assert shape_configs.read_republish(Republish(source="a"), ()) is None
    assert shape_configs.shown_transform(None) is None
    assert shape_configs.shown_republish(None) is None


@pytest.mark.parametrize("destination", ["$SYS.x", "$SYS.>", ">", "t.+", "t..x", "t.{{split(1,/)}}", "t.a/b"])
def test_where_nothing_is_published(destination: str) -> None:
    with pytest.raises(ApiError) as refused:
        shape_configs.read_republish(Republish(source="s.>", destination=destination), ("s/#",))
    assert refused.value.err_code == 10052


def test_origins() -> None:
    changes = (SubjectTransform(source="a.*", destination="b.$1"), SubjectTransform(source="c"))
    asked = StreamSource(name="o", start_sequence=5, start_time=7.5, transforms=changes)
    chosen = StreamSource(name="o", filter_subject="a.>")
    found = shape_configs.read_sources(StreamConfig(name="s", sources=(asked, chosen)))
    assert found == (
        StreamOrigin("o", 5, 7.5, "", (TopicChange("a/+", "b/$1"), TopicChange("c", ""))),
        StreamOrigin("o", 0, None, "a/+/#"),
    )
    assert tuple([shape_configs.shown_origin(each) for each in found]) == (asked, chosen)
    assert shape_configs.read_mirror(StreamConfig(name="s", mirror=chosen)) == found[1]
    assert shape_configs.read_mirror(StreamConfig(name="s")) is None


def test_streams_elsewhere_are_refused() -> None:
    elsewhere = StreamSource(name="o", external=External(api="$JS.X.API"))
    with pytest.raises(ApiError, match="streams of other accounts and domains are not offered"):
        shape_configs.read_mirror(StreamConfig(name="s", mirror=elsewhere))
    with pytest.raises(ApiError, match="streams of other accounts and domains are not offered"):
        shape_configs.read_sources(StreamConfig(name="s", sources=(elsewhere,)))


def test_sources_and_transforms_are_not_without_end() -> None:
    many = tuple([StreamSource(name="o", filter_subject=f"a.{number}") for number in range(101)])
    with pytest.raises(ApiError, match="more than 100 sources"):
        shape_configs.read_sources(StreamConfig(name="s", sources=many))
    transforms = tuple([SubjectTransform(source=f"a.{number}") for number in range(101)])
    many = tuple([SubjectTransform(source=f"o.{number}", destination="t") for number in range(100)])
    sources = tuple([StreamSource(name=f"o{number}", transforms=many) for number in range(6)])
    with pytest.raises(ApiError, match="more than 500 subject transforms of all sources"):
        shape_configs.read_sources(StreamConfig(name="s", sources=sources))
    with pytest.raises(ApiError, match="more than 100 subject transforms of a mirror"):
        shape_configs.read_mirror(StreamConfig(name="s", mirror=StreamSource(name="o", transforms=transforms)))
