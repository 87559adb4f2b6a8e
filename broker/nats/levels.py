"""The version of NATS that is spoken here, and the level of JetStream's API (ADR-44)."""

from typing import Any, Final

from trunkline.nats.errors import BadHeaders
from trunkline.nats.protocol.headers import decode_headers

#: What clients choose their requests by.
VERSION: Final = "2.12.0"
LEVEL: Final = 2
#: The header of a request that is to be refused by whoever has a lower level.
_REQUIRED: Final = "Nats-Required-Api-Level"


def is_too_high(block: bytes) -> bool:
    """Does a request need a higher level? One that is no number is."""
    if _REQUIRED.encode() not in block:
        return False
    try:
        _, headers = decode_headers(block, skip_bad_lines=True)
    except BadHeaders:
        return False
    text = headers.get(_REQUIRED, "").strip()
    try:
        return bool(text) and int(text) > LEVEL
    except ValueError:
        return True


def with_level(config: dict[str, Any], required: int) -> dict[str, Any]:
    """The JSON of a configuration, with the metadata in which servers say which version and level keeps a stream or a
    consumer, and which level it needs."""
    level = {"_nats.ver": VERSION, "_nats.level": str(LEVEL), "_nats.req.level": str(required)}
    return config | {"metadata": config.get("metadata", {}) | level}
