"""Numbers as they stand in headers and subjects, which anybody may have written."""

from __future__ import annotations

from typing import Final

_LARGEST: Final = (1 << 64) - 1
#: Python refuses to read thousands of them.
_MOST_DIGITS: Final = len(str(_LARGEST))


def number_of(text: str | bytes) -> int | None:
    """None: it is none, or does not fit 64 bits."""
    if not (text.isdigit() and text.isascii() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number <= _LARGEST else None
