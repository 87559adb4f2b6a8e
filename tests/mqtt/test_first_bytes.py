import pytest

from trunkline.mqtt.decode_publish import decode_publish
from trunkline.mqtt.first_bytes import CONNECT_ONLY, FIRST_BYTES
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.versions import Version

BOTH = {PacketType.PUBLISH, PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP}
CLIENTS = {PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ}
SERVERS = {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}


@pytest.mark.parametrize("version", Version)
def test_who_sends_what(version: Version) -> None:
    """Table 2-1. CONNECT is in none of them: it comes first, and once."""
    late = {PacketType.DISCONNECT, PacketType.AUTH} if version is Version.V5 else set[PacketType]()
    for server, own in ((True, CLIENTS | {PacketType.DISCONNECT}), (False, SERVERS)):
        assert {PacketType(first >> 4) for first in FIRST_BYTES[version, server]} == BOTH | own | late


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("server", [True, False])
def test_flags(version: Version, server: bool) -> None:
    """Table 2-2: [MQTT-2.1.3-1] [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1]"""
    for first, decode in FIRST_BYTES[version, server].items():
        kind, flags = PacketType(first >> 4), first & 15
        if kind is PacketType.PUBLISH:
            assert flags & 6 != 6
            assert not (flags & 8 and flags & 6 == 0)
            assert decode is decode_publish
        elif kind in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            assert flags == 2 or (flags == 10 and version is Version.V31)
        else:
            assert flags == 0
    assert sum(first >> 4 == PacketType.PUBLISH for first in FIRST_BYTES[version, server]) == 10


def test_connect_with_any_flags_may_be_one_of_31() -> None:
    assert set(CONNECT_ONLY) == set(range(0x10, 0x20))
