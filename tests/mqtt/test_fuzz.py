"""Whatever comes: packets, or an error that says what to answer. And whatever is sent comes back."""

import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mqtt.cases import SIDES, publish
from tests.mqtt.exchange import CONNECT, V5, all_same, decoder_for, is_first, same, wire
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.property_codec import PROPERTIES, Kind
from trunkline.mqtt.reasons import REASONS
from trunkline.mqtt.versions import Version

FEW = settings(max_examples=50)

# What may be sent

letters = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn"))
texts = st.text(letters, max_size=70)
names = st.text(letters.filter(lambda letter: letter not in "+#"), min_size=1, max_size=30).filter(
    lambda name: not name.startswith("$share/")
)
levels = st.one_of(st.just("+"), st.text(letters.filter(lambda letter: letter not in "+#/"), max_size=5))
filters = st.builds(
    lambda parts, rest: "/".join([*parts, "#"] if rest else parts),
    st.lists(levels, min_size=1, max_size=5),
    st.booleans(),
).filter(lambda topic_filter: topic_filter != "" and not topic_filter.startswith("$share/"))
packet_ids = st.integers(1, 65_535)
payloads = st.binary(max_size=300)
VALUES: dict[Kind, Any] = {
    Kind.FLAG: st.integers(0, 1),
    Kind.TWO_BYTES: st.integers(0, 65_535),
    Kind.COUNT: st.integers(1, 65_535),
    Kind.FOUR_BYTES: st.integers(0, 2**32 - 1),
    Kind.SIZE: st.integers(1, 2**32 - 1),
    Kind.NUMBER: st.lists(st.integers(1, 268_435_455), min_size=1, max_size=1),
    Kind.STRING: texts,
    Kind.TOPIC: names,
    Kind.BINARY: payloads,
    Kind.PAIRS: st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
}


def properties(place: PacketType, from_client: bool) -> Any:
    optional = {
        row.name: VALUES[row.kind] for row in PROPERTIES if place in (row.client if from_client else row.server)
    }
    return st.fixed_dictionaries({}, optional=optional).map(
        lambda found: (
            (
                found
                if "authentication_method" in found
                else {name: value for name, value in found.items() if name != "authentication_data"}
            )
            or NO_PROPERTIES
        )
    )


def blocks(version: Version, place: PacketType, from_client: bool) -> Any:
    return properties(place, from_client) if version is V5 else st.just(NO_PROPERTIES)


def packets(version: Version, server: bool) -> Any:
    """Any packet but CONNECT that this side takes."""
    v5 = version is V5

    def reasons(kind: PacketType) -> Any:
        return st.sampled_from(sorted(REASONS[kind, server])) if v5 else st.just(0)

    found = [
        st.builds(
            lambda topic, payload, qos, retain, packet_id, dup, block: publish(
                topic,
                payload,
                qos,
                retain,
                packet_id=packet_id if qos else 0,
                dup=dup and qos > 0,
                properties=block,
            ),
            names,
            payloads,
            st.integers(0, 2),
            st.booleans(),
            packet_ids,
            st.booleans(),
            blocks(version, PacketType.PUBLISH, server),
        )
    ]
    for kind, packet in (
        (PacketType.PUBACK, Puback),
        (PacketType.PUBREC, Pubrec),
        (PacketType.PUBREL, Pubrel),
        (PacketType.PUBCOMP, Pubcomp),
    ):
        found.append(st.builds(packet, packet_ids, reasons(kind), blocks(version, kind, server)))
    if server:
        request = (
            st.builds(SubscriptionRequest, filters, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2))
            if v5
            else st.builds(SubscriptionRequest, filters, st.integers(0, 2))
        )
        requests = st.lists(request, min_size=1, max_size=4)
        found += [
            st.builds(Subscribe, packet_ids, requests, blocks(version, PacketType.SUBSCRIBE, True)),
            st.builds(
                Unsubscribe,
                packet_ids,
                st.lists(filters, min_size=1, max_size=4),
                blocks(version, PacketType.UNSUBSCRIBE, True),
            ),
        ]
    else:
        codes = st.sampled_from(sorted(REASONS[PacketType.SUBACK, False])) if v5 else st.sampled_from([0, 1, 2, 0x80])
        found += [
            st.builds(
                Suback,
                packet_ids,
                st.lists(codes, min_size=1, max_size=4),
                blocks(version, PacketType.SUBACK, False),
            ),
            st.builds(
                Unsuback,
                packet_ids,
                st.lists(reasons(PacketType.UNSUBACK), min_size=1, max_size=4) if v5 else st.just([]),
                blocks(version, PacketType.UNSUBACK, False),
            ),
            st.builds(
                lambda code, block: Connack(False, code, block),
                reasons(PacketType.CONNACK),
                blocks(version, PacketType.CONNACK, False),
            ),
        ]
    if v5:
        found.append(st.builds(Disconnect, reasons(PacketType.DISCONNECT), blocks(V5, PacketType.DISCONNECT, server)))
    return st.one_of(found)


def connects(version: Version) -> Any:
    wills = st.none() | st.builds(
        Will, names, payloads, st.integers(0, 2), st.booleans(), blocks(version, PacketType.WILL, True)
    )
    return st.builds(
        lambda client_id, clean, keep_alive, will, username, password, block: Connect(
            client_id,
            version,
            clean,
            keep_alive,
            will,
            username,
            password if username is not None or version is V5 else None,
            False,
            block,
        ),
        texts,
        st.booleans(),
        st.integers(0, 65_535),
        wills,
        st.none() | texts,
        st.none() | payloads,
        blocks(version, PacketType.CONNECT, True),
    )


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("version", Version)
@FEW
@given(data=st.data())
def test_what_is_encoded_is_decoded(version: Version, server: bool, data: st.DataObject) -> None:
    sent: list[Packet] = data.draw(st.lists(packets(version, server), min_size=1, max_size=6))
    raw = b"".join(encode(packet, version) for packet in sent) * 2
    cut = data.draw(st.integers(0, len(raw)))
    decoder = decoder_for(version, server)
    received = decoder.feed(raw[:cut]) + decoder.feed(raw[cut:])
    assert decoder.error is None
    assert all_same(received, sent * 2)


@pytest.mark.parametrize("version", Version)
@FEW
@given(data=st.data())
def test_a_connect_that_is_encoded_is_decoded(version: Version, data: st.DataObject) -> None:
    sent: Connect = data.draw(connects(version))
    raw = encode(sent, version)
    cut = data.draw(st.integers(0, len(raw)))
    decoder = Decoder()
    assert decoder.feed(raw[:cut]) + decoder.feed(raw[cut:]) == [sent]
    assert decoder.version is version


# What may come


def judged(data: bytes, decoder: Decoder) -> list[Packet]:
    found = decoder.feed(data)
    error = decoder.error
    assert error is None or (isinstance(error, ProtocolError) and error.reason >= 0x80 and str(error))
    assert error is None or decoder.buffered == 0
    assert decoder.buffered <= len(data)
    return found


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("version", Version)
@given(data=st.binary(max_size=200))
def test_any_bytes(version: Version, server: bool, data: bytes) -> None:
    judged(data, decoder_for(version, server))
    judged(data, Decoder())


@pytest.mark.parametrize("version", Version)
def test_bytes_that_look_like_packets(version: Version) -> None:
    """The right first byte and the right length, and anything between."""
    dice = random.Random(int(version))
    firsts = [*range(0x30, 0x3F), 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xE0, 0xF0, 0x20, 0x90, 0xB0]
    for _ in range(5_000):
        length = dice.choice((0, 1, 2, 3, 4, 5, 7, 11, 20))
        body = bytes(dice.choice((0, 0, 0, 1, 2, 3, 5, 0x26, 0x1F, 0x61, 0x2B, 0x80, 0xFF)) for _ in range(length))
        data = bytes((dice.choice(firsts), length)) + body
        for server in (True, False):
            judged(wire("30 03 0001 61") + data * 2 if version is not V5 else data * 2, decoder_for(version, server))


@pytest.mark.parametrize(("case", "server"), SIDES[::3])
def test_packets_that_were_tampered_with(case: Any, server: bool) -> None:
    """Each byte of each packet to some other values; and the whole is always judged as its pieces are."""
    first = is_first(case.packet)
    for index in range(len(case.data)):
        for value in {0, 1, 2, 0x26, 0x7F, 0x80, 0xFF, case.data[index] ^ 1, case.data[index] + 1 & 255}:
            data = case.data[:index] + bytes((value,)) + case.data[index + 1 :]
            whole = decoder_for(case.version, server, first)
            found = judged(data, whole)
            pieces = decoder_for(case.version, server, first)
            collected = [packet for byte in data for packet in pieces.feed(bytes((byte,)))]
            assert all_same(found, collected)
            assert (whole.error is None) == (pieces.error is None)
            if whole.error is not None and pieces.error is not None:
                assert whole.error.reason == pieces.error.reason
            for packet in found:
                again = decoder_for(case.version, server, is_first(packet))
                assert same(again.feed(encode(packet, case.version))[0], packet)


def test_the_quick_way_judges_as_the_long_way_does() -> None:
    """Where the limit is below what the quick way takes, everything goes the long way."""
    dice = random.Random(5)
    prime = {version: encode(publish("a"), version) for version in Version}
    for _ in range(5_000):
        version = dice.choice(list(Version))
        body = bytes(dice.choice((0, 0, 1, 1, 0x61, 0x61, 2, 9)) for _ in range(dice.randrange(12)))
        data = bytes((dice.choice((0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x40, 0x62)), len(body))) + body
        quick, slow = Decoder(version=version), Decoder(version=version, max_packet_size=100)
        quick.feed(prime[version])
        assert all_same(quick.feed(data * 3), slow.feed(data * 3))
        assert (quick.error is None) == (slow.error is None)
        if quick.error is not None and slow.error is not None:
            assert quick.error.reason == slow.error.reason
        assert quick.buffered == slow.buffered


def test_large_input_of_the_worst_kind_takes_bounded_time() -> None:
    """Each would take minutes if anything in it were more than linear."""
    size = 2**20
    inputs = {
        "user properties": wire(CONNECT[V5])
        + b"\x82\x83\x80\x40\x00\x01\xfc\xff\x3f"
        + b"&\0\0\0\0" * ((size - 4) // 5),
        "wildcards": wire(CONNECT[V5]) + encode(Subscribe(1, [SubscriptionRequest("+/" * 32_000 + "+x")]), V5),
        "short packets": wire(CONNECT[V5]) + wire("c000") * (size // 2),
        "not UTF-8": wire(CONNECT[V5]) + encode(publish("a" * 65_000), V5).replace(b"aa\0", b"a\xff\0") * 10,
    }
    for name, data in inputs.items():
        started = time.process_time()  # what others do on this machine does not count
        Decoder().feed(data)
        assert time.process_time() - started < 60, name
