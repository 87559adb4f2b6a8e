"""The three protocol levels."""

from enum import IntEnum


class Version(IntEnum):
    """The protocol level byte of CONNECT."""

    V31 = 3
    V311 = 4
    V5 = 5

    def __str__(self) -> str:
        return {3: "3.1", 4: "3.1.1", 5: "5.0"}[self]
