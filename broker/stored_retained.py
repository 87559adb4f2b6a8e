"""Retained messages in the store: a row each, under its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.mqtt.message_row import message_from_row, message_to_row, moment_from_wall, moment_to_wall
from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.batch import ROW_OVERHEAD

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
        change: Callable[..., object],
        refused: Iterable[str] = (),
    ) -> None:
        """`change` has `write` called at the next commit; `refused` names topics that were not restored: what is
        stored for them is deleted."""
        self._retained = retained
        self._epoch = epoch
        self._change = change
        #: With the bytes that wait for the store.
        self._changed: dict[str, int] = {}
        retained.changed = self._note
        for topic in refused:
            self._note(topic, 0)

    def _note(self, topic: str, weight: int) -> None:
        weight += ROW_OVERHEAD + len(topic)
        self._change(self, weight=weight - self._changed.get(topic, 0))
        self._changed[topic] = weight

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for topic in changed:
            kept = self._retained.kept(topic)
            if kept is None:
                batch.delete(RETAINED, topic.encode())
            else:
                batch.put_packed(RETAINED, topic.encode(), kept.weight, retained_to_bytes, kept, self._epoch)


def retained_to_bytes(kept: Retained, epoch: float) -> bytes:
    """`epoch` is what turns node time into seconds since the epoch."""
    # with an expiry interval of the node's own, it is kept for another time than the message says
    row = [kept.sequence, moment_to_wall(kept.deadline, epoch), message_to_row(kept.message, epoch)]
    return pack([*row, kept.version] if kept.version else row)


def restore_retained(retained: RetainedStore, rows: Iterable[Row], epoch: float) -> list[str]:
    """Keep what was stored, expired messages as well: they are swept as any other, out of the store too. Returns the
    topics of messages that are beyond the limits."""
    refused: list[str] = []
    for key, value in rows:
        sequence, deadline, row, *version = unpack(value)
        message, until = message_from_row(row, epoch), moment_from_wall(deadline, epoch)
        if retained.restore(message, until, sequence, *version).refused:
            refused.append(key.decode())
    return refused
