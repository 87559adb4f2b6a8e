"""How much may wait in a client: by number, and by weight, because one thing may weigh as much as a million others."""

from typing import Final, NamedTuple

MAX_QUEUED: Final = 1000
MAX_BUFFERED: Final = 1000
#: 64 MiB
MAX_BYTES: Final = 67_108_864


class WaitingLimits(NamedTuple):
    #: Requests that wait to be sent. As many bytes again may wait for their acknowledgement.
    queued: int = MAX_QUEUED
    queued_bytes: int = MAX_BYTES
    #: Messages that wait for their user, in each receiver.
    buffered: int = MAX_BUFFERED
    buffered_bytes: int = MAX_BYTES
