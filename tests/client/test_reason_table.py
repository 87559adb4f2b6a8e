"""Which reasons are worth another attempt, code by code."""

import pytest

from trunkline.client.errors import ClientError, ConnectRefused, Disconnected, DisconnectedByServer
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.reasons import REASONS

CONNACK_PERMANENT = "81 82 83 84 85 86 87 8A 8C 90 95 99 9A 9B 9C 9D"
CONNACK_TRANSIENT = "80 88 89 97 9F"
DISCONNECT_PERMANENT = "81 82 87 8C 8E 8F 90 94 95 99 9A 9B 9D 9E A1 A2"
DISCONNECT_TRANSIENT = "00 04 80 83 89 8B 8D 93 96 97 98 9C 9F A0"


def codes(text: str) -> list[int]:
    return [int(code, 16) for code in text.split()]


@pytest.mark.parametrize("reason", codes(CONNACK_PERMANENT), ids=hex)
def test_permanent_in_connack(reason: int) -> None:
    assert not ConnectRefused(reason).transient


@pytest.mark.parametrize("reason", codes(CONNACK_TRANSIENT), ids=hex)
def test_transient_in_connack(reason: int) -> None:
    assert ConnectRefused(reason).transient


@pytest.mark.parametrize("reason", codes(DISCONNECT_PERMANENT), ids=hex)
def test_permanent_in_disconnect(reason: int) -> None:
    assert not DisconnectedByServer(reason).transient


@pytest.mark.parametrize("reason", codes(DISCONNECT_TRANSIENT), ids=hex)
def test_transient_in_disconnect(reason: int) -> None:
    assert DisconnectedByServer(reason).transient


def test_the_table_has_every_reason_that_a_server_may_send() -> None:
    connack = {*codes(CONNACK_PERMANENT), *codes(CONNACK_TRANSIENT), 0}
    disconnect = {*codes(DISCONNECT_PERMANENT), *codes(DISCONNECT_TRANSIENT)}
    assert connack == REASONS[PacketType.CONNACK, False]
    assert disconnect == REASONS[PacketType.DISCONNECT, False] | {0x04}


def test_a_lost_network_is_transient_and_other_errors_are_not() -> None:
    assert Disconnected("reset").transient
    assert not ClientError("other").transient
