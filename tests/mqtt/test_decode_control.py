import pytest

from tests.mqtt.exchange import V5, V311, accepted, refusal
from trunkline.mqtt.packets import Disconnect
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        pytest.param(V311, "c0 01 00", MALFORMED, id="PINGREQ with a body"),
        pytest.param(V5, "c0 01 00", MALFORMED, id="PINGREQ with a body in 5"),
        pytest.param(V311, "e0 01 00", MALFORMED, id="DISCONNECT with a body"),
        pytest.param(V5, "e0 01 01", VIOLATION, id="MQTT-3.14.2-1 unknown reason"),
        pytest.param(V5, "e0 01 8e", VIOLATION, id="MQTT-3.14.2-1 a server's reason"),
        pytest.param(V5, "e0 03 00 00 00", MALFORMED, id="left over"),
        pytest.param(V5, "e0 03 00 05 11", MALFORMED, id="properties cut short"),
        pytest.param(V5, "e0 05 00 03 1c 0000", VIOLATION, id="a server's property"),
        pytest.param(V311, "f0 00", VIOLATION, id="AUTH in 3.1.1"),
        pytest.param(V5, "f0 00", VIOLATION, id="MQTT-3.15.2-1 success from a client"),
        pytest.param(V5, "f0 01 18", VIOLATION, id="AUTH without a method"),
        pytest.param(V5, "f0 02 18 00", VIOLATION, id="AUTH without a method, written out"),
        pytest.param(V5, "f0 06 01 04 15 0001 4d", VIOLATION, id="unknown AUTH reason"),
        pytest.param(V5, "f0 06 18 04 16 0001 4d", VIOLATION, id="AUTH data without a method"),
    ],
)
def test_refuses(version: Version, data: str, reason: int) -> None:
    assert refusal(data, version).reason == reason


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        pytest.param(V5, "d0 01 00", MALFORMED, id="PINGRESP with a body"),
        pytest.param(V5, "e0 01 04", VIOLATION, id="a client's reason"),
        pytest.param(V5, "e0 07 00 05 11 00000000", VIOLATION, id="MQTT-3.14.2-2 session expiry of a server"),
        pytest.param(V5, "f0 06 19 04 15 0001 4d", VIOLATION, id="a server that authenticates again"),
        pytest.param(V311, "e0 00", VIOLATION, id="DISCONNECT of a 3.1.1 server"),
    ],
)
def test_a_client_refuses(version: Version, data: str, reason: int) -> None:
    assert refusal(data, version, server=False).reason == reason


def test_takes_the_long_forms_too() -> None:
    for data in ("e0 01 00", "e0 02 00 00"):
        assert accepted(data, V5) == Disconnect()
