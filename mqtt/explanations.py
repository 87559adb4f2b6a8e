"""Explanations for peers: reason codes that fit their packet, and texts that fit into a string.

A plugin's or peer's text may be too long for a string, or contain characters that are not allowed, and a reason that
fits one packet may not exist for another. None of this may prevent a packet from being written.
"""

import re
from typing import Final

from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import REASONS, Reason
from trunkline.mqtt.strings import DISCOURAGED

#: Characters of a foreign text that are quoted: its beginning identifies it.
MAX_QUOTED: Final = 200

#: Characters of a reason string, and of a name in a log.
MAX_TEXT: Final = 1000

_REPLACED: Final = re.compile(f"[\0\ud800-\udfff]|{DISCOURAGED.pattern}")


def quoted(text: str | bytes) -> str:
    """A foreign text in a reason string or a log: in quotes, and cut to a readable length."""
    return repr(text) if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]!r}…"


def shortened(text: str, length: int = MAX_TEXT) -> str:
    """A name in a log: in full, unless it is too long to be read."""
    return text if len(text) <= length else text[: length - 1] + "…"


def worth_logging(count: int) -> bool:
    """Whether to log an event that has happened `count` times: the 1st, 2nd, 4th, 8th … time, so that it never fills a
    disk."""
    return count & (count - 1) == 0


def writable(text: str) -> str:
    """A hook's text for clients and logs, cut to a readable length: a character that a strict client refuses becomes
    U+FFFD."""
    return _REPLACED.sub("\ufffd", shortened(text))


def reason_string(text: str) -> Properties:
    """The properties that explain a reason to a client: none without a text."""
    return {"reason_string": writable(text)} if text else NO_PROPERTIES


def fitting(reason: int, kind: PacketType) -> int:
    """The reason code for a server's packet of this kind: if the packet cannot have `reason`, plain success or failure.
    # [MQTT-3.2.2-8] [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.9.3-2] [MQTT-3.11.3-2] [MQTT-3.14.2-1]"""
    if reason in REASONS[kind, False]:
        return reason
    return Reason.SUCCESS if reason < Reason.UNSPECIFIED_ERROR else Reason.UNSPECIFIED_ERROR
