import pytest

from tests.mqtt.exchange import V5, V31, V311, accepted, refusal, wire
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.errors import UnsupportedVersion
from trunkline.mqtt.packets import Connack, Connect
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR

REFUSED = [
    # Bits of 3.1.1
    ("MQTT3-3.1.2-3 reserved bit", V311, "10 0d 0004 4d515454 04 03 0000 0001 63", MALFORMED),
    ("MQTT3-3.1.2-14 will of QoS 3", V311, "10 13 0004 4d515454 04 1e 0000 0001 63 0001 77 0001 70", MALFORMED),
    ("MQTT3-3.1.2-13 will QoS without a will", V311, "10 0d 0004 4d515454 04 0a 0000 0001 63", MALFORMED),
    ("MQTT3-3.1.2-15 will retain without a will", V311, "10 0d 0004 4d515454 04 22 0000 0001 63", MALFORMED),
    ("MQTT3-3.1.2-22 password alone", V311, "10 10 0004 4d515454 04 42 0000 0001 63 0001 70", MALFORMED),
    ("MQTT3-3.1.2-22 password alone", V31, "10 12 0006 4d5149736470 03 42 0000 0001 63 0001 70", MALFORMED),
    ("MQTT3-3.1.2-19 user name missing", V311, "10 0d 0004 4d515454 04 82 0000 0001 63", MALFORMED),
    ("MQTT3-3.1.2-18 user name without its flag", V311, "10 10 0004 4d515454 04 02 0000 0001 63 0001 75", MALFORMED),
    ("MQTT3-3.1.2-21 password missing", V311, "10 10 0004 4d515454 04 c2 0000 0001 63 0001 75", MALFORMED),
    ("MQTT3-3.1.2-9 will missing", V311, "10 0d 0004 4d515454 04 06 0000 0001 63", MALFORMED),
    ("no client identifier", V311, "10 0a 0004 4d515454 04 02 0000", MALFORMED),
    ("empty", V311, "10 00", MALFORMED),
    # Bits of 5.0
    ("MQTT-3.1.2-3 reserved bit", V5, "10 0e 0004 4d515454 05 03 0000 00 0001 63", MALFORMED),
    ("MQTT-3.1.2-12 will of QoS 3", V5, "10 15 0004 4d515454 05 1e 0000 00 0001 63 00 0001 77 0001 70", MALFORMED),
    ("MQTT-3.1.2-11 will QoS without a will", V5, "10 0e 0004 4d515454 05 12 0000 00 0001 63", MALFORMED),
    ("MQTT-3.1.2-13 will retain without a will", V5, "10 0e 0004 4d515454 05 22 0000 00 0001 63", MALFORMED),
    ("MQTT-3.1.2-17 user name missing", V5, "10 0e 0004 4d515454 05 82 0000 00 0001 63", MALFORMED),
    ("MQTT-3.1.2-16 user name without its flag", V5, "10 11 0004 4d515454 05 02 0000 00 0001 63 0001 75", MALFORMED),
    ("MQTT-1.5.5-1 padded length", V5, "10 8e00 0004 4d515454 05 02 0000 00 0001 63", MALFORMED),
    # Strings
    ("MQTT-3.1.3-4 client identifier", V5, "10 0e 0004 4d515454 05 02 0000 00 0001 ff", 0x85),
    ("MQTT-3.1.3-4 client identifier with NUL", V311, "10 0d 0004 4d515454 04 02 0000 0001 00", 0x85),
    ("MQTT-3.1.3-11 will topic", V311, "10 13 0004 4d515454 04 06 0000 0001 63 0001 ff 0001 70", MALFORMED),
    ("will topic with a wildcard", V5, "10 15 0004 4d515454 05 06 0000 00 0001 63 00 0001 23 0001 70", 0x81),
    ("MQTT-3.1.3-12 user name", V311, "10 10 0004 4d515454 04 82 0000 0001 63 0001 ff", MALFORMED),
    # Properties
    ("receive maximum 0", V5, "10 11 0004 4d515454 05 02 0000 03 210000 0001 63", VIOLATION),
    ("receive maximum twice", V5, "10 14 0004 4d515454 05 02 0000 06 210001 210001 0001 63", VIOLATION),
    ("maximum packet size 0", V5, "10 13 0004 4d515454 05 02 0000 05 2700000000 0001 63", VIOLATION),
    ("request problem information 2", V5, "10 10 0004 4d515454 05 02 0000 02 1702 0001 63", VIOLATION),
    ("request response information 2", V5, "10 10 0004 4d515454 05 02 0000 02 1902 0001 63", VIOLATION),
    ("authentication data alone", V5, "10 12 0004 4d515454 05 02 0000 04 16 0001 00 0001 63", VIOLATION),
    ("will delay of no will", V5, "10 13 0004 4d515454 05 02 0000 05 1800000000 0001 63", VIOLATION),
    ("no such property", V5, "10 10 0004 4d515454 05 02 0000 02 7f00 0001 63", MALFORMED),
    ("properties cut short", V5, "10 0e 0004 4d515454 05 02 0000 05 0001 63", MALFORMED),
]


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [row[1:] for row in REFUSED],
    ids=[f"{version} {name}" for name, version, *_ in REFUSED],
)
def test_refuses(version: Version, data: str, reason: int) -> None:
    decoder = Decoder()
    assert decoder.feed(wire(data)) == []
    assert decoder.error is not None
    assert decoder.error.reason == reason
    if data != "10 00":
        assert decoder.version is version  # what the refusal is to be written in


@pytest.mark.parametrize(
    ("name", "level", "version"),
    [
        (b"MQIsdp", 2, V31),
        (b"MQIsdp", 4, V31),
        (b"MQIsdp", 5, V31),
        (b"MQTT", 0, V311),
        (b"MQTT", 3, V311),
        (b"MQTT", 6, V311),
        (b"MQTT", 127, V311),
        (b"MQTT", 0x85, V311),
        (b"MQTT", 0x83, V311),
        (b"mqtt", 4, None),
        (b"MQT", 4, None),
        (b"MQTTT", 5, None),
        (b"", 5, None),
    ],
)
def test_an_unknown_protocol_says_how_it_can_be_told(name: bytes, level: int, version: Version | None) -> None:
    """[MQTT-3.1.2-1] [MQTT-3.1.2-2] [MQTT3-3.1.2-2]"""
    body = len(name).to_bytes(2, "big") + name + bytes((level, 2, 0, 0, 0, 0))
    decoder = Decoder()
    assert decoder.feed(bytes((0x10, len(body))) + body) == []
    assert isinstance(decoder.error, UnsupportedVersion)
    assert decoder.error.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION
    assert decoder.version is version


@pytest.mark.parametrize("level", [2, 3, 6, 99, 127, 0x86])
@pytest.mark.parametrize(
    ("rest", "like"),
    [("02 0000 0001 63", V311), ("c6 003c 0001 63 0001 74 0000 0001 75 0001 70", V311), ("02 0000 00 0001 63", V5)],
)
def test_a_later_level_is_answered_in_the_form_that_its_connect_has(level: int, rest: str, like: Version) -> None:
    """[MQTT-3.1.2-2] [MQTT3-3.1.2-2]"""
    body = b"\0\4MQTT" + bytes([level]) + wire(rest)
    decoder = Decoder()
    assert decoder.feed(bytes([0x10, len(body)]) + body) == []
    assert isinstance(decoder.error, UnsupportedVersion)
    assert decoder.version is (V311 if level < 5 or level & 0x80 else like)


@pytest.mark.parametrize("data", ["11 0d 0004 4d515454 04 02 0000 0001 63", "14 0c 0005 4200000000 05 0000 0001"])
def test_flags_are_refused_whatever_follows_and_however_it_is_split(data: str) -> None:
    """[MQTT-2.1.3-1] [MQTT3-2.2.2-1] 3.1 alone gives them no meaning."""
    for size in (1, 100):
        decoder = Decoder()
        for start in range(0, len(wire(data)), size):
            assert decoder.feed(wire(data)[start : start + size]) == []
        assert decoder.error is not None
        assert (decoder.error.reason, decoder.version) == (MALFORMED, None)


@pytest.mark.parametrize("first", range(0x10, 0x20))
def test_31_gives_the_flags_of_connect_no_meaning(first: int) -> None:
    packet = accepted(bytes((first,)) + wire("0f 0006 4d5149736470 03 03 0000 0001 63"), V31, first=True)
    assert packet == Connect("c", V31)


def test_31_may_leave_out_what_its_flags_announce() -> None:
    packet = accepted("10 0f 0006 4d5149736470 03 c2 0000 0001 63", V31, first=True)
    assert packet == Connect("c", V31, username=None, password=None)


@pytest.mark.parametrize(
    "data",
    ["10 0c 0004 4d515454 04 00 0000 0000", "10 0e 0006 4d5149736470 03 00 0000 0000"],
)
def test_an_empty_client_identifier_is_the_brokers_decision(data: str) -> None:
    packet = accepted(data, V311, first=True)
    assert isinstance(packet, Connect)
    assert (packet.client_id, packet.clean_start) == ("", False)


def test_control_characters_pass_when_they_may() -> None:
    decoder = Decoder(strict_utf8=False)
    [packet] = decoder.feed(wire("10 0d 0004 4d515454 04 02 0000 0001 07"))
    assert isinstance(packet, Connect)
    assert packet.client_id == "\a"


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(Connect("c", username="u", password=b"secret"))


@pytest.mark.parametrize(("code", "reason"), list(enumerate((0, 0x84, 0x85, 0x88, 0x86, 0x87))))
@pytest.mark.parametrize("version", [V31, V311])
def test_return_codes_of_3_become_reason_codes(version: Version, code: int, reason: int) -> None:
    assert accepted(bytes((0x20, 2, 0, code)), version, server=False) == Connack(False, reason)


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        pytest.param(V311, "20 02 02 00", MALFORMED, id="MQTT3-3.2.2-1 reserved flag"),
        pytest.param(V5, "20 03 80 00 00", MALFORMED, id="MQTT-3.2.2-1 reserved flag"),
        pytest.param(V311, "20 02 01 05", VIOLATION, id="MQTT3-3.2.2-4 refusal with a session"),
        pytest.param(V5, "20 03 01 87 00", VIOLATION, id="MQTT-3.2.2-6 refusal with a session"),
        pytest.param(V311, "20 02 00 06", VIOLATION, id="unknown return code"),
        pytest.param(V5, "20 03 00 01 00", VIOLATION, id="MQTT-3.2.2-8 unknown reason code"),
        pytest.param(V5, "20 02 00 00", MALFORMED, id="no properties"),
        pytest.param(V5, "20 05 00 00 02 24 02", VIOLATION, id="maximum QoS 2"),
        pytest.param(V5, "20 09 00 00 05 11 00000000 ff", MALFORMED, id="left over"),
    ],
)
def test_refuses_a_connack(version: Version, data: str, reason: int) -> None:
    assert refusal(data, version, server=False).reason == reason


def test_the_first_byte_of_a_31_connack_has_no_meaning() -> None:
    assert accepted("20 02 ff 00", V31, server=False) == Connack()
