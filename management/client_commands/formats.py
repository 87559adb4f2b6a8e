"""How messages are printed: `-F FORMAT` with the sequences of mosquitto_sub, compiled to functions.

Widths count bytes, as there. What a message brings is made fit for a terminal when it goes to one; what the format
itself says is not.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from trunkline.management.client_commands.json_form import NotJson, as_json
from trunkline.management.logs import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.client.received import ReceivedMessage

_TOKEN: Final = re.compile(
    r"%(?P<left_or_zero>[-0]*)(?P<width>\d*)(?P<point>\.?)(?P<cut>\d*)(?P<letter>.?)|@(?P<time>.?)|\\(?P<escape>.?)|[^%@\\]+",
    re.DOTALL,
)
_ESCAPES: Final = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\x1b", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
#: Widths beyond it are mistakes.
MAX_WIDTH: Final = 10_000


class Moment(NamedTuple):
    """When messages came."""

    seconds: int
    nanoseconds: int

    @classmethod
    def now(cls) -> Moment:
        return cls(*divmod(time.time_ns(), 1_000_000_000))

    def local(self, form: str) -> str:
        return time.strftime(form, time.localtime(self.seconds))

    @property
    def stamp(self) -> str:
        """With microseconds."""
        return f"{self.local('%Y-%m-%dT%H:%M:%S')}.{self.nanoseconds // 1000:06d}{self.local('%z')}"


Piece: TypeAlias = "Callable[[ReceivedMessage, Moment], bytes]"


class Field(NamedTuple):
    """Between % and the letter."""

    left: bool
    zero: bool
    width: int
    cut: int | None

    def text(self, value: bytes) -> bytes:
        value = value[: self.cut]
        return value.ljust(self.width) if self.left else value.rjust(self.width)

    def number(self, value: int | None) -> bytes:
        padding = b"0" if self.zero else b" "
        if value is None:
            return padding * self.width
        digits = b"%d" % value
        return digits.ljust(self.width) if self.left else digits.rjust(self.width, padding)

    def payload(self, value: bytes) -> bytes:
        """A width cuts it, too."""
        if self.left:
            return value[: self.width or None].ljust(self.width)
        return value[: self.width or None].rjust(self.width, b"0" if self.zero else b" ")

    def hexadecimal(self, value: bytes, *, upper: bool) -> bytes:
        digits = value[: self.width // 2 if self.width else None].hex().encode()
        return self.payload(digits.upper() if upper else digits)


def raw(value: bytes) -> bytes:
    return value


def for_terminal(value: bytes) -> bytes:
    """Without control characters: they could change what was shown before."""
    return printable(value.decode("utf-8", "backslashreplace")).encode()


def lines_for_terminal(value: bytes) -> bytes:
    """A payload may have several lines."""
    text = value.decode("utf-8", "backslashreplace")
    return "".join(each if each in "\n\t" else printable(each) for each in re.split(r"([\n\t])", text)).encode()


def compiled(
    form: str, *, terminal: bool = False, pretty: bool = False, on_problem: Callable[[str], object] = print
) -> Piece:
    """
    Raises:
        ValueError: a sequence is unknown or incomplete.
    """
    pieces = [_piece(token, terminal, pretty, on_problem) for token in _TOKEN.finditer(form)]
    if len(pieces) == 1:
        return pieces[0]
    return lambda message, moment: b"".join([piece(message, moment) for piece in pieces])


def _piece(token: re.Match[str], terminal: bool, pretty: bool, on_problem: Callable[[str], object]) -> Piece:
    whole = token[0]
    if whole[0] == "\\":
        if token["escape"] not in _ESCAPES:
            known = " ".join("\\" + each for each in _ESCAPES)
            raise ValueError(f"{whole} is none of {known}")
        return _constant(_ESCAPES[token["escape"]])
    if whole[0] == "@":
        return _time(token["time"])
    if whole[0] != "%":
        return _constant(whole.encode("utf-8", "surrogateescape"))
    width = int(token["width"] or 0)
    if width > MAX_WIDTH:
        raise ValueError(f"{whole}: a width is {MAX_WIDTH} at most")
    cut = int(token["cut"] or 0) if token["point"] else None
    field = Field("-" in token["left_or_zero"], "0" in token["left_or_zero"], width, cut)
    letter = token["letter"]
    if letter in ("j", "J"):
        return _json(letter == "J", pretty, on_problem)
    if letter not in _LETTERS:
        why = "the client does not show packet ids" if letter == "m" else f"% takes {' '.join(_LETTERS)} j J"
        raise ValueError(f"{whole}: {why}" if letter else f"{whole} is incomplete")
    text, lines = (for_terminal, lines_for_terminal) if terminal else (raw, raw)
    return _LETTERS[letter](field, text, lines)


def _constant(value: bytes) -> Piece:
    return lambda message, moment: value


def _time(letter: str) -> Piece:
    if not letter:
        raise ValueError("@ is incomplete")
    if letter == "@":
        return _constant(b"@")
    if letter == "N":
        return lambda message, moment: b"%09d" % moment.nanoseconds
    return lambda message, moment: moment.local(f"%{letter}").encode()


def _json(embedded: bool, pretty: bool, on_problem: Callable[[str], object]) -> Piece:
    def piece(message: ReceivedMessage, moment: Moment) -> bytes:
        try:
            return as_json(message, moment.stamp, "json" if embedded else "text", pretty=pretty)
        except NotJson:
            on_problem(f"the payload on topic {message.topic} is not JSON")
            return b""

    return piece


Shown: TypeAlias = "Callable[[bytes], bytes]"
_Letter: TypeAlias = "Callable[[Field, Shown, Shown], Piece]"


def _pairs(message: ReceivedMessage) -> bytes:
    return " ".join(f"{name}:{value}" for name, value in message.properties.get("user_property", ())).encode()


def _identifier(message: ReceivedMessage) -> int | None:
    return next(iter(message.properties.get("subscription_identifier", ())), None)


_LETTERS: Final[dict[str, _Letter]] = {
    "%": lambda field, text, lines: _constant(b"%"),
    "A": lambda field, text, lines: lambda message, moment: field.number(message.properties.get("topic_alias")),
    "C": lambda field, text, lines: (
        lambda message, moment: field.text(text(message.properties.get("content_type", "").encode()))
    ),
    "D": lambda field, text, lines: lambda message, moment: lines(message.properties.get("correlation_data", b"")),
    "E": lambda field, text, lines: (
        lambda message, moment: field.number(message.properties.get("message_expiry_interval"))
    ),
    "F": lambda field, text, lines: (
        lambda message, moment: field.number(message.properties.get("payload_format_indicator"))
    ),
    "I": lambda field, text, lines: lambda message, moment: field.text(moment.local("%Y-%m-%dT%H:%M:%S%z").encode()),
    "P": lambda field, text, lines: lambda message, moment: text(_pairs(message)),
    "R": lambda field, text, lines: (
        lambda message, moment: field.text(text(message.properties.get("response_topic", "").encode()))
    ),
    "S": lambda field, text, lines: lambda message, moment: field.number(_identifier(message)),
    "U": lambda field, text, lines: lambda message, moment: b"%d.%09d" % moment,
    "X": lambda field, text, lines: lambda message, moment: field.hexadecimal(message.payload, upper=True),
    "l": lambda field, text, lines: lambda message, moment: field.number(len(message.payload)),
    "p": lambda field, text, lines: lambda message, moment: field.payload(lines(message.payload)),
    "q": lambda field, text, lines: lambda message, moment: b"%d" % message.qos,
    "r": lambda field, text, lines: lambda message, moment: b"%d" % message.retain,
    "t": lambda field, text, lines: lambda message, moment: field.text(text(message.topic.encode())),
    "x": lambda field, text, lines: lambda message, moment: field.hexadecimal(message.payload, upper=False),
}
