"""A consumer gets another receiver, which knows better than the consumer how far it has come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.streams.config import AckPolicy
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.stream import Stream


def come_to(stream: Stream, cursor: ConsumerCursor, sequence: int, now: float) -> None:
    """The receiver has everything up to this sequence: more, perhaps, than is known here."""
    last = max((each for each in cursor.outstanding if each <= sequence), default=None)
    if last is not None:
        stream.ack(cursor, last, now)
    if cursor.position <= sequence:
        cursor.go_to(stream.log, sequence + 1)
        stream.consumers.interest_ended = True
        stream.attend()


def acknowledge_by(stream: Stream, cursor: ConsumerCursor, policy: AckPolicy, now: float) -> None:
    """The receiver acknowledges in this way. What was delivered to the former one and is not acknowledged comes
    again."""
    if policy is not cursor.config.ack_policy:
        cursor.configure(replace(cursor.config, ack_policy=policy))
    for sequence, entry in cursor.outstanding.items():
        cursor.outstanding.wait(sequence, entry, now)
    stream.consumers.note(cursor)
