"""What users pass to a client, checked before anything is queued: a server would end the connection because of it. The
errors name what was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from trunkline.config.key_path import nearest
from trunkline.mqtt.errors import UNWRITABLE, ProtocolError
from trunkline.mqtt.property_codec import PROPERTIES, Kind, decode_properties, encode_properties
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.strings import encode_string
from trunkline.mqtt.topics import validate_filter, validate_name
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.mqtt.packet_types import PacketType
    from trunkline.mqtt.properties import Properties

_ROWS: Final = {row.name: row for row in PROPERTIES}
#: Kinds of which an encoder tells what is wrong with text or bytes.
_TEXTS: Final = (Kind.STRING, Kind.TOPIC, Kind.BINARY)
#: Properties of a message whose encoders refuse every wrong value.
SURE: Final = frozenset(("user_property", "content_type", "correlation_data"))


def payload_bytes(payload: object) -> bytes:
    """
    Raises:
        TypeError: it is neither bytes nor text.
    """
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(cast("bytes", payload))
    # a number would be taken for so many zero bytes
    raise TypeError(f"a payload is bytes or str, not {kind_of(payload)}: str() or json.dumps() makes text of it")


def each_payload(payloads: Iterable[bytes | str]) -> Iterable[bytes | str]:
    """The same.

    Raises:
        TypeError: this is a single payload, or none.
    """
    if isinstance(payloads, str | bytes) or not hasattr(payloads, "__iter__"):
        raise TypeError(f"payloads are a list or another iterable, not {kind_of(payloads)}")
    return payloads


def check_topic(topic: object) -> None:
    """
    Raises:
        TypeError, ValueError: nobody can publish to it.
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic name is a str, not {kind_of(topic)}")
    try:
        validate_name(topic)
        encode_string(topic)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def check_filter(topic_filter: object) -> None:
    """
    Raises:
        TypeError, ValueError: nobody can subscribe to it.
    """
    if not isinstance(topic_filter, str):
        raise TypeError(f"a topic filter is a str, and several are passed one by one, not {kind_of(topic_filter)}")
    try:
        validate_filter(topic_filter)
    except ProtocolError as error:
        raise ValueError(str(error)) from None


def check_qos(qos: object) -> None:
    """
    Raises:
        ValueError: it is not 0, 1 or 2.
    """
    if not isinstance(qos, int) or qos not in (0, 1, 2):
        raise ValueError(f"QoS is 0, 1 or 2, not {qos!r:.80}")


def check_properties(properties: Properties, place: PacketType) -> None:
    """
    Raises:
        TypeError: they are not a dict.
        ValueError: one of them is unknown, belongs to another packet than `place`, or holds a wrong value.
    """
    if not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"properties are a dict, not {kind_of(properties)}")
    for name, value in properties.items():
        row = _ROWS.get(name)
        if row is None:
            raise ValueError(f"{name!r:.80} is not a property{nearest(str(name), _ROWS)}")
        if name == "topic_alias":
            raise ValueError("topic_alias is the client's own: the setting topic_aliases_out allows them")
        if place not in row.client:
            raise ValueError(f"{name} is not a property of {place.name}")
        why = _why_not(name, value, place)
        if why is not None:
            accepted = "a list of one number above 0" if row.kind is Kind.NUMBER else row.kind.value
            raise ValueError(f"property {name}: {value!r:.80}: {why or f'accepted is: {accepted}'}")


def _why_not(name: str, value: object, place: PacketType) -> str | None:
    """Why a server would not read this value. Empty: it is of the wrong kind. None: it would."""
    try:
        block = encode_properties(cast("Properties", {name: value}))
        found = decode_properties(Reader(block, 0, len(block), Version.V5, strict=False), place)
    except (ProtocolError, *UNWRITABLE) as error:
        is_text = _ROWS[name].kind in _TEXTS and isinstance(error, ValueError) and isinstance(value, str | bytes)
        return str(error) if is_text or isinstance(error, ProtocolError) else ""
    same = list(cast("tuple[int]", value)) if isinstance(value, tuple) else value
    return None if found.get(name) == same else ""


def kind_of(value: object) -> str:
    return type(value).__name__
