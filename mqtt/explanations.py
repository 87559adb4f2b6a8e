"""Saying why: reason codes that fit their packet, and texts that fit a string, wherever they come from.

What a plugin or a peer has written may be longer than a string can be, or hold what must not be in one, and a reason
that fits one packet may not exist for another. None of it may keep a packet from being written.
"""

import re
from typing import Final

from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.strings import DISCOURAGED

#: Characters of a text of others that are quoted: the beginning tells which one it is.
MAX_QUOTED: Final = 200

#: Characters of a reason string, and of a name in a log.
MAX_TEXT: Final = 1000

_REPLACED: Final = re.compile(f"[\0\ud800-\udfff]|{DISCOURAGED.pattern}")


def quoted(text: str | bytes) -> str:
    """A text of others as it stands in a reason string or a log: in quotes, and no longer than is read."""
    return repr(text) if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]!r}…"


def shortened(text: str, length: int = MAX_TEXT) -> str:
    """A name as it stands in logs: whole, unless it is longer than any that is read."""
    return text if len(text) <= length else text[: length - 1] + "…"


def worth_logging(count: int) -> bool:
    """Whether to log what has happened so often: the 1st, 2nd, 4th, 8th, … time, so that it never fills a disk."""
    return count & (count - 1) == 0


def reason_string(text: str) -> Properties:
    """The properties that tell a client why: none without a text. A character that a strict client refuses becomes
    U+FFFD."""
    if not text:
        return NO_PROPERTIES
    return {"reason_string": _REPLACED.sub("\ufffd", shortened(text))}


def fitting(reason: int, kind: PacketType) -> int:
    """The reason code with which a server's packet of this kind says it: where the packet does not have it, plain
    success or failure.  # [MQTT-3.2.2-8] [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.9.3-2] [MQTT-3.11.3-2]
    [MQTT-3.14.2-1]"""
    if reason in REASONS[kind, False]:
        return reason
    return Reason.SUCCESS if reason < Reason.UNSPECIFIED_ERROR else Reason.UNSPECIFIED_ERROR
