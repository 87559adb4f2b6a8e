"""Who begins to speak: the version and the client id of a CONNECT, found before all of it is there, or is decoded."""

from __future__ import annotations

from typing import Final, NamedTuple

from trunkline.mqtt.versions import Version

#: As a CONNECT names them, with their lengths: the name and the level of the protocol. A bridge sets the highest bit.
_VERSIONS: Final = {
    b"\0\6MQIsdp\x03": Version.V31,
    b"\0\6MQIsdp\x83": Version.V31,
    b"\0\4MQTT\x04": Version.V311,
    b"\0\4MQTT\x84": Version.V311,
    b"\0\4MQTT\x05": Version.V5,
}
#: Between the level and what follows: flags, and two bytes of keep-alive.
_FLAGS: Final = 3


class Beginning(NamedTuple):
    """Both are empty if these bytes are no CONNECT, or not a valid one: its decoder says why. An empty client id may
    also be that of a client that has none."""

    client_id: str = ""
    version: Version | None = None


UNREADABLE: Final = Beginning()


def beginning_of(data: bytes | bytearray, largest: int) -> Beginning | None:
    """None until the client id has come, of a CONNECT of at most `largest` bytes. It takes the same time whatever else
    has come."""
    if not data:
        return None
    if data[0] >> 4 != 1:
        return UNREADABLE
    found = _integer(data, 1)
    if found is None or found[0] < 0:
        return found and UNREADABLE
    size, body = found
    end = body + size
    if end > largest:
        return UNREADABLE
    version = None
    for name, named in _VERSIONS.items():
        if data.startswith(name, body):
            version, position = named, body + len(name) + _FLAGS
            break
        if len(data) - body < len(name) and name.startswith(data[body:]):
            return None if end > len(data) else UNREADABLE
    else:
        return UNREADABLE
    if version is Version.V5:
        found = _integer(data, position)
        if found is None or found[0] < 0:
            return UNREADABLE if found or end <= len(data) else None
        position = found[1] + found[0]
    name_at = position + 2
    if name_at > end:
        return UNREADABLE
    if name_at > len(data):
        return None
    name_end = name_at + (data[position] << 8 | data[position + 1])
    if name_end > end:
        return UNREADABLE
    if name_end > len(data):
        return None
    try:
        return Beginning(bytes(data[name_at:name_end]).decode(), version)
    except UnicodeDecodeError:
        return UNREADABLE


def _integer(data: bytes | bytearray, position: int) -> tuple[int, int] | None:
    """A variable byte integer and where it ends; -1 if it is too long, None until it has come."""
    value = 0
    for count in range(4):
        if position + count >= len(data):
            return None
        byte = data[position + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, position + count + 1
    return -1, 0
