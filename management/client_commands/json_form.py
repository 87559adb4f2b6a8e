"""A message as JSON, as mosquitto_sub's %j and %J show it, and as `--json` does."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.client.received import ReceivedMessage
    from trunkline.mqtt.properties import Properties

#: How a payload is shown: as text, as the JSON that it must be, or as what it is; `payload_encoding` says which then.
PayloadForm: TypeAlias = Literal["text", "json", "any"]

#: Beside those that JSON escapes in any case: what could control a terminal, or separate lines.
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


class NotJson(Exception):
    """The payload is not JSON."""


def as_json(message: ReceivedMessage, stamp: str, form: PayloadForm, *, pretty: bool = False) -> bytes:
    """
    Raises:
        NotJson: the form is "json", and the payload is not.
    """
    plain: dict[str, Any] = {
        "tst": stamp,
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.properties:
        plain["properties"] = _properties(message.properties)
    plain |= _payload(message.payload, form)
    indent, separators = ("\t", None) if pretty else (None, (",", ":"))
    text = json.dumps(plain, ensure_ascii=False, indent=indent, separators=separators)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8", "backslashreplace")


def _payload(payload: bytes, form: PayloadForm) -> dict[str, Any]:
    if form != "text":
        try:
            value = json.loads(payload, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError):
            if form == "json":
                raise NotJson from None
        else:
            return {"payload": value} if form == "json" else {"payload_encoding": "json", "payload": value}
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return {"payload_encoding": "base64", "payload": b64encode(payload).decode()}
    return {"payload": text} if form == "text" else {"payload_encoding": "text", "payload": text}


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _no_number(digits)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


def _properties(properties: Properties) -> dict[str, Any]:
    """A name that several user properties have has a list of values."""
    plain: dict[str, Any] = {}
    for key, value in properties.items():
        name = key.replace("_", "-")
        if key == "user_property":
            pairs: dict[str, Any] = {}
            for each, text in properties.get("user_property", ()):
                former = pairs.get(each)
                pairs[each] = text if former is None else [*(former if isinstance(former, list) else [former]), text]
            plain["user-properties"] = pairs
        elif isinstance(value, bytes):
            try:
                plain[name] = value.decode()
            except UnicodeDecodeError:
                plain[f"{name}-encoding"] = "base64"
                plain[name] = b64encode(value).decode()
        elif isinstance(value, list | tuple):
            values = cast("Sequence[int]", value)
            plain[name] = values[0] if len(values) == 1 else values
        else:
            plain[name] = value
    return plain
