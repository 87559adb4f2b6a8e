import pytest

from tests.conformance import raw
from tests.mqtt.exchange import V5, V31, V311, accepted, refusal
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Subscribe, SubscriptionRequest, Unsubscribe
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR

REFUSED = [
    ("MQTT3-3.8.3-3 nothing", V311, "82 02 0001", VIOLATION),
    ("half a packet identifier", V311, "82 01 00", MALFORMED),
    ("packet identifier 0", V311, "82 06 0000 0001 61 00", VIOLATION),
    ("no options", V311, "82 05 0001 0001 61", MALFORMED),
    ("a byte more", V311, "82 07 0001 0001 61 00 00", MALFORMED),
    *((f"MQTT3-3.8.3-4 options {bits:02x}", V311, f"82 06 0001 0001 61 {bits:02x}", MALFORMED)
      for bits in (3, 4, 8, 16, 32, 64, 128)),
    ("MQTT-1.5.4-2 NUL", V311, "82 06 0001 0001 00 00", MALFORMED),
    ("MQTT-3.8.3-2 nothing", V5, "82 03 0001 00", VIOLATION),
    ("no properties", V5, "82 02 0001", MALFORMED),
    ("MQTT-3.8.3-5 reserved bits", V5, "82 07 0001 00 0001 61 40", MALFORMED),
    ("MQTT-3.8.3-5 reserved bits", V5, "82 07 0001 00 0001 61 80", MALFORMED),
    ("QoS 3", V5, "82 07 0001 00 0001 61 03", MALFORMED),
    ("retain handling 3", V5, "82 07 0001 00 0001 61 30", VIOLATION),
    ("MQTT-3.8.3-4 no local on a group", V5, "82 10 0001 00 000a 2473686172652f672f61 04", VIOLATION),
    ("subscription identifier 0", V5, "82 09 0001 02 0b00 0001 61 00", VIOLATION),
    ("subscription identifier twice", V5, "82 0b 0001 04 0b01 0b01 0001 61 00", VIOLATION),
    ("subscription identifier padded", V5, "82 0a 0001 03 0b8000 0001 61 00", MALFORMED),
    ("subscription identifier of five bytes", V5, "82 0d 0001 06 0b8080808001 0001 61 00", MALFORMED),
    ("topic alias", V5, "82 0a 0001 03 230001 0001 61 00", MALFORMED),
    ("MQTT3-3.10.3-2 nothing", V311, "a2 02 0001", VIOLATION),
    ("MQTT-3.10.3-2 nothing", V5, "a2 03 0001 00", VIOLATION),
    ("UNSUBSCRIBE packet identifier 0", V5, "a2 06 0000 00 0001 61", VIOLATION),
    ("UNSUBSCRIBE filter cut", V5, "a2 06 0001 00 0002 61", MALFORMED),
    ("UNSUBSCRIBE subscription identifier", V5, "a2 08 0001 02 0b01 0001 61", MALFORMED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [row[1:] for row in REFUSED],
    ids=[f"{version} {name}" for name, version, *_ in REFUSED],
)
def test_refuses(version: Version, data: str, reason: int) -> None:
    assert refusal(data, version).reason == reason


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (V311, "90 02 0001", MALFORMED),
        (V311, "90 03 0001 03", VIOLATION),
        (V311, "90 03 0001 87", VIOLATION),
        (V5, "90 04 0001 00 03", VIOLATION),
        (V5, "90 03 0001 00", MALFORMED),
        (V5, "90 04 0000 00 00", VIOLATION),
        (V311, "b0 03 0001 00", MALFORMED),
        (V5, "b0 04 0001 00 01", VIOLATION),
        (V5, "b0 02 0001", MALFORMED),
    ],
)
def test_refuses_an_acknowledgement(version: Version, data: str, reason: int) -> None:
    """[MQTT-3.9.3-2] [MQTT-3.11.3-2] [MQTT3-3.9.3-2]"""
    assert refusal(data, version, server=False).reason == reason


def test_options_of_5() -> None:
    packet = accepted("82 0b 0001 00 0001 61 04 0001 61 2a", V5)
    assert packet == Subscribe(
        1, [SubscriptionRequest("a", 0, no_local=True), SubscriptionRequest("a", 2, False, True, 2)]
    )


def test_31_may_repeat_them() -> None:
    assert accepted("8a 06 0001 0001 61 00", V31) == Subscribe(1, [SubscriptionRequest("a")])
    assert accepted("aa 05 0001 0001 61", V31) == Unsubscribe(1, ["a"])
    assert refusal("8a 06 0001 0001 61 00", V311).reason == MALFORMED


def test_a_311_client_may_share_a_subscription() -> None:
    packet = accepted("82 0f 0001 000a 2473686172652f672f61 00", V311)
    assert packet == Subscribe(1, [SubscriptionRequest("$share/g/a")])


def test_what_is_no_topic_filter_is_left_to_whoever_acts_on_it() -> None:
    assert accepted("82 0b 0001 00 0005 612f233f78 00", V5) == Subscribe(1, [SubscriptionRequest("a/#?x")])
    assert accepted("a2 07 0001 0003 232f61", V311) == Unsubscribe(1, ["#/a"])


@pytest.mark.parametrize("version", [V311, V5])
def test_no_more_filters_than_allowed(version: Version) -> None:
    decoder = Decoder(version=version, max_filters=2)
    two, three = ([(filter, 0) for filter in "abc"[:count]] for count in (2, 3))
    (subscribe,) = decoder.feed(raw.subscribe(1, *two, version=version))
    assert isinstance(subscribe, Subscribe)
    assert len(subscribe.requests) == 2
    assert decoder.feed(raw.unsubscribe(1, "a", "b", version=version))
    for packet in (raw.subscribe(1, *three, version=version), raw.unsubscribe(1, "a", "b", "c", version=version)):
        decoder = Decoder(version=version, max_filters=2)
        assert not decoder.feed(packet)
        assert decoder.error is not None
        assert decoder.error.reason == Reason.QUOTA_EXCEEDED


def test_a_queue_is_a_shared_subscription() -> None:
    subscribe, unsubscribe = Decoder(version=V311).feed(
        raw.subscribe(1, ("$queue/a/+", 1), ("$queue", 0), version=V311)
        + raw.unsubscribe(1, "$queue/a/+", version=V311)
    )
    assert isinstance(subscribe, Subscribe)
    assert isinstance(unsubscribe, Unsubscribe)
    assert [request.filter for request in subscribe.requests] == ["$share/$queue/a/+", "$queue"]
    assert unsubscribe.filters == ["$share/$queue/a/+"]
