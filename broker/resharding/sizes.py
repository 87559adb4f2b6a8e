"""How large the new parts will be, before anything is written. Where one message waits for many sessions, they are many
times as large as the former ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.resharding.new_parts import BATCH
from trunkline.broker.resharding.resharding import reshard
from trunkline.broker.session.durable import POSITIONS
from trunkline.store.engine import no_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.store import Engine, Progress, WriteBatch

#: Bytes of a file without rows.
EMPTY: Final = 48 << 10
#: Bytes that a row takes in a file besides its key and value, with its share of pages that are not full.
ROW: Final = 50
#: Bytes of a row of a queue, rather too many.
QUEUED: Final = 256


def most(former: Sequence[Engine], count: int) -> int:
    """Bytes that so many new parts do not exceed: what is known at once, and may be far too much."""
    present = EMPTY + sum(engine.size() for engine in former)
    return 2 * count * present + QUEUED * sum(engine.count(ENTRIES) * engine.count(POSITIONS) for engine in former)


def counted(former: Sequence[Engine], count: int, *, upgrade_qos: bool, progress: Progress = no_progress) -> int:
    """Bytes that so many new parts take on the disk while they are made, about. It takes almost as long as to make
    them.

    Raises:
        NotReshardable, StoreError: as `reshard`.
    """
    parts = [_CountedPart() for _ in range(count)]
    reshard(former, parts, upgrade_qos=upgrade_qos, progress=progress)
    size = sum(part.size for part in parts)
    return size + min(size, 2 * BATCH)  # and the logs of their last commits


class _CountedPart:
    """In the place of an engine."""

    def __init__(self) -> None:
        self.size = EMPTY

    def commit(self, batch: WriteBatch) -> None:
        self.size += batch.weight + ROW * len(batch)

    def maintain(self) -> None:
        """Nothing was written."""
