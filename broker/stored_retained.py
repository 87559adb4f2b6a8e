"""Retained messages in the store: a row each, under its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.message_row import message_from_row, message_to_row, moment_from_wall, moment_to_wall
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.router import RetainedStore
    from trunkline.router.retained import Retained
    from trunkline.store import Row, WriteBatch

RETAINED: Final = Space("retained")


class StoredRetained:
    """Those that have changed. Made when what was stored is restored: that is no change."""

    owner = None

    def __init__(
        self,
        retained: RetainedStore,
        epoch: float,
        change: Callable[[StoredRetained], object],
        refused: Iterable[str] = (),
    ) -> None:
        """`change` has `write` called at the next commit; `refused` names topics that were not restored: what is
        stored for them is deleted."""
        self._retained = retained
        self._epoch = epoch
        self._change = change
        self._changed: dict[str, None] = {}
        retained.changed = self._note
        for topic in refused:
            self._note(topic)

    def _note(self, topic: str) -> None:
        if not self._changed:
            self._change(self)
        self._changed[topic] = None

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for topic in changed:
            kept = self._retained.kept(topic)
            if kept is None:
                batch.delete(RETAINED, topic.encode())
            else:
                batch.put(RETAINED, *retained_to_row(kept, self._epoch))


def retained_to_row(kept: Retained, epoch: float) -> Row:
    """`epoch` is what turns node time into seconds since the epoch."""
    # with an expiry interval of the node's own, it is kept for another time than the message says
    row = [kept.sequence, moment_to_wall(kept.deadline, epoch), message_to_row(kept.message, epoch)]
    return kept.message.topic.encode(), pack(row)


def restore_retained(retained: RetainedStore, rows: Iterable[Row], epoch: float) -> list[str]:
    """Keep what was stored, expired messages as well: they are swept as any other, out of the store too. Returns the
    topics of messages that are beyond the limits."""
    refused: list[str] = []
    for key, value in rows:
        sequence, deadline, row = unpack(value)
        if retained.restore(message_from_row(row, epoch), moment_from_wall(deadline, epoch), sequence).refused:
            refused.append(key.decode())
    return refused
