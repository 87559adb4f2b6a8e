"""UTF-8 encoded strings (section 1.5.4 of 5.0) and the characters allowed in them.

Python's own decoder refuses surrogates and ill-formed sequences, and nothing more. NUL is always refused. Control
characters and non-characters *should* not be sent: they are refused when `strict` is set, which is the default of every
decoder, because they end up in logs, terminals and other brokers.
"""

import re
from typing import Final

from trunkline.mqtt.errors import MalformedPacket

#: Non-characters: U+FDD0 to U+FDEF and the last two code points of each of the 17 planes.
_NONCHARACTERS: Final = "\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)

#: The characters that `strict` refuses, besides NUL.
DISCOURAGED: Final = re.compile(f"[\x01-\x1f\x7f-\x9f{_NONCHARACTERS}]")

#: The same outside of ASCII only, in encoded text (and known to be UTF-8): the controls U+0080 to U+009F, U+FDD0 to
#: U+FDEF, U+FFFE and U+FFFF, and the corresponding code points of the higher planes.
DISCOURAGED_BEYOND_ASCII: Final = re.compile(
    rb"\xc2[\x80-\x9f]|\xef\xb7[\x90-\xaf]|\xef\xbf[\xbe\xbf]|[\xf0-\xf4][\x8f\x9f\xaf\xbf]\xbf[\xbe\xbf]"
)

MAX_STRING: Final = 65_535


def decode_string(raw: bytes, strict: bool = True) -> str:
    """The text of an encoded string (without its length).

    Raises:
        MalformedPacket: it is not UTF-8, or contains a character that is not allowed.
    """
    try:
        text = raw.decode()  # [MQTT-1.5.4-1], and U+FEFF stays where it is: [MQTT-1.5.4-3]
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"a string is not UTF-8: {error.reason} at byte {error.start}") from None
    # Printable text has neither control characters nor non-characters, and this check costs less than a search.
    if text.isprintable():
        return text
    if "\0" in text:
        raise MalformedPacket("a string holds U+0000")  # [MQTT-1.5.4-2]
    if strict and (found := DISCOURAGED.search(text)) is not None:
        raise MalformedPacket(f"a string holds U+{ord(found[0]):04X}")
    return text


def encode_string(text: str) -> bytes:
    """Length and UTF-8.

    Raises:
        ValueError: the string is too long, or contains NUL or a surrogate.
    """
    raw = text.encode()
    if len(raw) > MAX_STRING:
        raise ValueError(f"a string of {len(raw)} bytes is longer than {MAX_STRING}")
    if b"\0" in raw:
        raise ValueError("a string holds U+0000")  # [MQTT-1.5.4-2]
    return len(raw).to_bytes(2, "big") + raw


def encode_binary(raw: bytes) -> bytes:
    """Length and bytes.

    Raises:
        ValueError: it is too long.
    """
    if len(raw) > MAX_STRING:
        raise ValueError(f"binary data of {len(raw)} bytes is longer than {MAX_STRING}")
    return len(raw).to_bytes(2, "big") + raw
