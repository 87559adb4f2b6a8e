"""Figures and names as text. Clients choose the names, so these can hold any characters."""

import math
import unicodedata
from datetime import UTC, datetime
from typing import Final

#: Characters of a name that are shown.
MAX_NAME: Final = 80

_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_THOUSANDS: Final = ("", "k", "M", "G", "T")
#: Durations below the first figure (seconds) are written in this unit, whose length is the second.
_DURATIONS: Final = ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"))
_LONGER: Final = ((172_800.0, 3600.0, "h"), (float("inf"), 86_400.0, "d"))


def name(text: str) -> str:
    """With invisible characters, and those that turn the reading direction, spelled out; and not too long."""
    cut = text[:MAX_NAME]
    seen = "".join([_spelled(character) for character in cut])
    if len(text) > MAX_NAME:
        seen += f"… ({len(text)} characters)"
    return seen or "(empty)"


def _spelled(character: str) -> str:
    return character if unicodedata.category(character)[0] not in "CZ" or character == " " else ascii(character)[1:-1]


def whole(number: float) -> str:
    """All digits, in groups: 12 345."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def short(number: float) -> str:
    """Three digits and a letter: 12.3k."""
    return _scaled(number, _THOUSANDS, "")


def size(number: float) -> str:
    """Bytes, in steps of a thousand."""
    return _scaled(number, _SIZES, "\N{NO-BREAK SPACE}")


def _scaled(number: float, units: tuple[str, ...], gap: str) -> str:
    value, unit = float(number), 0
    while abs(value) >= 999.5 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{_digits(value)}{gap}{units[unit]}".rstrip()


def _digits(value: float) -> str:
    """Three of them, and no zeros behind the point."""
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """In a unit that needs few digits: 1.2 ms, 3 min."""
    for limit, length, unit in _DURATIONS + _LONGER:
        if abs(seconds) < limit:
            return f"{_digits(seconds / length)}\N{NO-BREAK SPACE}{unit}"
    raise ValueError(f"a duration of {seconds} seconds")


def moment(time: datetime) -> str:
    """Date and time of day, UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def share(part: float, whole: float) -> str:
    """In per cent, rounded down: 100% is all of it, and 0% nothing."""
    if not whole:
        return "–"
    percent = math.floor(100_000 * part / whole) / 1000
    return f"{percent:.5g}%" if percent or not part else "under 0.001%"


def count(number: int, one: str, many: str = "") -> str:
    """`1 client`, `2 clients`."""
    return f"{whole(number)} {one if number == 1 else many or one + 's'}"
