from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.property_codec import (
    PROPERTIES,
    Kind,
    decode_properties,
    encode_properties,
    encode_variable_integer,
    property_bytes,
)
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

EXAMPLES: dict[Kind, Any] = {
    Kind.FLAG: 1,
    Kind.TWO_BYTES: 0x1234,
    Kind.COUNT: 0x1234,
    Kind.FOUR_BYTES: 0x12345678,
    Kind.SIZE: 0x12345678,
    Kind.NUMBER: [300],
    Kind.STRING: "ä",
    Kind.TOPIC: "a/b",
    Kind.BINARY: b"\0\xff",
    Kind.PAIRS: [("a", "b")],
}
WRITTEN = {
    Kind.FLAG: "01",
    Kind.TWO_BYTES: "1234",
    Kind.COUNT: "1234",
    Kind.FOUR_BYTES: "12345678",
    Kind.SIZE: "12345678",
    Kind.NUMBER: "ac02",
    Kind.STRING: "0002c3a4",
    Kind.TOPIC: "0003612f62",
    Kind.BINARY: "000200ff",
    Kind.PAIRS: "0001610001 62",
}

#: The last column of table 2-4 in its own words: identifier, and the packets, `c:` or `s:` where only one side may.
ALLOWED = """
01 PUBLISH WILL
02 PUBLISH WILL
03 PUBLISH WILL
08 PUBLISH WILL
09 PUBLISH WILL
0b s:PUBLISH SUBSCRIBE
11 CONNECT CONNACK c:DISCONNECT
12 CONNACK
13 CONNACK
15 CONNECT CONNACK AUTH
16 CONNECT CONNACK AUTH
17 CONNECT
18 WILL
19 CONNECT
1a CONNACK
1c CONNACK s:DISCONNECT
1f CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH
21 CONNECT CONNACK
22 CONNECT CONNACK
23 PUBLISH
24 CONNACK
25 CONNACK
26 CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT AUTH
27 CONNECT CONNACK
28 CONNACK
29 CONNACK
2a CONNACK
"""
BY_CLIENTS = {"CONNECT", "WILL", "SUBSCRIBE", "UNSUBSCRIBE"}
BY_SERVERS = {"CONNACK", "SUBACK", "UNSUBACK"}


def reader(block: str, from_client: bool = True) -> Reader:
    raw = bytes.fromhex(block)
    data = bytes((len(raw),)) + raw
    return Reader(b"before" + data + b"after", 6, 6 + len(data), Version.V5, from_client=from_client)


def expected() -> dict[tuple[int, str, bool], bool]:
    table = {}
    for line in ALLOWED.split("\n")[1:-1]:
        identifier, *places = line.split()
        for place in PacketType:
            for from_client in (True, False):
                sends = place.name not in (BY_SERVERS if from_client else BY_CLIENTS)
                side = f"{'c' if from_client else 's'}:{place.name}"
                table[int(identifier, 16), place.name, from_client] = sends and (place.name in places or side in places)
    return table


def test_every_property_in_every_packet() -> None:
    """Also [MQTT-3.3.4-6] and [MQTT-3.14.2-2]. One that has no place there is a protocol error, or malformed: see
    docs/protocol.md."""
    table = expected()
    assert {identifier for identifier, *_ in table} == {row.identifier for row in PROPERTIES}
    for row in PROPERTIES:
        block = f"{row.identifier:02x} {WRITTEN[row.kind]}"
        if row.name == "authentication_data":
            block += " 15 0000"
        for place in PacketType:
            for from_client in (True, False):
                source = reader(block, from_client)
                allowed = table[row.identifier, place.name, from_client]
                if not allowed:
                    with pytest.raises(ProtocolError, match="not allowed") as caught:
                        decode_properties(source, place)
                    malformed = place in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
                    assert caught.value.reason == (Reason.MALFORMED_PACKET if malformed else Reason.PROTOCOL_ERROR)
                    continue
                found = decode_properties(source, place)
                assert found[row.name] == EXAMPLES[row.kind]  # type: ignore[literal-required]
                assert source.position == source.end


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
def test_a_value_that_cannot_be_read_is_malformed_wherever_it_stands(row: Any) -> None:
    whole = bytes.fromhex(f"{row.identifier:02x} {WRITTEN[row.kind]}")
    for place in PacketType:
        for from_client in (True, False):
            for length in range(1, len(whole)):
                with pytest.raises(MalformedPacket, match="ends|needs"):
                    decode_properties(reader(whole[:length].hex(), from_client), place)


def test_a_value_without_a_meaning_in_the_wrong_packet_is_misplaced_first() -> None:
    with pytest.raises(MalformedPacket, match="not allowed in SUBSCRIBE"):
        decode_properties(reader("01 02"), PacketType.SUBSCRIBE)
    with pytest.raises(ProtocolError, match="not allowed in PUBACK") as caught:
        decode_properties(reader("21 0000"), PacketType.PUBACK)
    assert caught.value.reason == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row.name)
def test_each_property(row: Any) -> None:
    place, from_client = (
        next((PacketType(kind), True) for kind in row.client) if row.client else (PacketType.CONNACK, False)
    )
    one = f"{row.identifier:02x} {WRITTEN[row.kind]} "
    method = "15 0000 " if row.name == "authentication_data" else ""
    # Cut anywhere
    for length in range(1, len(bytes.fromhex(one))):
        with pytest.raises(MalformedPacket):
            decode_properties(reader(bytes.fromhex(one)[:length].hex(), from_client), place)
    # Twice
    if row.name == "user_property":
        assert decode_properties(reader(one * 2, from_client), place) == {"user_property": [("a", "b")] * 2}
    else:
        with pytest.raises(ProtocolError) as caught:
            decode_properties(reader(method + one * 2, from_client), place)
        assert caught.value.reason == Reason.PROTOCOL_ERROR
    # Written
    properties: Properties = {row.name: EXAMPLES[row.kind]}  # type: ignore[misc]
    raw = bytes.fromhex(one)
    assert property_bytes(properties) == raw
    assert encode_properties(properties) == bytes((len(raw),)) + raw
    assert property_bytes(properties, {row.name}) == b""


@pytest.mark.parametrize(
    ("identifiers", "value"),
    [
        ((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), "02"),
        ((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), "ff"),
        ((0x21, 0x23), "0000"),
        ((0x27,), "00000000"),
        ((0x0B,), "00"),
    ],
)
def test_values_without_a_meaning(identifiers: tuple[int, ...], value: str) -> None:
    for row in PROPERTIES:
        if row.identifier in identifiers:
            for from_client, places in ((True, row.client), (False, row.server)):
                for place in places:
                    with pytest.raises(ProtocolError) as caught:
                        decode_properties(reader(f"{row.identifier:02x} {value}", from_client), place)
                    assert caught.value.reason == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("identifier", sorted(set(range(256)) - {row.identifier for row in PROPERTIES}))
def test_what_is_no_property(identifier: int) -> None:
    with pytest.raises(MalformedPacket):
        decode_properties(reader(f"{identifier:02x} 00"), PacketType.PUBLISH)


def test_a_server_may_repeat_subscription_identifiers_in_publish() -> None:
    found = decode_properties(reader("0b 03 0b ffffff7f 0b 03", False), PacketType.PUBLISH)
    assert found == {"subscription_identifier": [3, 268_435_455, 3]}


def test_no_block_is_shared() -> None:
    source = reader("")
    assert decode_properties(source, PacketType.CONNECT) is NO_PROPERTIES
    with pytest.raises(TypeError):
        NO_PROPERTIES["topic_alias"] = 1


def test_a_block_ends_where_it_says() -> None:
    """The last string would fit into the packet, but not into the block."""
    source = Reader(bytes.fromhex("04 1f 0005 61 62636465"), 0, 9, Version.V5)
    with pytest.raises(MalformedPacket):
        decode_properties(source, PacketType.PUBACK)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_variable_integers(value: int, raw: str) -> None:
    """Table 1-1, and [MQTT-1.5.5-1]: there and back, and never longer than need be."""
    data = bytes.fromhex(raw)
    assert encode_variable_integer(value) == data
    assert Reader(data, 0, len(data), Version.V5).variable_integer() == value
    padded = data[:-1] + bytes((data[-1] | 0x80, 0))
    with pytest.raises(MalformedPacket):
        Reader(padded, 0, len(padded), Version.V5).variable_integer()


def test_a_variable_integer_that_is_too_large() -> None:
    with pytest.raises(ValueError, match="268435456"):
        encode_variable_integer(268_435_456)


@pytest.mark.parametrize(
    "properties",
    [{"no_such": 1}, {"topic_alias": 65_536}, {"payload_format_indicator": -1}, {"content_type": "\0"}],
)
def test_does_not_encode_what_is_none(properties: Any) -> None:
    with pytest.raises(ValueError, match=r"property|U\+0000"):
        encode_properties(properties)


@given(st.integers(0, 268_435_455))
def test_variable_integers_round_trip(value: int) -> None:
    data = encode_variable_integer(value)
    assert Reader(data, 0, len(data), Version.V5).variable_integer() == value
