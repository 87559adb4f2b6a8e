"""Operations to bytes. Whoever calls these has checked the subjects: a line break in one would begin an operation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.nats.protocol.operations import Json


# A client's


def connect(options: Json) -> bytes:
    return b"CONNECT %s\r\n" % _json(options)


def publish(subject: bytes, payload: bytes, reply: bytes = b"", block: bytes = b"") -> bytes:
    """`block` is that of the headers, if there are any."""
    to = b"%s %s" % (subject, reply) if reply else subject
    if block:
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (to, len(block), len(block) + len(payload), block, payload)
    return b"PUB %s %d\r\n%s\r\n" % (to, len(payload), payload)


def subscribe(subject: bytes, sid: bytes, queue: bytes = b"") -> bytes:
    return b"SUB %s %s %s\r\n" % (subject, queue, sid) if queue else b"SUB %s %s\r\n" % (subject, sid)


def unsubscribe(sid: bytes, after: int = 0) -> bytes:
    """`after` so many messages in all, 0 for at once."""
    return b"UNSUB %s %d\r\n" % (sid, after) if after else b"UNSUB %s\r\n" % sid


# A server's


def info(server: Json) -> bytes:
    return b"INFO %s\r\n" % _json(server)


def deliver(subject: bytes, sid: bytes, payload: bytes, reply: bytes = b"", block: bytes = b"") -> bytes:
    to = b"%s %s %s" % (subject, sid, reply) if reply else b"%s %s" % (subject, sid)
    if block:
        return b"HMSG %s %d %d\r\n%s%s\r\n" % (to, len(block), len(block) + len(payload), block, payload)
    return b"MSG %s %d\r\n%s\r\n" % (to, len(payload), payload)


def error(text: str) -> bytes:
    """Text of one line, in the words that clients know."""
    return f"-ERR '{text}'\r\n".encode()


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
