"""What a message has besides its topic and payload: headers and reply of NATS, properties of MQTT 5.0.

| NATS | MQTT |
|---|---|
| reply subject | response topic |
| a header, as often as it comes, in order | a user property of the same name |
| header `Mqtt-Correlation-Data`, in base64 | correlation data |
| header `Mqtt-Content-Type` | content type |

What one side cannot say is left out, and the message goes on without it: a user property whose name has a space, a
header whose value is no UTF-8. Between clients of NATS the headers are passed on as they came.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from trunkline.broker.nats.mapping import subject_of, topic_of_reply
from trunkline.mqtt.frames import publish_head
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.mqtt.versions import Version
from trunkline.nats.errors import BadHeaders
from trunkline.nats.protocol.headers import Headers, decode_headers, encode_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.nats.protocol.operations import Publish

CORRELATION: Final = "Mqtt-Correlation-Data"
CONTENT_TYPE: Final = "Mqtt-Content-Type"
#: Bytes of the longest string of MQTT.
_MOST: Final = 65_535

#: The keys in `Message.frames` of the forms for clients of NATS, with headers and without: what stands before the
#: client's own sid, and behind it. Those for clients of MQTT are below 16.
WITH_HEADERS: Final = 16
WITHOUT_HEADERS: Final = 17


# From NATS to MQTT


def properties_of(asked: Publish) -> Properties:
    """
    Raises:
        BadSubject: the reply subject has no topic.
    """
    properties: Properties = {}
    if asked.reply:
        properties["response_topic"] = topic_of_reply(asked.reply, NO_LEVEL_LIMIT)
    if not asked.block:
        return properties
    try:
        _, headers = decode_headers(asked.block, skip_bad_lines=True)
    except BadHeaders:
        return properties or NO_PROPERTIES  # servers pass on what is no block of headers, too
    pairs = list(_user_properties(headers, properties))
    if pairs:
        properties["user_property"] = pairs
    return properties


def _user_properties(headers: Headers, properties: Properties) -> Iterator[tuple[str, str]]:
    """Those of a name of its own become properties of their own."""
    for name, value in headers.pairs():
        if not _is_text(name) or not _is_text(value):
            continue
        if name == CONTENT_TYPE:
            properties["content_type"] = value
        elif name == CORRELATION and (data := _decoded(value)) is not None:
            properties["correlation_data"] = data
        else:
            yield name, value


def _decoded(value: str) -> bytes | None:
    try:
        return b64decode(value, validate=True)
    except ValueError:
        return None


def _is_text(value: str) -> bool:
    try:
        return len(value.encode()) <= _MOST and "\0" not in value
    except UnicodeEncodeError:
        return False


def gathered(topic: str, payloads: Sequence[bytes]) -> PublishBatch:
    """Messages of one topic that came together, as MQTT 3.1.1 has them."""
    sizes = list(map(len, payloads))
    heads = {size: publish_head(topic, 0, False, size) for size in set(sizes)}
    starts: Sequence[int]
    if len(heads) == 1:
        ((size, head),) = heads.items()
        wire = head + head.join(payloads)
        starts = range(0, len(wire), len(head) + size)
    else:
        packets = [heads[len(payload)] + payload for payload in payloads]
        wire = b"".join(packets)
        starts = list(accumulate(map(len, packets[:-1]), initial=0))
    return PublishBatch((topic,), wire[0], Version.V311, wire, starts, ())


# From either to NATS


def deliver_all(topic: str, sid: bytes, payloads: Sequence[bytes]) -> bytes:
    """Messages of one topic, without headers, to one subscription."""
    start = b"MSG %b %b " % (subject_of(topic).encode(), sid)
    sizes = set(map(len, payloads))
    if len(sizes) == 1:
        line = b"%b%d\r\n" % (start, sizes.pop())
        return line + (b"\r\n" + line).join(payloads) + b"\r\n"
    return b"".join([b"%b%d\r\n%b\r\n" % (start, len(payload), payload) for payload in payloads])


def forms_of(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> dict[int, tuple[bytes, bytes]]:
    """Of what need not be made of a message's properties: `Message.frames`."""
    return {
        WITH_HEADERS: _form(subject, reply, block, payload),
        WITHOUT_HEADERS: _form(subject, reply, b"", payload),
    }


def form_of(message: Message, kind: int) -> tuple[bytes, bytes]:
    """The bytes before and behind the sid, for all clients of NATS, `WITH_HEADERS` or `WITHOUT_HEADERS`."""
    frames = message.frames
    if frames is None:
        frames = message.frames = {}
    form = frames.get(kind)
    if form is None:
        properties = message.properties
        topic, reply, block = message.topic, b"", b""
        if properties:
            response_topic = properties.get("response_topic")
            reply = b"" if response_topic is None else subject_of(response_topic).encode()
            block = block_of(properties) if kind == WITH_HEADERS else b""
        form = frames[kind] = _form(subject_of(topic).encode(), reply, block, message.payload)
    return form


def block_of(properties: Properties, own: Sequence[tuple[str, str]] = ()) -> bytes:
    """The block of headers; nothing if there are none. Those of the broker's `own` are in place of others of the same
    name, which a publisher may have given."""
    headers = Headers()
    names = {name for name, _ in own}
    pairs = [pair for pair in properties.get("user_property", ()) if pair[0] not in names]
    if (data := properties.get("correlation_data")) is not None:
        pairs.append((CORRELATION, b64encode(data).decode()))
    if (kind := properties.get("content_type")) is not None:
        pairs.append((CONTENT_TYPE, kind))
    for name, value in (*pairs, *own):
        try:
            headers.add(name, value)
        except BadHeaders:
            continue
    return encode_headers(headers) if headers else b""


def _form(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> tuple[bytes, bytes]:
    to = b" %s" % reply if reply else b""
    if block:
        size = b"%d %d" % (len(block), len(block) + len(payload))
        return b"HMSG %s " % subject, b"%s %s\r\n%s%s\r\n" % (to, size, block, payload)
    return b"MSG %s " % subject, b"%s %d\r\n%s\r\n" % (to, len(payload), payload)
