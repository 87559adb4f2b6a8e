import pytest

from tests.mqtt.cases import publish
from tests.mqtt.exchange import V5, V31, V311, accepted, decoder_for, refusal, same, wire
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Puback, Pubrec, Pubrel
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

MALFORMED, VIOLATION, NAME = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR, Reason.TOPIC_NAME_INVALID

REFUSED_3 = [
    ("no topic", "30 00", MALFORMED),
    ("half a length", "30 01 00", MALFORMED),
    ("topic cut", "30 04 0003 6161", MALFORMED),
    ("MQTT-2.2.1-2 no packet identifier", "32 03 0001 61", MALFORMED),
    ("half a packet identifier", "32 04 0001 61 00", MALFORMED),
    ("MQTT3-2.3.1-1 packet identifier 0", "32 05 0001 61 0000", VIOLATION),
    ("MQTT3-2.3.1-1 packet identifier 0", "34 05 0001 61 0000", VIOLATION),
    ("MQTT-3.3.2-2 wildcard", "30 04 0002 2b2f", MALFORMED),
    ("MQTT-3.3.2-2 wildcard", "30 03 0001 23", MALFORMED),
    ("wildcard within a level", "30 05 0003 612b62", MALFORMED),
    ("topic of a group", "30 0c 000a 2473686172652f672f61", NAME),
    ("empty topic", "30 02 0000", VIOLATION),
    ("MQTT-1.5.4-2 NUL", "30 04 0002 6100", MALFORMED),
    ("MQTT-1.5.4-1 surrogate", "30 05 0003 eda080", MALFORMED),
    ("control character", "30 04 0002 6107", MALFORMED),
    ("U+009F", "30 04 0002 c29f", MALFORMED),
    ("U+FFFF", "30 05 0003 efbfbf", MALFORMED),
    ("U+1FFFE", "30 06 0004 f09fbfbe", MALFORMED),
]
REFUSED_5 = [
    ("no properties", "30 03 0001 61", MALFORMED),
    ("no properties after the packet identifier", "32 05 0001 61 0001", MALFORMED),
    ("properties cut short", "30 04 0001 61 01", MALFORMED),
    ("property cut short", "30 05 0001 61 01 01", MALFORMED),
    ("MQTT-1.5.5-1 padded property length", "30 05 0001 61 8000", MALFORMED),
    ("property length of five bytes", "30 08 0001 61 8080808000", MALFORMED),
    ("packet identifier 0", "32 06 0001 61 0000 00", VIOLATION),
    ("neither topic nor alias", "30 03 0000 00", VIOLATION),
    ("MQTT-3.3.2-8 alias 0", "30 07 0001 61 03 23 0000", VIOLATION),
    ("alias twice", "30 0a 0001 61 06 23 0001 23 0001", VIOLATION),
    ("payload format 2", "30 06 0001 61 02 01 02", VIOLATION),
    ("MQTT-3.3.4-6 subscription identifier", "30 06 0001 61 02 0b 01", VIOLATION),
    ("MQTT-3.3.2-14 response topic with a wildcard", "30 08 0001 61 04 08 0001 23", VIOLATION),
    ("response topic of nothing", "30 07 0001 61 03 08 0000", VIOLATION),
    ("MQTT-3.3.2-19 content type", "30 08 0001 61 04 03 0001 ff", MALFORMED),
    ("will delay", "30 09 0001 61 05 18 00000000", VIOLATION),
    ("unknown property", "30 06 0001 61 02 7f 00", MALFORMED),
    ("topic with a wildcard, and an alias", "30 07 0001 23 03 23 0001", MALFORMED),
]


@pytest.mark.parametrize("version", [V31, V311])
@pytest.mark.parametrize(("data", "reason"), [row[1:] for row in REFUSED_3], ids=[row[0] for row in REFUSED_3])
def test_refuses(version: Version, data: str, reason: int) -> None:
    assert refusal(data, version).reason == reason


@pytest.mark.parametrize(("data", "reason"), [row[1:] for row in REFUSED_5], ids=[row[0] for row in REFUSED_5])
def test_refuses_in_5(data: str, reason: int) -> None:
    assert refusal(data, V5).reason == reason


@pytest.mark.parametrize(("data", "reason"), [row[1:] for row in REFUSED_5], ids=[row[0] for row in REFUSED_5])
def test_refuses_in_5_once_the_topic_is_known(data: str, reason: int) -> None:
    """The quick way must judge as the long one does."""
    decoder = decoder_for(V5)
    good = wire("30 04 0001 61 00")
    assert len(decoder.feed(good)) == 1
    assert len(decoder.feed(good + wire(data) + good)) == 1
    assert decoder.error is not None
    assert decoder.error.reason == reason


@pytest.mark.parametrize(("data", "reason"), [row[1:] for row in REFUSED_3], ids=[row[0] for row in REFUSED_3])
def test_refuses_in_3_once_the_topic_is_known(data: str, reason: int) -> None:
    decoder = decoder_for(V311)
    good = wire("30 03 0001 61")
    assert len(decoder.feed(good)) == 1
    assert len(decoder.feed(good + wire(data) + good)) == 1
    assert decoder.error is not None
    assert decoder.error.reason == reason


def test_a_repeated_subscription_identifier_is_of_no_value_0() -> None:
    assert refusal("30 06 0001 61 02 0b 00", V5, server=False).reason == VIOLATION


@pytest.mark.parametrize(
    "topic", ["/", "//", " ", "$SYS/x", "$share", "$sharex/y", "\ufeff", "ä", "\U0002a6d4", "\u200b", "a" * 65_535]
)
@pytest.mark.parametrize("version", Version)
def test_takes_any_other_topic(topic: str, version: Version) -> None:
    raw = topic.encode()
    body = len(raw).to_bytes(2, "big") + raw + (b"\0x" if version is V5 else b"x")
    length = len(body)
    header = bytes((length,)) if length < 128 else bytes((length & 127 | 128, length >> 7 & 127 | 128, length >> 14))
    assert same(accepted(b"\x30" + header + body, version), publish(topic, b"x"))


def test_topic_levels_are_limited() -> None:
    decoder = Decoder(version=V311, max_levels=3)
    assert len(decoder.feed(wire("30 07 0005 612f622f63"))) == 1
    assert decoder.feed(wire("30 08 0006 612f622f632f")) == []
    assert decoder.error is not None
    assert decoder.error.reason == NAME


@pytest.mark.parametrize("first", ["40", "50", "62", "70"])
@pytest.mark.parametrize(
    ("body", "version", "reason"),
    [
        pytest.param("00", V311, MALFORMED, id="empty"),
        pytest.param("01 00", V311, MALFORMED, id="half"),
        pytest.param("02 0000", V311, VIOLATION, id="MQTT3-2.3.1-1"),
        pytest.param("03 0001 00", V311, MALFORMED, id="a reason in 3.1.1"),
        pytest.param("00", V5, MALFORMED, id="empty in 5"),
        pytest.param("02 0000", V5, VIOLATION, id="MQTT-2.2.1-3"),
        pytest.param("03 0001 01", V5, VIOLATION, id="unknown reason"),
        pytest.param("05 0001 00 00 00", V5, MALFORMED, id="left over"),
        pytest.param("05 0001 00 05 1f", V5, MALFORMED, id="properties cut short"),
        pytest.param("0a 0001 00 06 1f0000 1f0000", V5, VIOLATION, id="reason string twice"),
        pytest.param("09 0001 00 05 11 00000000", V5, VIOLATION, id="no property of it"),
    ],
)
def test_refuses_an_acknowledgement(first: str, body: str, version: Version, reason: int) -> None:
    for server in (True, False):
        assert refusal(f"{first} {body}", version, server).reason == reason


@pytest.mark.parametrize(
    ("data", "packet"),
    [
        ("40 03 0001 00", Puback(1)),
        ("40 04 0001 00 00", Puback(1)),
        ("50 04 0001 10 00", Pubrec(1, 0x10)),
        ("62 04 0001 92 00", Pubrel(1, 0x92)),
    ],
)
def test_takes_the_long_forms_too(data: str, packet: object) -> None:
    assert accepted(data, V5) == packet


def test_31_may_repeat_a_pubrel() -> None:
    assert accepted("6a 02 0001", V31) == Pubrel(1)
    assert refusal("6a 02 0001", V311).reason == MALFORMED
