from typing import Any

import pytest

from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.buckets import KeyValueConfig, ObjectStoreConfig, check_bucket
from trunkline.nats.jetstream.configs import (
    Compression,
    Discard,
    External,
    Placement,
    Republish,
    Storage,
    StreamSource,
    SubjectTransform,
)
from trunkline.nats.jetstream.fields import to_json


@pytest.mark.parametrize("name", ["settings", "A-b_9"])
def test_a_name(name: str) -> None:
    check_bucket(name)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a/b", "ä", "a\n"])
def test_no_name(name: str) -> None:
    with pytest.raises(BadSubject, match="the name of a bucket has"):
        KeyValueConfig(bucket=name).stream()
    with pytest.raises(BadSubject, match="the name of a bucket has"):
        ObjectStoreConfig(bucket=name).stream()


def test_the_stream_of_keys_and_values() -> None:
    """ADR-8, Buckets."""
    assert to_json(KeyValueConfig(bucket="CONFIGURATION", history=5, is_compressed=True).stream()) == {
        "name": "KV_CONFIGURATION",
        "subjects": ["$KV.CONFIGURATION.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs_per_subject": 5,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "storage": "file",
        "discard": "new",
        "num_replicas": 1,
        "duplicate_window": 120_000_000_000,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "compression": "s2",
    }


@pytest.mark.parametrize(("ttl", "window"), [(0.0, 120.0), (30.0, 30.0), (120.0, 120.0), (3600.0, 120.0)])
def test_the_duplicate_window_is_not_longer_than_a_value_lives(ttl: float, window: float) -> None:
    stream = KeyValueConfig(bucket="b", ttl=ttl).stream()
    assert (stream.max_age, stream.duplicate_window) == (ttl, window)


def test_marks_of_what_has_expired() -> None:
    """ADR-48, Configuration."""
    stream = KeyValueConfig(bucket="b", limit_marker_ttl=60.0).stream()
    assert (stream.allow_message_ttl, stream.delete_marker_ttl) == (True, 60.0)
    assert KeyValueConfig(bucket="b").stream().allow_message_ttl is False


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"history": 0}, "the history of a key is 1 to 64 values, not 0"),
        ({"history": 65}, "not 65"),
        ({"limit_marker_ttl": 0.5}, "limit_marker_ttl is 1 s or more, not 0.5"),
    ],
)
def test_what_is_not_possible(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KeyValueConfig(bucket="b", **config).stream()


def test_a_mirror() -> None:
    origin = StreamSource(name="origin", external=External(api="$JS.hub.API"))
    stream = KeyValueConfig(bucket="b", mirror=origin).stream()
    assert stream.subjects == ()
    assert stream.mirror is not None
    assert (stream.mirror.name, stream.mirror.external, stream.mirror_direct) == ("KV_origin", origin.external, True)
    assert KeyValueConfig(bucket="b", mirror=StreamSource(name="KV_origin")).stream().mirror == StreamSource(
        name="KV_origin"
    )


def test_sources() -> None:
    own = (SubjectTransform(source="$KV.c.new.>", destination="$KV.b.>"),)
    config = KeyValueConfig(
        bucket="b", sources=(StreamSource(name="a"), StreamSource(name="KV_c", transforms=own), StreamSource(name="b"))
    )
    assert config.stream().sources == (
        StreamSource(name="KV_a", transforms=(SubjectTransform(source="$KV.a.>", destination="$KV.b.>"),)),
        StreamSource(name="KV_c", transforms=own),
        StreamSource(name="KV_b"),  # of another account or domain, with the same name
    )
    assert config.stream().subjects == ("$KV.b.>",)


def test_keys_and_values_there_and_back() -> None:
    config = KeyValueConfig(
        bucket="b",
        description="lamps",
        history=7,
        ttl=60.0,
        limit_marker_ttl=5.0,
        max_value_size=100,
        max_bytes=10_000,
        storage=Storage.MEMORY,
        replicas=3,
        is_compressed=True,
        placement=Placement(cluster="c"),
        republish=Republish(source=">", destination="told.>"),
        metadata={"owner": "infra"},
    )
    assert KeyValueConfig.of(config.stream()) == config


def test_the_stream_of_objects() -> None:
    """ADR-20, Example Stream Config."""
    config = ObjectStoreConfig(
        bucket="MY-STORE",
        description="films",
        ttl=60.0,
        max_bytes=10_000,
        storage=Storage.MEMORY,
        replicas=3,
        is_compressed=True,
        placement=Placement(tags=("t",)),
        metadata={"owner": "infra"},
    )
    stream = config.stream()
    assert stream.name == "OBJ_MY-STORE"
    assert stream.subjects == ("$O.MY-STORE.C.>", "$O.MY-STORE.M.>")
    assert (stream.allow_rollup, stream.allow_direct, stream.discard) == (True, True, Discard.NEW)
    assert (stream.compression, stream.max_messages_per_subject) == (Compression.S2, -1)
    assert ObjectStoreConfig.of(stream) == config
