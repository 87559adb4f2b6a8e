"""Every packet of the table, there and back, in every way that bytes can arrive."""

import pytest

from tests.mqtt.cases import CASES, NAMES, SIDES, Case
from tests.mqtt.exchange import V5, all_same, decoder_for, is_first, same
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from trunkline.mqtt.reasons import Reason

each_side = pytest.mark.parametrize(("case", "server"), SIDES, ids=NAMES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_encodes_to_the_bytes(case: Case) -> None:
    assert encode(case.packet, case.version).hex(" ") == case.data.hex(" ")


@each_side
def test_decodes_from_the_bytes(case: Case, server: bool) -> None:
    decoder = decoder_for(case.version, server, is_first(case.packet))
    [packet] = decoder.feed(case.data)
    assert same(packet, case.packet)
    assert decoder.error is None
    assert decoder.buffered == 0
    assert decoder.version is case.version


@each_side
def test_decodes_what_was_encoded(case: Case, server: bool) -> None:
    decoder = decoder_for(case.version, server, is_first(case.packet))
    [packet] = decoder.feed(case.data)
    assert encode(packet, case.version) == case.data


@each_side
def test_decodes_byte_by_byte(case: Case, server: bool) -> None:
    decoder = decoder_for(case.version, server, is_first(case.packet))
    for count, byte in enumerate(case.data[:-1], 1):
        assert decoder.feed(bytes((byte,))) == []
        assert decoder.error is None
        assert decoder.buffered == count
    [packet] = decoder.feed(case.data[-1:])
    assert same(packet, case.packet)
    assert decoder.buffered == 0


@each_side
def test_decodes_when_cut_anywhere(case: Case, server: bool) -> None:
    for cut in range(1, len(case.data)):
        decoder = decoder_for(case.version, server, is_first(case.packet))
        assert decoder.feed(case.data[:cut]) == []
        assert decoder.buffered == cut
        assert all_same(decoder.feed(case.data[cut:]), [case.packet])


@each_side
def test_decodes_with_others_after_it(case: Case, server: bool) -> None:
    ping: Packet = Pingreq() if server else Pingresp()
    after = encode(ping, case.version)
    for trailing in (after, after * 2, after + after[:1]):
        whole = case.data + trailing
        pings = [ping] * (len(trailing) // 2)
        for cut in range(len(whole)):
            decoder = decoder_for(case.version, server, is_first(case.packet))
            packets = decoder.feed(whole[:cut]) + decoder.feed(whole[cut:])
            assert all_same(packets, [case.packet, *pings])
            assert decoder.buffered == len(trailing) % 2


@pytest.mark.parametrize(("case", "server"), [(case, server) for case, server in SIDES if not is_first(case.packet)])
def test_decodes_each_of_many(case: Case, server: bool) -> None:
    for count in (2, 3, 7):
        decoder = decoder_for(case.version, server)
        packets = decoder.feed(case.data * count)
        packets += decoder.feed(case.data * count + case.data[:-1])
        packets += decoder.feed(case.data[-1:])
        assert all_same(packets, [case.packet] * (2 * count + 1))
        assert decoder.buffered == 0


@pytest.mark.parametrize(("case", "server"), [(case, server) for case, server in SIDES if 0 < case.data[1] < 128])
def test_refuses_the_body_cut_short(case: Case, server: bool) -> None:
    """With a length that says so: shorter forms that are packets too decode, all others are refused."""
    body = case.data[2:]
    for length in range(len(body)):
        decoder = decoder_for(case.version, server, is_first(case.packet))
        packets = decoder.feed(bytes((case.data[0], length)) + body[:length])
        assert (len(packets) == 1) != (decoder.error is not None)
        assert not any(same(packet, case.packet) for packet in packets)


def _has_one_form(case: Case) -> bool:
    """Whether nothing can follow in it: no payload, no list of codes, no reason and properties left out."""
    if case.version is V5:
        return isinstance(case.packet, Connect | Connack | Subscribe | Unsubscribe | Pingreq | Pingresp)
    return not isinstance(case.packet, Publish | Suback)


@pytest.mark.parametrize("case", [case for case in CASES if _has_one_form(case)], ids=lambda case: case.name)
def test_refuses_the_body_made_longer(case: Case) -> None:
    decoder = decoder_for(case.version, case.server, is_first(case.packet))
    packets = decoder.feed(bytes((case.data[0], case.data[1] + 1)) + case.data[2:] + b"\0")
    assert packets == []
    assert decoder.error is not None
    assert decoder.error.reason == Reason.MALFORMED_PACKET


@pytest.mark.parametrize("case", [case for case in CASES if not is_first(case.packet)], ids=lambda case: case.name)
def test_refuses_what_is_for_the_other_side(case: Case) -> None:
    for server in {True, False} - set(case.sides()):
        decoder = decoder_for(case.version, server)
        assert decoder.feed(case.data) == []
        assert decoder.error is not None
        assert decoder.error.reason == 0x82
