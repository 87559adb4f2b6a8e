"""SASLprep (RFC 4013): one spelling for names and passwords that look the same, from the tables of the standard
library."""

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def prepare(text: str) -> str:
    """The prepared form.

    Raises:
        ValueError: it contains characters that are not allowed, or mixes writing directions.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    for char in prepared:
        if any(table(char) for table in _PROHIBITED):
            raise ValueError(f"U+{ord(char):04X} is not allowed")
    right_to_left = [stringprep.in_table_d1(char) for char in prepared]
    if any(right_to_left) and (
        not (right_to_left[0] and right_to_left[-1]) or any(stringprep.in_table_d2(char) for char in prepared)
    ):
        raise ValueError("left-to-right and right-to-left text are mixed")
    return prepared
