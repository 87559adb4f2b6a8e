"""Retained messages: every new part has all. Of what the former parts have of a topic, the newest is kept."""

from __future__ import annotations

from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from trunkline.broker.shards.outbox import SPREADING
from trunkline.broker.stored_retained import RETAINED
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.mqtt.packing import pack, unpack
from trunkline.store.engine import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.broker.resharding.clocks import PartClock
    from trunkline.broker.resharding.new_parts import NewParts
    from trunkline.store import Engine


class _Kept(NamedTuple):
    """Of one topic at one part."""

    topic: bytes
    part: int
    row: bytes


def merge_retained(
    former: Sequence[Engine], clocks: Sequence[PartClock], parts: NewParts, step: Callable[[], object]
) -> None:
    """`step` is called after each row that was read."""
    spreading = [{key: int(unpack(row)) for key, row in rows(engine, SPREADING)} for engine in former]
    each = [_kept(engine, part) for part, engine in enumerate(former)]
    for topic, group in groupby(merge(*each), key=itemgetter(0)):
        found = list(group)
        newest = max(found, key=lambda kept: (_version(kept), -kept.part))
        # what a part has spread and does not have is a deletion, which others may not know of yet
        having = {kept.part for kept in found}
        deletions = [versions.get(topic, 0) for part, versions in enumerate(spreading) if part not in having]
        if max(deletions, default=0) <= _version(newest):
            parts.put_in_all(RETAINED, topic, _moved(newest.row, clocks[newest.part].lag))
        for _ in found:
            step()


def _kept(engine: Engine, part: int) -> Iterator[_Kept]:
    for topic, row in rows(engine, RETAINED):
        yield _Kept(topic, part, row)


def _version(kept: _Kept) -> int:
    _, _, _, *version = unpack(kept.row)
    return version[0] if version else 0


def _moved(row: bytes, lag: float) -> bytes:
    """With its moments in the time of the new parts."""
    if not lag:
        return row
    sequence, deadline, message, *version = unpack(row)
    moved = message_to_row(message_from_row(message, 0.0), lag)
    return pack([sequence, None if deadline is None else deadline + lag, moved, *version])
