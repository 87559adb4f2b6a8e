"""Streams as clients of NATS configure them, and as they read them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.nats.jetstream.stream_configs import (
    KEPT,
    MOST_LEVELS,
    MOST_SUBJECTS,
    check_size,
    declared_filters,
    filters_of,
    kept_in,
    read_stream_config,
    shown_stream_config,
    subjects_of,
)
from trunkline.nats.jetstream.configs import (
    Compression,
    Discard,
    PersistMode,
    Republish,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from trunkline.nats.jetstream.fields import to_json
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams import config as streams

#: A value of each setting that is kept, and what must be said with it.
KEEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "name": ("other", {}),
    "subjects": (("a.b", "c.*", "d.>"), {}),
    "description": ("what it is for", {}),
    "retention": (Retention.WORK_QUEUE, {}),
    "discard": (Discard.NEW, {}),
    "storage": (Storage.MEMORY, {}),
    "max_consumers": (5, {}),
    "max_messages": (6, {}),
    "max_bytes": (7, {}),
    "max_age": (200.0, {}),
    "max_messages_per_subject": (8, {}),
    "max_message_size": (9, {}),
    "discard_new_per_subject": (True, {"discard": Discard.NEW, "max_messages_per_subject": 1}),
    "duplicate_window": (10.0, {}),
    "no_ack": (True, {}),
    "first_sequence": (11, {}),
    "sealed": (True, {"discard": Discard.NEW}),
    "deny_delete": (True, {}),
    "deny_purge": (True, {}),
    "allow_rollup": (True, {}),
    "allow_message_ttl": (True, {}),
    "delete_marker_ttl": (2.0, {"allow_message_ttl": True, "allow_rollup": True}),
    "allow_direct": (True, {}),
    "allow_atomic": (True, {}),
    "persist_mode": (PersistMode.ASYNC, {}),
    "compression": (Compression.S2, {}),
    "mirror": (StreamSource(name="t", filter_subject="a.>"), {"duplicate_window": 9.0}),
    "mirror_direct": (True, {"mirror": StreamSource(name="t")}),
    "sources": ((StreamSource(name="t"), StreamSource(name="u", start_sequence=5)), {}),
    "transform": (SubjectTransform(source="a.*", destination="b.$1"), {}),
    "republish": (Republish(source=">", destination="b.>", headers_only=True), {}),
    "metadata": ({"a": "b"}, {}),
}
#: What is refused, by what the refusal says.
REFUSES: dict[str, tuple[Any, str]] = {
    "replicas": (3, "replicas > 1 not supported"),
    "allow_batched": (True, "fast batches are not offered"),
    "allow_counter": (True, "message counters are not offered"),
    "allow_schedules": (True, "message schedules are not offered"),
    "placement": ({"cluster": "c"}, "placement is not offered"),
    "consumer_limits": ({"max_ack_pending": 1}, "limits of all consumers are not offered"),
    "unknown": (1, 'unknown field "unknown"'),
}
#: The names of these in JSON.
JSON_NAMES = {
    "replicas": "num_replicas",
    "allow_counter": "allow_msg_counter",
    "allow_schedules": "allow_msg_schedules",
}


def read(**said: Any) -> streams.StreamConfig:
    return read_stream_config({"name": "s", **said}, "s")


def refusal(**said: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        read(**said)
    return refused.value


def test_what_only_a_mirror_has() -> None:
    assert "no mirror" in refusal(mirror_direct=True).description


def test_each_setting_is_kept_or_refused() -> None:
    assert KEEPS.keys().isdisjoint(REFUSES)
    assert {each.name for each in fields(StreamConfig)} == KEEPS.keys() | REFUSES.keys()


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_kept(name: str) -> None:
    value, others = KEEPS[name]
    asked = StreamConfig(**{"name": "s", name: value, **others})
    config = read_stream_config(to_json(asked), asked.name)
    config.check()
    shown = shown_stream_config(config)
    assert getattr(shown, name) == value
    for other in KEEPS.keys() - others - {name, "name", "subjects", "duplicate_window", "discard"}:
        assert getattr(shown, other) == getattr(StreamConfig(name="s"), other), other
    assert read_stream_config(to_json(shown), asked.name) == config
    # and it comes back from the store
    assert shown_stream_config(streams.StreamConfig.from_plain(json.loads(json.dumps(config.to_plain())))) == shown


@pytest.mark.parametrize("name", REFUSES)
def test_what_is_refused(name: str) -> None:
    value, text = REFUSES[name]
    assert text in refusal(**{JSON_NAMES.get(name, name): value}).description


@pytest.mark.parametrize("name", [each.name for each in fields(StreamConfig)])
def test_a_setting_of_another_kind(name: str) -> None:
    """A text stands for no number, and a number for no text."""
    known = next(each for each in fields(StreamConfig) if each.name == name)
    found = to_json(StreamConfig(**{"name": "s", name: KEEPS[name][0]})) if name in KEEPS else {}
    said = next((key for key in found if key not in to_json(StreamConfig(name="s"))), JSON_NAMES.get(name, name))
    bad: Any = 5 if "str" in str(known.type) and "Mapping" not in str(known.type) else [{"a": []}]
    with pytest.raises(ApiError) as refused:
        read_stream_config({"name": "s", said: bad}, "s")
    assert refused.value.err_code in (10025, 10052, 10056)


@pytest.mark.parametrize("said", [[], "x", 5, None])
def test_what_is_no_configuration(said: Any) -> None:
    with pytest.raises(ApiError) as refused:
        read_stream_config(said, "s")
    assert refused.value.err_code == 10025


def test_the_name_is_that_of_the_subject() -> None:
    with pytest.raises(ApiError) as refused:
        read_stream_config({"name": "t"}, "s")
    assert refused.value.err_code == 10056


def test_what_is_not_said() -> None:
    config = read()
    assert config.filters == ("s",)
    assert config.duplicate_window == 120
    assert config.metadata == {}
    assert (config.max_messages, config.max_bytes, config.max_consumers, config.first_sequence) == (0, 0, 0, 1)
    assert read(max_age=10**9).duplicate_window == 1
    assert read(max_age=200 * 10**9).duplicate_window == 120
    assert read(max_msgs=-1, max_bytes=-7, max_msg_size=0, max_msgs_per_subject=-1, max_consumers=-2) == config
    assert read(num_replicas=0) == read(num_replicas=1) == read(num_replicas=-1) == config


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"max_age": 99_999_999}, "max age needs to be >= 100ms"),
        ({"max_age": 10**9, "duplicate_window": 2 * 10**9}, "duplicates window can not be larger then max age"),
        ({"discard_new_per_subject": True}, "requires discard new policy"),
        ({"discard_new_per_subject": True, "discard": "new"}, "requires max msgs per subject > 0"),
        ({"subjects": [">"]}, "requires no-ack"),
        ({"subjects": ["$JS.API.>"]}, "overlap with jetstream api"),
        ({"allow_rollup_hdrs": True, "deny_purge": True}, "require the purge permission"),
        ({"description": "x" * 4097}, "description is too long"),
        ({"description": "ä" * 2049}, "description is too long"),
        ({"metadata": {"a": "x" * (128 * 1024)}}, "exceeds maximum size"),
        ({"subjects": [f"a.{number}" for number in range(MOST_SUBJECTS + 1)]}, "more than 100 subjects"),
        ({"subjects": ["a", "a"]}, "duplicate subjects"),
        ({"compression": "zz"}, "can not unmarshal"),
        ({"retention": "foo"}, "can not unmarshal"),
        ({"discard": "foo"}, "can not unmarshal"),
        ({"storage": "foo"}, "can not unmarshal"),
        ({"consumer_limits": {"inactive_threshold": 1}}, "limits of all consumers"),
        ({"new_of_2030": True}, 'unknown field "new_of_2030"'),
        ({"subjects": [], "mirror": {"name": "a", "domain": "hub"}}, 'unknown field "domain"'),
        ({"sources": [{"name": "a"}, {"name": "b", "consumer": {"name": "c"}}]}, 'unknown field "consumer"'),
        ({"republish": {"src": "a", "dest": "b", "new_of_2030": 1}}, 'unknown field "new_of_2030"'),
    ],
)
def test_what_no_stream_can_be(said: dict[str, Any], text: str) -> None:
    assert text in refusal(**said).description


def test_what_just_fits() -> None:
    read(max_age=100_000_000)
    read(max_age=10**9, duplicate_window=10**9)
    read(subjects=[f"a.{number}" for number in range(MOST_SUBJECTS)])
    read(subjects=[">"], no_ack=True)
    read(description="x" * 4096)
    read(metadata={"a": "x" * (128 * 1024 - 1)})
    read(new_of_2030=False, another=None, sources=[{"name": "a", "domain": "", "consumer": None}])
    read_stream_config({"name": "n" * 255}, "n" * 255)
    with pytest.raises(ApiError, match="too long"):
        read_stream_config({"name": "n" * 256}, "n" * 256)
    with pytest.raises(ApiError) as refused:
        read(num_replicas=2)
    assert refused.value.err_code == 10074


def test_the_size_of_metadata_is_that_of_names_and_texts() -> None:
    check_size("", {"k" * 65536: "v" * 65536})
    with pytest.raises(ApiError):
        check_size("", {"k" * 65536: "v" * 65537})
    with pytest.raises(ApiError):
        check_size("", {"ä" * 65536: "v"})


# What is NATS's alone


def test_what_is_kept_in_the_metadata_is_not_shown_and_cannot_be_said() -> None:
    config = read(storage="memory", allow_direct=True, metadata={"a": "b", KEPT: "{}", "_nats.ver": "1", "x_nats": "y"})
    assert json.loads(config.metadata[KEPT]) == {"storage": "memory", "allow_direct": True}
    assert shown_stream_config(config).metadata == {"a": "b", "x_nats": "y"}
    assert KEPT not in read().metadata
    assert not shown_stream_config(read(metadata={KEPT: '{"allow_direct": true}'})).allow_direct


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        "[" * 100_000,
        '{"storage": 5, "allow_direct": "yes"}',
        '{"allow_direct": 1}',
        "\ud800",
    ],
    ids=lambda text: ascii(text[:10]),
)
def test_others_may_have_written_it(text: str) -> None:
    config = streams.StreamConfig(name="s", filters=("s",), metadata={KEPT: text})
    assert isinstance(kept_in(config.metadata), dict)
    shown = shown_stream_config(config)
    assert (shown.storage, shown.allow_direct, shown.metadata) == (Storage.FILE, False, {})


# Filters


@pytest.mark.parametrize(
    ("subject", "filter"),
    [("a", "a"), ("a.*", "a/+"), ("a.>", "a/+/#"), (">", "#"), ("a//b", "a.b"), ("a/20b", "a b"), ("/.a", "/a")],
)
def test_subjects_are_filters(subject: str, filter: str) -> None:
    assert filters_of((subject,)) == (filter,)
    assert subjects_of((filter,)) == (subject,)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "a..b",
        ".a",
        "a.",
        "a.>.b",
        "a b",
        "a\tb",
        "a\0",
        "a\x7f",
        "a/b",
        "a+b",
        "a#",
        "$share.g.a",
        "$stream.s",
    ],
)
def test_what_is_no_subject(subject: str) -> None:
    with pytest.raises(ApiError, match="invalid subject"):
        filters_of((subject,))


@pytest.mark.parametrize("subject", ["$JS", "$JS.API.X", "$JS.>", "$JS.*"])
def test_jetstreams_own_subjects_are_kept_by_no_stream(subject: str) -> None:
    with pytest.raises(ApiError, match="overlap with jetstream api"):
        filters_of((subject,))


def test_other_subjects_with_a_dollar_are_kept() -> None:
    assert filters_of(("$KV.b.>", "$JSON")) == ("$KV/b/+/#", "$JSON")


@given(
    st.lists(
        st.sampled_from(["a", "a/b", "a/+", "a/#", "b/+/#", "+/c", "#", "x.y/z z", "/", "$KV/#"]),
        min_size=1,
        unique=True,
    )
)
def test_filters_of_mqtt_are_read_as_they_were_shown(declared: list[str]) -> None:
    """A client that changes something else says the subjects that it was shown."""
    known = streams.StreamConfig(name="s", filters=tuple(declared), no_ack=True)
    shown = to_json(shown_stream_config(known))
    if len(set(shown["subjects"])) == len(shown["subjects"]):
        read_back = read_stream_config(shown | {"description": "new"}, "s", known)
        assert read_back == replace(known, description="new")


def test_filters_stay_whatever_the_order_in_which_they_are_said() -> None:
    known = ("x/#", "y")
    assert declared_filters(filters_of(("y", "x.>", "x")), known) == known
    assert declared_filters(filters_of(("x.>", "y")), known) == ("x/+/#", "y")
    assert declared_filters(filters_of(("x", "x.>", "y", "z")), known) == ("x", "x/+/#", "y", "z")


def test_a_stream_of_everything_may_be_changed_by_clients_that_did_not_make_it() -> None:
    known = streams.StreamConfig(name="s", filters=("#",))
    assert read_stream_config({"name": "s", "subjects": [">"], "description": "x"}, "s", known).filters == ("#",)
    with pytest.raises(ApiError, match="requires no-ack"):
        read_stream_config({"name": "s", "subjects": [">"]}, "s", replace(known, filters=("a",)))


def test_the_first_sequence_need_not_be_said_again() -> None:
    known = read(first_seq=7)
    assert read_stream_config({"name": "s"}, "s", known).first_sequence == 7
    assert read_stream_config({"name": "s", "first_seq": 8}, "s", known).first_sequence == 8


def test_a_window_of_duplicates_that_is_shut_stays_so() -> None:
    known = replace(read(), duplicate_window=0)
    assert read_stream_config({"name": "s"}, "s", known).duplicate_window == 0
    assert read_stream_config({"name": "s", "duplicate_window": 10**9}, "s", known).duplicate_window == 1
    assert read_stream_config({"name": "s"}, "s", read(duplicate_window=10**9)).duplicate_window == 120


# As it is shown


def test_a_stream_that_others_made() -> None:
    config = streams.StreamConfig(
        name="s", filters=("s/#", "t/+"), max_messages_per_topic=3, max_age=5, duplicate_window=0
    )
    shown = to_json(shown_stream_config(config))
    assert shown["subjects"] == ["s", "s.>", "t.*"]
    assert (shown["max_msgs_per_subject"], shown["max_age"], shown["max_msgs"]) == (3, 5 * 10**9, -1)
    assert (shown["storage"], shown["retention"], shown["num_replicas"]) == ("file", "limits", 1)
    assert "first_seq" not in shown
    assert "duplicate_window" not in shown


def test_what_markers_need_is_allowed_whatever_is_asked_for() -> None:
    shown = shown_stream_config(read(subject_delete_marker_ttl=10**9, deny_purge=True))
    assert (shown.allow_message_ttl, shown.allow_rollup, shown.deny_purge) == (True, True, False)


@pytest.mark.parametrize("nanoseconds", [10**9 - 1, 1, -1])
def test_markers_that_live_too_short(nanoseconds: int) -> None:
    with pytest.raises(ApiError, match="subject delete marker TTL must"):
        read(subject_delete_marker_ttl=nanoseconds)


def test_a_sealed_stream_takes_nothing_new() -> None:
    assert shown_stream_config(read(sealed=True)).discard is Discard.NEW


#: Filters, of which a pattern of NATS may be none or another one.
FILTERS: Final = ("s", "a/+", "x/#", "foo/*", "+/#", "x/+/#", "a//b", "d.e/f")


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("name", ["transform", "republish", "mirror", "sources", "changes", "changes of a mirror"])
def test_what_a_stream_takes_and_gives_stays_when_nats_changes_something_else(name: str, filter: str) -> None:
    known = streams.StreamConfig(name="s", filters=("t",))
    destination = "kept/*/#" if filter.endswith("#") else "kept/*/u"
    change = streams.TopicChange(filter, destination)
    origins = (
        streams.StreamOrigin("o", filter="other"),
        streams.StreamOrigin("o", 5, 7.5, filter),
        streams.StreamOrigin("p", filter=filter),
    )
    other = () if filter == "+/#" else (streams.TopicChange("other", ""),)
    changed = streams.StreamOrigin("o", changes=(change, *other))
    match name:
        case "transform":
            known = replace(known, transform=change)
        case "republish":
            known = replace(known, republish=streams.Republication(filter, destination))
        case "mirror":
            known = replace(known, filters=(), mirror=origins[1])
        case "sources":
            known = replace(known, sources=origins)
        case "changes":
            known = replace(known, sources=(streams.StreamOrigin("q"), changed))
        case _:
            known = replace(known, filters=(), mirror=changed)
    shown = to_json(shown_stream_config(known)) | {"description": "new"}
    assert read_stream_config(shown, "s", known) == replace(known, description="new")


def test_sources_that_are_shown_alike_are_told_apart_by_their_order() -> None:
    sources = tuple([streams.StreamOrigin("o", filter=filter) for filter in ("x/#", "x/+/#")])
    known = streams.StreamConfig(name="s", filters=("t",), sources=sources)
    assert read_stream_config(to_json(shown_stream_config(known)), "s", known) == known
    shown = to_json(shown_stream_config(replace(known, sources=sources[:1])))
    assert read_stream_config(shown, "s", known).sources == sources[:1]
    assert read_stream_config(shown, "s").sources == sources[1:], "that is what it says"


def test_sources_that_are_shown_alike_are_told_apart_by_what_else_they_have() -> None:
    change = streams.TopicChange("q/#", "r/#")
    sources = (
        streams.StreamOrigin("o", 1, filter="x/#"),
        streams.StreamOrigin("o", 9, filter="x/+/#"),
        streams.StreamOrigin("p", changes=(streams.TopicChange("x/#", "y/#"),)),
        streams.StreamOrigin("p", changes=(streams.TopicChange("x/+/#", "y/#"), change)),
    )
    known = streams.StreamConfig(name="s", filters=("t",), sources=sources)
    for chosen in (sources, sources[::-1], sources[1:], sources[::2], sources[1::2]):
        shown = to_json(shown_stream_config(replace(known, sources=chosen)))
        assert read_stream_config(shown, "s", known).sources == chosen


def test_what_changes_of_a_source_leaves_what_it_takes() -> None:
    changes = (streams.TopicChange("x/#", "y/#"), streams.TopicChange("z", ""))
    sources = (streams.StreamOrigin("o", 1, filter="x/#"), streams.StreamOrigin("p", changes=changes))
    known = streams.StreamConfig(name="s", filters=("t",), sources=sources)
    shown = to_json(shown_stream_config(known))
    shown["sources"][0]["opt_start_seq"] = 7
    del shown["sources"][1]["subject_transforms"][1]
    assert read_stream_config(shown, "s", known).sources == (
        streams.StreamOrigin("o", 7, filter="x/#"),
        streams.StreamOrigin("p", changes=changes[:1]),
    )


@pytest.mark.parametrize("place", ["subjects", "sources", "transforms", "mirror", "subject_transform", "republish"])
def test_levels_are_bounded_together(place: str) -> None:
    """Filters are compared level by level, each with each."""
    half = ".".join(["a"] * (MOST_LEVELS // 2))

    def asked(rest: int) -> dict[str, Any]:
        more = ".".join(["b"] * rest)
        match place:
            case "subjects":
                return {"subjects": [half, more]}
            case "sources":
                return {"subjects": ["s"], "sources": [{"name": "o", "filter_subject": each} for each in (half, more)]}
            case "transforms":
                return {"sources": [{"name": "o", "subject_transforms": [{"src": half, "dest": more}]}]}
            case "mirror":
                return {"mirror": {"name": "o", "subject_transforms": [{"src": half, "dest": more}]}}
            case _:
                return {"subjects": ["s"], place: {"src": half, "dest": more}}

    with pytest.raises(ApiError, match="levels of all subjects"):
        read_stream_config({"name": "s", **asked(MOST_LEVELS // 2 + 1)}, "s")
    if place in ("subjects", "sources"):
        read_stream_config({"name": "s", **asked(MOST_LEVELS // 2 - 1)}, "s")


@pytest.mark.parametrize("name", [each.name for each in fields(streams.StreamConfig)])
def test_no_setting_of_a_stream_is_lost_when_nats_changes_it(name: str) -> None:
    values: dict[str, Any] = {
        "filters": ("x/#", "y/+"),
        "retention": streams.Retention.INTEREST,
        "discard": streams.Discard.NEW,
        "metadata": {"a": "b"},
        "description": "d",
        "max_age": 500.0,
        "duplicate_window": 7.0,
        "measure": streams.Measure.NATS_MEMORY,
        "transform": streams.TopicChange("s", "t/u"),
        "republish": streams.Republication("s", "t/u"),
        "mirror": streams.StreamOrigin("o"),
        "sources": (streams.StreamOrigin("o", 5, 7.5), streams.StreamOrigin("p", filter="a/+")),
    }
    known = streams.StreamConfig(name="s", filters=("s",))
    if name == "discard_new_per_topic":
        known = replace(known, discard=streams.Discard.NEW, max_messages_per_topic=3)
    if name == "delete_marker_ttl":
        known = replace(known, allow_message_ttl=True, allow_rollup=True)
    if name != "name":
        before = getattr(known, name)
        known = replace(known, **{name: values.get(name, True if before is False else 9)})
        assert getattr(known, name) != before, f"{name}: another value is needed here"
    if name == "mirror":
        known = replace(known, filters=())
    shown = to_json(shown_stream_config(known))
    after = read_stream_config(shown, "s", known)
    if name == "sealed":  # which is shown as it is for clients
        known = replace(known, discard=streams.Discard.NEW)
    assert after == known
