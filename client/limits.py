"""How much may wait in a client: by number, and by weight, because one thing may weigh as much as a million others."""

from dataclasses import dataclass, fields
from typing import Final

MAX_QUEUED: Final = 1000
MAX_BUFFERED: Final = 1000
#: 64 MiB
MAX_BYTES: Final = 67_108_864


@dataclass(frozen=True, slots=True)
class WaitingLimits:
    #: Requests that wait to be sent. As many bytes again may wait for their acknowledgement.
    queued: int = MAX_QUEUED
    queued_bytes: int = MAX_BYTES
    #: Messages that wait for their user, in each receiver.
    buffered: int = MAX_BUFFERED
    buffered_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        """
        Raises:
            ValueError: one of them allows nothing.
        """
        for each in fields(self):
            if (value := getattr(self, each.name)) < 1:
                raise ValueError(f"max_{each.name} is 1 or more, not {value}")
