"""Numbers as they stand in headers and subjects, which anybody may have written."""

from __future__ import annotations

from typing import Final

#: Those of the largest number that fits 64 bits. Python refuses to read thousands of them.
MOST_DIGITS: Final = 20


def number_of(text: str | bytes) -> int | None:
    """None: it is none, or larger than any that is meant."""
    return int(text) if text.isdigit() and text.isascii() and len(text) <= MOST_DIGITS else None
