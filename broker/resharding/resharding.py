"""All parts of a store, dealt to another number of parts. The former ones are read, and stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, QUEUES
from trunkline.broker.resharding.clocks import Clocks
from trunkline.broker.resharding.new_parts import NewParts
from trunkline.broker.resharding.plugin_rows import merge_plugins
from trunkline.broker.resharding.publications import Publications
from trunkline.broker.resharding.retained import merge_retained
from trunkline.broker.resharding.sessions import Sessions, move_wills
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_will import WILLS
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.broker.shards.outbox import OUTBOX, SPREADING
from trunkline.broker.shards.places import LINKS
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.broker.stored_retained import RETAINED
from trunkline.plugins.store import PLUGINS
from trunkline.store import StoreError
from trunkline.store.engine import no_progress, rows
from trunkline.streams.keys import OF_A_STREAM, STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.resharding.new_parts import PartFile
    from trunkline.store import Engine, Progress, Space

#: What goes to the first part as it is: a node has its streams there.
_STREAM_SPACES: Final = (STREAMS, *OF_A_STREAM)
#: Rows that are read once, as they are dealt.
_DEALT: Final = (SESSIONS, SUBSCRIPTIONS, WINDOWS, ENTRIES, POSITIONS, MESSAGES, RETAINED, PLUGINS, *_STREAM_SPACES)
_KNOWN: Final = frozenset((*_DEALT, WILLS, REFERENCES, FILTERS, QUEUES, LINKS, OUTBOX, SPREADING, NODE))
#: Rows between two steps of the progress.
_ROWS_A_STEP: Final = 1000


class NotReshardable(StoreError):
    """What is in the store cannot be divided anew as it is."""


class StartNeeded(NotReshardable):
    """Not before a node of as many workers as it has parts has run with it."""


def reshard(
    former: Sequence[Engine], new: Sequence[PartFile], *, upgrade_qos: bool, progress: Progress = no_progress
) -> None:
    """The new parts are empty. `upgrade_qos` is `session.upgrade_qos`.

    Raises:
        NotReshardable, StartNeeded: the former parts have something that cannot be dealt.
        StoreError: a former part cannot be read, or a new one not be written. The new ones are not to be used.
    """
    for number, engine in enumerate(former):
        _check(engine, number)
    steps = _Steps(former, progress)
    home_of = Homes(0, dealt(len(new))).home_of
    parts = NewParts(new, home_of)
    clocks = Clocks(former)
    last = sum(engine.count(space) for engine in former for space in (MESSAGES, WILLS))
    given = 0
    for engine, clock in zip(former, clocks.parts, strict=True):
        publications = Publications(engine, parts, given)
        Sessions(engine, parts, publications, clock, last, upgrade_qos=upgrade_qos).move(steps.done)
        publications.copy(clock.lag, steps.done)
        given = publications.last
    for engine in former:
        given = move_wills(engine, parts, given)
    merge_retained(former, clocks.parts, parts, steps.done)
    merge_plugins(former, clocks.parts, parts, steps.done)
    for space in _STREAM_SPACES:
        for key, row in rows(former[0], space):
            parts.all[0].put(space, key, row)
            steps.done()
    for key, row in clocks.rows(last):
        parts.put_in_all(NODE, key, row)
    parts.flush()
    steps.end()


class _Steps:
    def __init__(self, former: Sequence[Engine], progress: Progress) -> None:
        self._total = sum(engine.count(space) for engine in former for space in _DEALT)
        self._done = 0
        self._progress = progress

    def done(self) -> None:
        self._done += 1
        if not self._done % _ROWS_A_STEP:
            self._progress(self._done, self._total)

    def end(self) -> None:
        self._progress(self._total, self._total)


def _check(engine: Engine, number: int) -> None:
    for space in engine.spaces():
        if space not in _KNOWN and engine.count(space):
            raise NotReshardable(f"part {number} has {_rows(engine, space)}, of which this version does not know")
    if engine.count(QUEUES):
        raise StartNeeded(f"part {number} has {_rows(engine, QUEUES)}, as an earlier version wrote them")
    if engine.count(OUTBOX):
        text = "publications that another worker has not got yet"
        raise StartNeeded(f"part {number} has {_rows(engine, OUTBOX)}, {text}")
    if number and any(engine.count(space) for space in _STREAM_SPACES):
        raise NotReshardable(f"part {number} has streams, and only those of part 0 can be kept")


def _rows(engine: Engine, space: Space) -> str:
    return f"{engine.count(space):,} rows of {space.name}"
