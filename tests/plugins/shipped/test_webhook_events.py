"""What is told of each hook point."""

import json
from typing import Any

import pytest

from trunkline.hooks.alarm import Alarm
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.exchange import Exchange
from trunkline.hooks.points import POINTS, Point, find
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Connack, Connect, SubscriptionRequest, Will
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.user_properties import UserProperties
from trunkline.mqtt.versions import Version
from trunkline.plugins.shipped.webhook_events import FIELDS, EventWriter

CLIENT = ClientInfo("cid", "ann", ("10.0.0.1", 1234), "plant", Version.V311, 60, True, 1000.5, "n")
MESSAGE = Message(
    "a/b", b"pay\xc3\xa9", 1, True,
    {"content_type": "x", "user_property": UserProperties(b"&\0\1k\0\x011&\0\1k\0\x012"), "correlation_data": b"\x00"},
    "pub", "bob", 255, 1000.25,
)  # fmt: skip

VALUES: dict[str, object] = {
    "client": CLIENT,
    "password": b"hush",
    "packet": Connect(
        "cid", will=Will("w", b"hush", 1), properties={"authentication_data": b"hush", "receive_maximum": 5}
    ),
    "exchange": Exchange("M", b"hush"),
    "reason": Reason.NOT_AUTHORIZED,
    "text": "words",
    "action": "publish",
    "topic": "t",
    "qos": 1,
    "retain": False,
    "allowed": True,
    "request": SubscriptionRequest("f/#", 1),
    "filter": "f/+",
    "properties": {"subscription_identifier": [3]},
    "message": MESSAGE,
    "receivers": ("a", "b"),
    "others": ("stream s",),
    "delivery": "live",
    "alarm": Alarm("hot", "too hot", 1.0, 2.0, {"who": CLIENT}),
}


PLAIN = EventWriter()


def told(point: str | Point, writer: EventWriter = PLAIN, **changed: object) -> dict[str, Any]:
    found = find(point) if isinstance(point, str) else point
    values = tuple({**VALUES, **changed}[name] for name in found.arguments)
    content = json.loads(writer.write(found, values, "node1", 2000.75))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_every_point_can_be_told_of(point: Point) -> None:
    content = told(point)
    assert (content["event"], content["timestamp"], content["node"]) == (point.name, 2000750, "node1")
    assert content.keys() - {"event", "timestamp", "node"} <= FIELDS
    assert "hush" not in json.dumps(content)
    assert "aHVzaA" not in json.dumps(content)


def test_every_field_is_of_some_event() -> None:
    fields = {field for point in POINTS for field in told(point)}
    fields |= told("client.connack", packet=Connack()).keys()
    assert fields >= FIELDS


def test_a_connection() -> None:
    assert told("client.disconnected") == {
        "event": "client.disconnected", "timestamp": 2000750, "node": "node1",
        "clientid": "cid", "username": "ann", "peerhost": "10.0.0.1", "peerport": 1234, "proto_ver": 4,
        "keepalive": 60, "clean_start": True, "connected_at": 1000500, "listener": "plant",
        "reason": "not_authorized", "reason_code": 0x87, "text": "words",
    }  # fmt: skip
    assert told("client.connected", client=ClientInfo("c"))["peerhost"] is None


def test_a_message() -> None:
    assert told("message.delivered", delivery="waited") == {
        "event": "message.delivered", "timestamp": 2000750, "node": "node1",
        "clientid": "cid", "username": "ann", "peerhost": "10.0.0.1",
        "id": f"{255:032x}", "topic": "a/b", "qos": 1, "retain": True,
        "from_clientid": "pub", "from_username": "bob", "publish_received_at": 1000250,
        "payload": "payé", "payload_encoding": "text", "payload_size": 5,
        "properties": {"content_type": "x", "user_property": [["k", "1"], ["k", "2"]], "correlation_data": "AA=="},
        "delivery": "waited",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "payload", "form", "text"),
    [
        (EventWriter(), b"\xff", "base64", "/w=="),
        (EventWriter("base64"), b"abc", "base64", "YWJj"),
        (EventWriter("none"), b"abc", "none", None),
        (EventWriter(max_payload_size=3), b"abc", "text", "abc"),
        (EventWriter(max_payload_size=2), b"abc", "none", None),
    ],
)
def test_payloads(writer: EventWriter, payload: bytes, form: str, text: str | None) -> None:
    content = told("message.publish", writer, message=Message("t", payload))
    assert (content["payload_encoding"], content["payload"], content["payload_size"]) == (form, text, len(payload))


def test_a_subscription() -> None:
    content = told("session.subscribed")
    assert (content["topic"], content["qos"], content["no_local"]) == ("f/#", 1, False)
    assert told("session.unsubscribed")["topic"] == "f/+"


def test_reasons_in_words() -> None:
    assert told("message.dropped", reason="queue_full")["reason"] == "queue_full"
    connack = told("client.connack", packet=Connack(False, Reason.BANNED))
    assert (connack["reason"], connack["reason_code"]) == ("banned", 0x8A)


def test_personal_data_can_be_left_out() -> None:
    writer = EventWriter(leave_out=frozenset({"username", "peerhost", "from_username", "payload"}))
    content = told("message.delivered", writer)
    assert not {"username", "peerhost", "from_username", "payload"} & content.keys()
    assert "ann" not in json.dumps(content)
