"""Consumers as clients of NATS configure them, and as they read them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.broker.nats.jetstream.consumer_configs import (
    Extras,
    read_consumer_config,
    shown_consumer_config,
    stream_consumer_config,
)
from trunkline.broker.nats.jetstream.stream_configs import KEPT, MOST_LEVELS, MOST_SUBJECTS, with_kept
from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from trunkline.nats.jetstream.fields import to_json
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams import config as streams

PUSH = {"deliver_subject": "d.s"}
#: A value of each setting that is kept, and what must be said with it.
KEEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "name": ("c", {"durable": "c"}),
    "durable": ("c", {}),
    "description": ("what it is for", {}),
    "deliver_policy": (DeliverPolicy.LAST_PER_SUBJECT, {}),
    "start_sequence": (7, {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE}),
    "start_time": (1_000_000.5, {"deliver_policy": DeliverPolicy.BY_START_TIME}),
    "ack_policy": (AckPolicy.ALL, {}),
    "ack_wait": (8.0, {}),
    "max_deliver": (9, {}),
    "backoff": ((1.0, 2.0), {}),
    "filter_subject": ("a.b", {}),
    "filter_subjects": (("a.b", "c.*"), {}),
    "replay_policy": (ReplayPolicy.ORIGINAL, {}),
    "rate_limit": (10, PUSH),
    "max_waiting": (11, {}),
    "max_ack_pending": (12, {}),
    "flow_control": (True, PUSH | {"idle_heartbeat": 1.0}),
    "idle_heartbeat": (13.0, PUSH),
    "headers_only": (True, {}),
    "max_batch": (14, {}),
    "max_expires": (15.0, {}),
    "max_pull_bytes": (16, {}),
    "deliver_subject": ("d.s", {}),
    "deliver_group": ("g", PUSH),
    "inactive_threshold": (17.0, {}),
    "replicas": (1, {}),
    "memory_storage": (True, {}),
    "pause_until": (4_000_000_000.25, {}),
    "metadata": ({"a": "b"}, {}),
}
#: What is refused: its name in JSON, a value, and what the refusal says.
REFUSES: dict[str, tuple[str, Any, str]] = {
    "sample_frequency": ("sample_freq", "100%", "sampling of acknowledgements is not offered"),
    "priority_groups": ("priority_groups", ["a"], "priority groups are not offered"),
    "priority_policy": ("priority_policy", "overflow", "priority groups are not offered"),
    "unknown": ("new_of_2030", True, 'unknown field "new_of_2030"'),
}
#: What each shows although it was not said.
SHOWN_ANYWAY = {"ack_wait", "max_deliver", "max_waiting", "max_ack_pending", "inactive_threshold", "name"}


def read(**said: Any) -> ConsumerConfig:
    return read_consumer_config({"ack_policy": "explicit", **said})


def refusal(**said: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        stream_consumer_config(read(**said))
    assert refused.value.code == (500 if refused.value.err_code in (10012, 10052, 10074) else 400)
    return refused.value.err_code, refused.value.description


def test_each_setting_is_kept_or_refused() -> None:
    assert KEEPS.keys().isdisjoint(REFUSES)
    assert {each.name for each in fields(ConsumerConfig)} == KEEPS.keys() | REFUSES.keys()


@pytest.mark.parametrize("name", KEEPS)
def test_what_is_kept(name: str) -> None:
    value, others = KEEPS[name]
    asked = ConsumerConfig(**{name: value, **others})
    config = stream_consumer_config(read_consumer_config(to_json(asked)))
    config.check()
    shown = shown_consumer_config("c", config)
    assert getattr(shown, name) == value
    for other in KEEPS.keys() - others - {name} - SHOWN_ANYWAY:
        assert getattr(shown, other) == getattr(ConsumerConfig(), other), other
    # and it comes back from the store
    assert streams.ConsumerConfig.from_plain(json.loads(json.dumps(config.to_plain()))) == config
    again = stream_consumer_config(read_consumer_config(to_json(shown)))
    assert shown_consumer_config("c", again) == shown


@pytest.mark.parametrize("name", REFUSES)
def test_what_is_refused(name: str) -> None:
    said, value, text = REFUSES[name]
    assert text in refusal(**{said: value})[1]


def test_what_is_not_said() -> None:
    shown = shown_consumer_config("c", stream_consumer_config(read()))
    assert (shown.ack_wait, shown.max_deliver, shown.max_waiting, shown.max_ack_pending) == (30, -1, 512, 1000)
    assert (shown.name, shown.durable, shown.inactive_threshold) == ("", "", 5)
    durable = shown_consumer_config("c", stream_consumer_config(read(durable_name="c")))
    assert (durable.name, durable.durable, durable.inactive_threshold) == ("c", "c", 0)
    named = shown_consumer_config("c", stream_consumer_config(read(name="c", inactive_threshold=9 * 10**9)))
    assert (named.name, named.durable, named.inactive_threshold) == ("c", "", 9)
    assert stream_consumer_config(read(max_ack_pending=-1)).max_ack_pending == 0
    assert shown_consumer_config("c", stream_consumer_config(read(max_ack_pending=-1))).max_ack_pending == -1


def test_a_push_consumer_has_no_waiting_pulls() -> None:
    assert shown_consumer_config("c", stream_consumer_config(read(deliver_subject="d"))).max_waiting == 0


def test_what_is_not_acknowledged_is_not_delivered_again() -> None:
    said = {"ack_policy": "none", "max_deliver": 5, "backoff": [1], "ack_wait": 10**9}
    config = stream_consumer_config(read(**said))
    config.check()
    assert (config.max_deliver, config.backoff) == (0, ())
    shown = shown_consumer_config("c", config)
    assert (shown.max_deliver, shown.max_ack_pending, shown.ack_wait) == (5, 0, 1)
    nothing = shown_consumer_config("c", stream_consumer_config(read(ack_policy="none")))
    assert (nothing.ack_wait, nothing.max_deliver) == (0, -1)


def test_the_first_wait_of_backoff_is_the_ack_wait() -> None:
    assert shown_consumer_config("c", stream_consumer_config(read(backoff=[10**9, 2 * 10**9]))).ack_wait == 1


def test_everything_needs_no_filter() -> None:
    assert stream_consumer_config(read(filter_subject=">")).filters == ()
    assert stream_consumer_config(read(filter_subjects=[">"])).filters == ()
    assert stream_consumer_config(read(filter_subjects=["a", "b.>"])).filters == ("a", "b/+/#")
    one = shown_consumer_config("c", streams.ConsumerConfig(filters=("a",)))
    assert (one.filter_subject, one.filter_subjects) == ("a", ())
    two = shown_consumer_config("c", streams.ConsumerConfig(filters=("a/#",)))
    assert (two.filter_subject, two.filter_subjects) == ("", ("a", "a.>"))


@pytest.mark.parametrize("policy", DeliverPolicy)
def test_deliver_policies(policy: DeliverPolicy) -> None:
    more = {
        DeliverPolicy.BY_START_SEQUENCE: {"opt_start_seq": 1},
        DeliverPolicy.BY_START_TIME: {"opt_start_time": "2026-01-01T00:00:00Z"},
    }
    config = stream_consumer_config(read(deliver_policy=policy.value, **more.get(policy, {})))
    config.check()
    assert config.deliver_policy.value == policy.value.replace("subject", "topic")
    assert shown_consumer_config("c", config).deliver_policy is policy


def test_each_policy_of_streams_is_shown() -> None:
    for policy in streams.DeliverPolicy:
        assert shown_consumer_config("c", streams.ConsumerConfig(deliver_policy=policy)).deliver_policy in DeliverPolicy


@pytest.mark.parametrize(
    ("said", "number", "text"),
    [
        ({"filter_subject": "a", "filter_subjects": ["b"]}, 10136, "cannot have both"),
        ({"filter_subjects": ["a", ""]}, 10139, "cannot be empty"),
        ({"filter_subjects": ["a.*", "a.b"]}, 10138, "cannot overlap"),
        ({"filter_subjects": ["a", "b", "a"]}, 10138, "cannot overlap"),
        ({"filter_subject": "a..b"}, 10052, "invalid subject"),
        ({"filter_subject": "a b"}, 10052, "invalid subject"),
        ({"filter_subject": "$JS.API.>"}, 10052, "jetstream api"),
        ({"filter_subjects": [f"a.{number}" for number in range(MOST_SUBJECTS + 1)]}, 10012, "more than 100 filters"),
        ({"backoff": [1] * (MOST_SUBJECTS + 1)}, 10012, "waits in backoff"),
        (
            {"filter_subjects": [".".join("a" * (MOST_LEVELS // 2 + 1)), ".".join("b" * (MOST_LEVELS // 2))]},
            10012,
            "levels",
        ),
        (
            {"deliver_policy": "by_start_sequence"},
            10094,
            "deliver by start sequence, but optional start sequence is not set",
        ),
        ({"deliver_policy": "by_start_time"}, 10094, "deliver by start time, but optional start time is not set"),
        ({"opt_start_seq": 1}, 10094, "deliver all, but optional start sequence is also set"),
        ({"opt_start_time": "2026-01-01T00:00:00Z"}, 10094, "deliver all, but optional start time is also set"),
        ({"deliver_subject": "a.*"}, 10079, "wildcards"),
        ({"deliver_subject": "a.>"}, 10079, "wildcards"),
        ({"deliver_subject": "a", "max_waiting": 1}, 10080, "push mode can not set max waiting"),
        ({"deliver_subject": "a", "idle_heartbeat": 99_999_999}, 10083, ">= 100ms"),
        ({"deliver_subject": "a", "flow_control": True}, 10108, "also needs heartbeats"),
        ({"flow_control": True}, 10089, "flow control requires a push"),
        ({"idle_heartbeat": 10**9}, 10088, "heartbeat requires a push"),
        ({"rate_limit_bps": 1}, 10086, "rate limit"),
        ({"deliver_group": "g"}, 10012, "deliver group requires a push"),
        ({"max_batch": -1}, 10114, "max request batch"),
        ({"max_waiting": -1}, 10087, "max waiting needs to be positive"),
        ({"backoff": [1, 2, 3], "max_deliver": 2}, 10116, "max deliver is required"),
        ({"backoff": [1, 2], "max_deliver": 1}, 10116, "max deliver is required"),
        ({"ack_policy": "none", "max_ack_pending": 1}, 10082, "requires ack policy for max ack pending"),
        ({"num_replicas": 2}, 10074, "replicas > 1"),
        ({"ack_policy": "foo"}, 10025, "can not unmarshal"),
        ({"deliver_policy": "foo"}, 10025, "can not unmarshal"),
        ({"replay_policy": 5}, 10025, "can not unmarshal"),
        ({"description": "x" * 4097}, 10052, "too long"),
        ({"metadata": {"a": "x" * (128 * 1024)}}, 10052, "maximum size"),
        ({"metadata": {"a": 5}}, 10025, "metadata"),
        ({"metadata": ["a"]}, 10025, "metadata"),
        ({"filter_subjects": "abc"}, 10025, "filter_subjects"),
        ({"filter_subjects": [5]}, 10025, "filter_subjects"),
        ({"backoff": ["x"]}, 10025, "backoff"),
        ({"opt_start_time": "2026-01-01T00:00:00"}, 10025, "opt_start_time"),
        ({"pause_until": "9999-12-31T23:59:59-23:00"}, 10025, "pause_until"),
        ({"pause_until": 5}, 10025, "pause_until"),
    ],
)
def test_what_no_consumer_can_be(said: dict[str, Any], number: int, text: str) -> None:
    found, description = refusal(**said)
    assert found == number
    assert text in description


def test_what_just_fits() -> None:
    for said in (
        {"filter_subjects": [f"a.{number}" for number in range(MOST_SUBJECTS)]},
        {"backoff": [10**9] * MOST_SUBJECTS},
        {"backoff": [1, 2, 3], "max_deliver": 3},
        {"backoff": [1, 2, 3], "max_deliver": -1},
        {"deliver_subject": "a", "idle_heartbeat": 100_000_000},
        {"num_replicas": 1},
        {"max_batch": 0},
        {"new_of_2030": 0},
        {"deliver_subject": "a", "deliver_group": "g", "rate_limit_bps": 1},
    ):
        stream_consumer_config(read(**said)).check()


@pytest.mark.parametrize("said", [[], "x", 5, None])
def test_what_is_no_configuration(said: Any) -> None:
    with pytest.raises(ApiError) as refused:
        read_consumer_config(said)
    assert refused.value.err_code == 10025


@pytest.mark.parametrize("at", [253_402_300_799.999, 1e18])
def test_a_moment_without_end_is_shown_as_the_last_one(at: float) -> None:
    """As it may be asked for by those who have no calendar."""
    shown = to_json(shown_consumer_config("c", streams.ConsumerConfig(pause_until=at)))
    assert shown["pause_until"] == "9999-12-31T23:59:59Z"


# What is NATS's alone

KEPT_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "deliver_subject": st.text(),
        "idle_heartbeat": st.floats(0, 1e6),
        "flow_control": st.booleans(),
        "rate_limit": st.integers(0, 1 << 62),
        "max_waiting": st.integers(0, 1 << 62),
        "max_batch": st.integers(0, 1 << 62),
        "max_expires": st.floats(0, 1e6),
        "max_pull_bytes": st.integers(0, 1 << 62),
        "max_deliver": st.integers(0, 1 << 62),
        "memory_storage": st.booleans(),
        "replicas": st.integers(0, 1),
        "has_all": st.booleans(),
        "has_list": st.booleans(),
    },
)


@given(KEPT_VALUES)
def test_what_is_kept_comes_back(values: dict[str, Any]) -> None:
    kept = Extras(**values)
    assert Extras.of(with_kept({}, kept.said())) == kept
    assert {each.name for each in fields(Extras)} == {
        "has_all", "has_list",
        "deliver_subject", "idle_heartbeat", "flow_control", "rate_limit", "max_waiting", "max_batch", "max_expires",
        "max_pull_bytes", "max_deliver", "memory_storage", "replicas",
    }  # fmt: skip


def test_what_says_nothing_is_not_kept() -> None:
    assert Extras().said() == {}
    assert stream_consumer_config(read()).metadata == {}
    assert Extras(max_batch=3).said() == {"max_batch": 3}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"max_waiting": "x", "deliver_subject": 5, "flow_control": 1, "other": 1, "idle_heartbeat": 3}',
        '{"max_batch": true, "rate_limit": 1.5, "__class__": 1, "of": 1, "text": "x"}',
    ],
    ids=lambda text: text[:20],
)
def test_others_may_have_written_it(text: str) -> None:
    assert Extras.of({KEPT: text}) == Extras()
    shown = shown_consumer_config("c", streams.ConsumerConfig(name="c", metadata={KEPT: text, "a": "b"}))
    assert shown.metadata == {"a": "b"}
    assert shown.max_waiting == 512


def test_names_of_the_brokers_own_are_not_taken_from_clients() -> None:
    config = stream_consumer_config(
        read(metadata={KEPT: '{"max_batch": 7}', "_nats.level": "0", "a": "b"}, max_batch=3)
    )
    assert shown_consumer_config("c", config).max_batch == 3
    assert shown_consumer_config("c", config).metadata == {"a": "b"}


@pytest.mark.parametrize("name", [each.name for each in fields(streams.ConsumerConfig)])
def test_no_setting_of_a_consumer_is_lost_when_nats_changes_it(name: str) -> None:
    values: dict[str, Any] = {
        "name": "c",
        "description": "d",
        "deliver_policy": streams.DeliverPolicy.NEW,
        "start_sequence": 3,
        "start_time": 1000.0,
        "filters": ("a", "b/+/#"),
        "ack_policy": streams.AckPolicy.ALL,
        "ack_wait": 7.0,
        "backoff": (7.0, 8.0),
        "replay_policy": streams.ReplayPolicy.ORIGINAL,
        "pause_until": 4e9,
        "deliver_group": "g",
        "inactive_threshold": 7.0,
        "metadata": {"a": "b"},
    }
    known = streams.ConsumerConfig(name="c", durable=name != "durable")
    if name in ("start_sequence", "start_time"):
        known = replace(known, deliver_policy=streams.DeliverPolicy(f"by_{name}"))
    if name == "deliver_group":
        known = replace(known, metadata=with_kept({}, Extras(deliver_subject="d").said()))
    before = getattr(known, name)
    if name not in ("name", "durable"):
        known = replace(known, **{name: values.get(name, True if before is False else 9)})
        assert getattr(known, name) != before, f"{name}: another value is needed here"
    after = stream_consumer_config(read_consumer_config(to_json(shown_consumer_config("c", known))))
    assert replace(after, ack_wait=known.ack_wait) == replace(
        known, inactive_threshold=known.inactive_threshold or (0 if known.durable else 5)
    )
    assert after.ack_wait == (known.backoff[0] if known.backoff else known.ack_wait)
