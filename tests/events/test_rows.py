"""What hooks observed, as columns: compared with rows written out by hand, and publications with their single
messages."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.events.privacy import Privacy
from trunkline.events.rows import Converter
from trunkline.events.schema import STORED
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

KINDS = ["message.publish", "message.delivered", "client.connected"]
CLIENT = ClientInfo("cid", "ann", ("10.0.0.1", 4711), "plant", Version.V311)
NOW = 1_700_000_000.25
#: A sequence number that runs over its two bytes within a batch, and one that does not.
GUIDS = st.sampled_from([(123 << 64) | 0xFFF0, (456 << 64) | 7])


def message(**changed: Any) -> Message:
    made = Message("a/b", b"pay", 1, publisher="pub", guid=(1 << 64) | 5, timestamp=NOW - 0.5)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def converter(privacy: Privacy | None = None, *, max_payload: int = 100, weight: int = 1) -> Converter:
    return Converter(KINDS, STORED, privacy or Privacy(), max_payload, weight)


def filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def test_a_row_of_a_message_and_one_of_a_client() -> None:
    observed = [
        (1, NOW, CLIENT, message(properties={"user_property": [("k", "1"), ("k", "2")]}), None),
        (2, NOW + 1, CLIENT, None, {"keep_alive": 60, "flags": 4}),
        (0, NOW + 2, None, None, {"topic": "by name", "reason": "why"}),
    ]
    one, two, three = map(filled, converter(weight=10).convert(observed).to_pylist())
    client = {
        "client_id": "cid",
        "username": "ann",
        "peer": "10.0.0.1",
        "peer_port": 4711,
        "listener": "plant",
        "protocol": 4,
    }
    assert one == {
        **client,
        "time": datetime.fromtimestamp(NOW, UTC),
        "kind": "message.delivered",
        "weight": 10,
        "topic": "a/b",
        "qos": 1,
        "flags": 0,
        "size": 3,
        "guid": ((1 << 64) | 5).to_bytes(16, "big"),
        "packet_id": 0,
        "publisher": "pub",
        "latency_us": 500_000,
        "payload": b"pay",
        "user_properties": [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}],
    }
    assert two == {
        **client,
        "time": datetime.fromtimestamp(NOW + 1, UTC),
        "kind": "client.connected",
        "weight": 1,
        "keep_alive": 60,
        "flags": 4,
    }
    assert three == {
        "time": datetime.fromtimestamp(NOW + 2, UTC),
        "kind": "message.publish",
        "weight": 1,
        "topic": "by name",
        "reason": "why",
    }


def test_what_is_given_by_name_goes_before_what_the_message_says() -> None:
    observed = [(0, NOW, CLIENT, message(), {"client_id": "other", "receivers": 3}), (0, NOW, CLIENT, message(), None)]
    rows = converter().convert(observed).to_pylist()
    assert [(row["client_id"], row["receivers"]) for row in rows] == [("other", 3), ("cid", None)]


def test_flags_of_messages() -> None:
    again = Publish("t", b"", 1, packet_id=9)
    again.dup = again.retain = True
    rows = converter().convert([(0, NOW, None, again, None), (0, NOW, None, message(retain=True), None)]).to_pylist()
    assert [(row["flags"], row["packet_id"]) for row in rows] == [(3, 9), (1, 0)]


def test_a_long_payload_is_left_out_and_its_size_is_not() -> None:
    rows = converter(max_payload=3).convert(
        [(0, NOW, None, message(payload=b"1234"), None), (0, NOW, None, message(payload=b"123"), None)]
    )
    assert [(row["payload"], row["size"]) for row in rows.to_pylist()] == [(None, 4), (b"123", 3)]


def test_a_clock_that_went_back_makes_no_negative_latency() -> None:
    assert converter().convert([(0, NOW - 1, None, message(), None)]).to_pylist()[0]["latency_us"] == 0


def test_columns_that_are_not_wanted_are_not_made() -> None:
    schema = pa.schema([field for field in STORED if field.name not in ("payload", "user_properties")])
    batch = Converter(KINDS, schema, Privacy(), 0, 1).convert([(0, NOW, CLIENT, message(), None)])
    assert batch.schema == schema


def test_nothing_makes_an_empty_batch() -> None:
    assert converter().convert([]).num_rows == 0


def batch(topics: list[str], sizes: list[int], qos: int, version: Version, guid: int) -> PublishBatch:
    decoder = Decoder(version=version, gathers=True)
    for topic in {*topics}:  # a topic that was never seen is not gathered
        decoder.feed(encode(Publish(topic, b""), version))
    packets: list[bytes] = []
    for number, (topic, size) in enumerate(zip(topics, sizes, strict=True), 1):
        packet = Publish(topic, b"x" * size, qos)
        packet.packet_id = number if qos else 0
        packets.append(encode(packet, version))
    (made,) = decoder.feed(b"".join(packets))
    assert isinstance(made, PublishBatch)
    made.guids = range(guid, guid + len(topics))
    made.publisher, made.timestamp = "pub", NOW - 0.25
    return made


@given(
    st.integers(2, 100),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([Version.V311, Version.V5]),
    st.booleans(),
    st.booleans(),
    GUIDS,
    st.sampled_from([None, {"receivers": 2, "client_id": "pub"}]),
)
def test_a_batch_makes_the_rows_of_its_messages(
    count: int, qos: int, version: Version, one_topic: bool, one_size: bool, guid: int, more: dict[str, Any] | None
) -> None:
    topics = ["a/b"] * count if one_topic else [f"a/{number % 7}" for number in range(count)]
    sizes = [10] * count if one_size else [number % 5 for number in range(count)]
    together = batch(topics, sizes, qos, version, guid)
    apart = [(1, NOW, CLIENT, each, more) for each in batch(topics, sizes, qos, version, guid).messages]
    before, after = (2, NOW - 1, CLIENT, None, {"keep_alive": 1}), (0, NOW + 1, None, message(), None)
    assert (
        converter().convert([before, (1, NOW, CLIENT, together, more), after]).to_pylist()
        == converter().convert([before, *apart, after]).to_pylist()
    )


HIDING = Privacy(hash=["client_id", "publisher", "topic"], leave_out=["peer"], key=b"secret")


def test_what_is_hidden_is_hidden_in_every_way_to_a_row() -> None:
    long = batch(["a/b"] * 50, [3] * 50, 1, Version.V5, 5)
    observed = [
        (0, NOW, CLIENT, message(publisher="cid"), None),
        (1, NOW, CLIENT, long, {"client_id": "cid"}),
        (2, NOW, None, None, {"client_id": "cid", "topic": "a/b"}),
    ]
    rows = converter(HIDING).convert(observed).to_pylist()
    text = repr(rows)
    assert "'cid'" not in text
    assert "a/b" not in text
    assert "10.0.0.1" not in text
    assert {row["peer"] for row in rows} == {None}
    assert len({row["client_id"] for row in rows}) == len({row["topic"] for row in rows}) == 1
    assert rows[0]["publisher"] == rows[0]["client_id"], "they can still be brought together"


def test_what_is_no_text_is_an_error() -> None:
    with pytest.raises((pa.ArrowException, TypeError)):
        converter().convert([(0, NOW, CLIENT, message(topic=5), None)])
