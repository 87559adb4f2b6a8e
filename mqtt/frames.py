"""PUBLISH packets on their way out: encoded once, whatever the fan-out.

All subscribers of one protocol version, QoS and RETAIN flag get the same bytes, apart from the packet identifier. So
these are encoded once for each message and kept in it, in two forms:

- QoS 0 without RETAIN, the common one: the whole packet, in `Message.wire3` or `Message.wire5`. The decoder stores the
  received bytes there if the encoder would write the same ones.
- any other: the bytes before the packet identifier and those after it, in `Message.frames`. The key is one
  small integer: `qos * 2 + retain`, and 8 more for 5.0. 3.1 and 3.1.1 write a PUBLISH alike.

A packet with fields that only some subscribers get (DUP, subscription identifiers, topic aliases, a reduced expiry) is
written for each of them by `encode_publish`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.errors import UNWRITABLE
from trunkline.mqtt.property_codec import encode_variable_integer, property_bytes
from trunkline.mqtt.strings import encode_string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.versions import Version

#: Every packet identifier in its encoded form: `PACKET_ID[7] == b"\0\7"`.
PACKET_ID: Final = tuple(map(Struct(">H").pack, range(65_536)))

#: They belong to one hop and are never passed on with the message.
_ONE_HOP: Final = frozenset(("topic_alias", "subscription_identifier"))


def publish_pieces(message: Message, version: Version, qos: int, retain: bool) -> tuple[bytes, bytes]:
    """The packet for a subscriber, in two pieces: at QoS 0 the whole packet and nothing, above that the bytes before
    the packet identifier and those after it."""
    if not qos and not retain:
        whole = message.wire3 if version != 5 else message.wire5
        return (publish_whole(message, version) if whole is None else whole), b""
    key = qos + qos + retain if version != 5 else qos + qos + retain + 8
    frames = message.frames
    if frames is None:
        frames = message.frames = {}
    pieces = frames.get(key)
    if pieces is None:
        pieces = frames[key] = _pieces(message, version, qos, retain)
    return pieces


def publish_whole(message: Message, version: Version) -> bytes:
    """The packet for a subscriber at QoS 0, without RETAIN.

    Where even a call counts: `message.wire5 or publish_whole(message, version)`.
    """
    if version == 5:
        if message.wire5 is None:
            message.wire5 = _pieces(message, version, 0, False)[0]
        return message.wire5
    if message.wire3 is None:
        message.wire3 = _pieces(message, version, 0, False)[0]
    return message.wire3


def _pieces(message: Message, version: Version, qos: int, retain: bool) -> tuple[bytes, bytes]:
    block = b""
    if version == 5:
        block = property_block(message.properties) if message.properties else b"\0"
    payload = message.payload
    head = publish_head(message.topic, qos, retain, len(block) + len(payload))
    if qos:
        return head, (block + payload if block else payload)
    return b"".join((head, block, payload)), b""


def publish_head(topic: str, qos: int, retain: bool, rest: int) -> bytes:
    """A PUBLISH up to its packet identifier, which `rest` bytes of properties and payload follow."""
    name = encode_string(topic)
    return b"%c" % (0x30 | qos << 1 | retain) + encode_variable_integer(len(name) + 2 * (qos > 0) + rest) + name


def property_block(
    properties: Properties,
    expiry_interval: int | None = None,
    subscription_ids: Sequence[int] = (),
    topic_alias: int = 0,
) -> bytes:
    if expiry_interval is not None and "message_expiry_interval" in properties:
        # [MQTT-3.3.2-6] never more than the publisher's value, whatever the rounding of the clock
        left = min(expiry_interval, properties["message_expiry_interval"])
        properties = properties | {"message_expiry_interval": left}
    block = property_bytes(properties, _ONE_HOP) if properties else b""
    if topic_alias:
        block += b"\x23" + PACKET_ID[topic_alias]
    for identifier in subscription_ids:
        block += b"\x0b" + encode_variable_integer(identifier)  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
    return encode_variable_integer(len(block)) + block


def check_writable(message: Message) -> None:
    """Check that a message made by code outside the broker can be sent: otherwise it would crash every session that it
    is routed to, and a retained one would do so again and again.

    Raises:
        TypeError: a value has the wrong type. The text does not contain payloads.
        ValueError: MQTT cannot represent a value.
    """
    if not isinstance(message.payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a message's payload must be bytes, not {type(message.payload).__name__}")
    if message.qos not in (0, 1, 2):
        raise ValueError(f"a message's QoS must be 0, 1 or 2, not {message.qos!r:.80}")
    try:
        block = property_block(message.properties) if message.properties else b"\0"
    except UNWRITABLE as error:
        raise ValueError(f"a message's properties cannot be written: {error}") from error
    publish_head(message.topic, message.qos, message.retain, len(block) + len(message.payload))


def encode_publish(
    message: Message,
    version: Version,
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    subscription_ids: Sequence[int] = (),
    topic_alias: int = 0,
    omit_topic: bool = False,
    expiry_interval: int | None = None,
) -> bytes:
    """The whole packet for one subscriber, with its own fields; it is not cached. `expiry_interval` replaces the
    publisher's message expiry interval: the seconds that are left of it.
    """
    assert (packet_id > 0) == (qos > 0), "packet identifiers are for QoS 1 and 2"  # [MQTT-2.2.1-2] [MQTT-2.2.1-3]
    assert qos or not dup, "a PUBLISH of QoS 0 cannot have DUP"  # [MQTT-3.3.1-2]
    topic = b"\0\0" if omit_topic else encode_string(message.topic)
    block = b""
    if version == 5:
        block = property_block(message.properties, expiry_interval, subscription_ids, topic_alias)
    payload = message.payload
    first = b"%c" % (0x30 | dup << 3 | qos << 1 | retain)
    number = PACKET_ID[packet_id] if qos else b""
    length = len(topic) + len(number) + len(block) + len(payload)
    return b"".join((first, encode_variable_integer(length), topic, number, block, payload))
