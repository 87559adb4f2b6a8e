"""How long a message lives that says so itself, as JetStream's per-message TTL (ADR-43)."""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.streams.config import SHORTEST
from trunkline.streams.errors import InvalidLife, LifeForbidden

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties
    from trunkline.streams.config import StreamConfig

#: The user property with which a publisher says it: whole seconds, a duration as Go writes it, or `NEVER`.
TTL: Final = "Nats-TTL"
NEVER: Final = "never"
#: Nothing lives longer, unless it lives for ever: as many seconds as Go's longest duration has.
_LONGEST: Final = 2.0**63 / 1e9
_DURATION: Final = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_duration(text: str) -> float:
    """Seconds of a duration as Go writes it, `1h2.5s`; 0 of what is none."""
    if not _DURATION.fullmatch(text):
        return 0.0
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return 0.0 if seconds > _LONGEST else -seconds if text[0] == "-" else seconds


def read_ttl(text: str) -> float:
    """Seconds; infinite for `NEVER`.

    Raises:
        InvalidLife: it is none, or too short.
    """
    if text.lower() == NEVER:
        return inf
    seconds = min(float(text), _LONGEST) if text.isascii() and text.isdigit() else read_duration(text)
    if seconds < SHORTEST:
        raise InvalidLife(f"{TTL} is {text!r:.40}, and not {SHORTEST:g} s or more")
    return seconds


def write_ttl(seconds: float) -> str:
    """As Go writes it, without fractions of a second."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}h{minute}m{second}s" if hours else f"{minute}m{second}s" if minute else f"{second}s"


def check_ttl(config: StreamConfig, text: str) -> None:
    """
    Raises:
        InvalidLife, LifeForbidden: the stream takes no message that says this.
    """
    if text:
        read_ttl(text)
        if not config.allow_message_ttl:
            raise LifeForbidden(f"the stream {config.name!r} does not allow lives of single messages")


def lives_forever(properties: Properties) -> bool:
    """Whatever the stream's `max_age` says."""
    return any(name == TTL and value.lower() == NEVER for name, value in properties.get("user_property", ()))


def life(config: StreamConfig, properties: Properties) -> float:
    """Seconds, of a message that the stream takes; infinite, if only limits remove it. The message expiry interval of
    MQTT counts, too."""
    text = next((value for name, value in properties.get("user_property", ()) if name == TTL), "")
    try:
        seconds = read_ttl(text) if text else inf
    except InvalidLife:  # of a message from another stream, which takes any word
        seconds = inf
    if config.max_messages_per_topic != 1:
        # one with less could leave a marker that is gone before the older messages of its topic are
        seconds = max(seconds, config.delete_marker_ttl)
    return min(seconds, properties.get("message_expiry_interval", inf))
