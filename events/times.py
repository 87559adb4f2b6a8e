"""Times as the log has them, in microseconds since the epoch."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def from_microseconds(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(time: datetime) -> int:
    """A time without zone is one of UTC."""
    return (time.replace(tzinfo=time.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)
