"""Publications as bytes: they come back as they were, single or many."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance import raw
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.stored import StoredPublication
from trunkline.mqtt.stored_codec import count_in, publication_from_bytes, publication_to_bytes
from trunkline.mqtt.versions import Version

EPOCH = 1_700_000_000.0
#: A later process, whose clock began 100 seconds after.
LATER = EPOCH + 100


def plain(message: Any) -> tuple[object, ...]:
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        dict(message.properties),
        message.publisher,
        message.username,
        message.guid,
        message.timestamp,
    )


@given(
    topic=st.text("ab/é", min_size=1, max_size=9),
    payload=st.binary(max_size=30),
    qos=st.integers(0, 2),
    username=st.none() | st.just("u"),
    expires=st.sampled_from([inf, 7.0]),
)
def test_a_message(topic: str, payload: bytes, qos: int, username: str | None, expires: float) -> None:
    properties: Any = {"content_type": "t", "user_property": (("a", "b"), ("a", "c")), "correlation_data": b"\0"}
    message = Message(topic, payload, qos, True, properties, "client", username, 1 << 100, 1.5, expires)
    data = publication_to_bytes(message, EPOCH)
    back = publication_from_bytes(data, LATER)
    assert plain(back) == plain(message)
    assert count_in(data) == 1
    assert back.expires_at == (inf if expires == inf else expires - 100)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("payloads", [[b"aa", b"bb", b"cc"], [b"a", b"bbb", b""]], ids=["one length", "others"])
@pytest.mark.parametrize("topics", [["t"], ["t", "u", "v"]], ids=["one topic", "topics"])
def test_a_batch(version: Version, qos: int, payloads: list[bytes], topics: list[str]) -> None:
    each = topics * 3 if len(topics) == 1 else topics
    packets = [
        raw.publish(topic, payload, qos=qos, packet_id=9, version=version)
        for topic, payload in zip(each, payloads, strict=True)
    ]
    starts = [sum(map(len, packets[:number])) for number in range(3)]
    places = range(0, sum(map(len, packets)), len(packets[0])) if len(set(map(len, packets))) == 1 else starts
    batch = PublishBatch(topics, 0x30 | qos << 1, version, b"".join(packets), places, [9, 9, 9])
    batch.publisher, batch.guid, batch.timestamp, batch.expires_at = "client", 77, 2.5, 50.0
    data = publication_to_bytes(batch, EPOCH)
    assert count_in(data) == 3
    back = publication_from_bytes(data, LATER)
    assert list(map(plain, back.messages)) == list(map(plain, batch.messages))
    assert back.expires_at == -50.0
    ids = range(5, 8)
    assert back.numbered(version, qos, False, ids) == batch.numbered(version, qos, False, ids)
    assert plain(back.part(1, 2)) == plain(batch.part(1, 2))


def test_what_is_taken_from_a_publication_knows_where_that_is_stored() -> None:
    packets = [raw.publish("t", b"%d" % number, qos=1, packet_id=1, version=4) for number in range(4)]
    batch = PublishBatch(
        ["t"], 0x32, Version.V311, b"".join(packets), range(0, 4 * len(packets[0]), len(packets[0])), [1] * 4
    )
    batch.guid = 10
    early = batch.messages
    batch.stored = stored = StoredPublication(1, batch.guid, batch)
    parts = [*early, batch.part(1, 3), batch.part(0, 1), batch.select([0, 2]), *batch.part(2, 4).messages]
    assert all(part.stored is stored for part in parts)
    assert [message.guid - stored.first_guid for message in batch.messages] == [0, 1, 2, 3]
    large = Message("t", b"x" * 2000)
    large.stored = stored
    assert large.without_large_payload().stored is stored
