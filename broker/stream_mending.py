"""The streams of a store of which rows are lost: what leads nowhere goes, and what is there is counted anew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trunkline.store import WriteBatch
from trunkline.store.clock import StoreClock
from trunkline.store.engine import rows
from trunkline.streams.keys import OF_A_STREAM, STREAMS, stream_key, stream_number
from trunkline.streams.recount import recount
from trunkline.streams.registry import StreamRegistry

if TYPE_CHECKING:
    from trunkline.store import Engine
    from trunkline.streams.stream import Stream


class _StandingClock:
    """Nothing of what is told here depends on the time."""

    def calendar(self) -> float:
        return 0.0

    def boot(self) -> None:
        return None

    def correction(self) -> float:
        return 0.0


def mend_streams(engine: Engine) -> Counter[str]:
    """Returns how many messages are lost of which streams."""
    _delete_leftovers(engine)
    registry = StreamRegistry(StoreClock(_StandingClock(), 0.0), _nobody)
    registry.restore(engine)
    lost = Counter({stream.name: recount(stream, engine) for stream in registry})
    has_more = True
    while has_more:
        batch = WriteBatch()
        has_more = registry.write(batch)
        registry.stored(registry.take_written())
        engine.commit(batch)
        engine.maintain()
    return +lost


def _delete_leftovers(engine: Engine) -> None:
    """What belongs to streams that are lost: another one may get the number."""
    known = {stream_number(key) for key, _ in rows(engine, STREAMS)}
    batch = WriteBatch()
    for space in OF_A_STREAM:
        number = 0
        while found := engine.scan(space, stream_key(number), limit=1):
            number = stream_number(found[0][0])
            if number not in known:
                batch.delete_range(space, stream_key(number), stream_key(number + 1))
            number += 1
    engine.commit(batch)


def _nobody(stream: Stream, *, has_work: bool) -> None:
    """Hears of changes."""
