"""The sessions of a former part, each with all that it has, on the way to their homes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, Entry, entry_from_row, entry_key, entry_to_row
from trunkline.broker.resharding.waiting import BehindSession
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.memberships import MAX_TOTALS
from trunkline.broker.session.mqueue import LOWEST
from trunkline.broker.session.stored_queue import (
    NO_HEAD,
    PRIVATE,
    QueueHead,
    head_from_row,
    head_to_row,
    sequence_of,
)
from trunkline.broker.session.stored_will import WILLS
from trunkline.broker.session.stored_window import SENT, WINDOWS, RowKey
from trunkline.mqtt.packing import pack, unpack
from trunkline.router import Options
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.resharding.clocks import PartClock
    from trunkline.broker.resharding.new_parts import NewPart, NewParts
    from trunkline.broker.resharding.publications import Publications
    from trunkline.store import Engine

#: Where a publication is in a row of a window, by what the window is of.
_PLACE_IN_SENT: Final = 1
_PLACE_IN_AWAITED: Final = 2


class Moved(NamedTuple):
    """Where a session is now."""

    part: int
    number: int


class Sessions:
    def __init__(
        self,
        engine: Engine,
        parts: NewParts,
        publications: Publications,
        clock: PartClock,
        last: int,
        *,
        upgrade_qos: bool,
    ) -> None:
        """`last` is the last number that a new part has given."""
        self._engine = engine
        self._parts = parts
        self._publications = publications
        self._clock = clock
        self._last = last
        self._upgrade_qos = upgrade_qos
        #: By the former number.
        self._moved: dict[int, Moved] = {}

    def move(self, step: Callable[[], object]) -> None:
        """`step` is called after each row that was read. Rows of sessions that are not there are left out."""
        for space, move in (
            (SESSIONS, self._move_head),
            (SUBSCRIPTIONS, self._move_subscription),
            (WINDOWS, self._move_window),
            (ENTRIES, self._move_entry),
        ):
            for key, row in rows(self._engine, space):
                move(key, row)
                step()
        self._move_positions(step)

    def _at(self, key: bytes) -> tuple[Moved, NewPart, bytes] | None:
        """Where the session is whose number the key begins with, and the key of its new one."""
        moved = self._moved.get(number_of(key))
        return None if moved is None else (moved, self._parts.all[moved.part], key_of(moved.number))

    def _move_head(self, key: bytes, row: bytes) -> None:
        plain = unpack(row)
        at = self._parts.home_of(plain["client"]["client_id"])
        part = self._parts.all[at]
        part.sessions += 1
        self._moved[number_of(key)] = Moved(at, part.sessions)
        if plain["left_at"] is None:  # when the process ended
            row = pack({**plain, "left_at": self._clock.stored})
        elif self._clock.lag:
            row = pack({**plain, "left_at": plain["left_at"] + self._clock.lag})
        part.put(SESSIONS, key_of(part.sessions), row)

    def _move_subscription(self, key: bytes, row: bytes) -> None:
        if (found := self._at(key)) is not None:
            _, part, session = found
            part.put(SUBSCRIPTIONS, session + key[NUMBER_SIZE:], row)

    def _move_window(self, key: bytes, row: bytes) -> None:
        if (found := self._at(key)) is None:
            return
        moved, part, session = found
        if len(key) > NUMBER_SIZE:
            plain = unpack(row)
            is_sent = RowKey.of(key[NUMBER_SIZE:]).lane == SENT
            at = _PLACE_IN_SENT if is_sent else _PLACE_IN_AWAITED
            if plain[at] is not None:
                former, first, count, _ = plain[at]
                number = self._publications.in_window(moved.part, former)
                plain[at] = None if number is None else (number, first, count, ())
                if number is None and is_sent:
                    return  # its messages are lost
                row = pack(plain)
        part.put(WINDOWS, session + key[NUMBER_SIZE:], row)

    def _move_entry(self, key: bytes, row: bytes) -> None:
        entry = entry_from_row(key, row)
        moved = None if entry.own is None else self._moved.get(number_of(key) - PRIVATE)
        if moved is not None:
            self._put_entry(moved, entry)

    def _put_entry(self, moved: Moved, entry: Entry) -> None:
        """Into the queue of a session, with the new number of its publication."""
        number = self._publications.queued(moved.part, entry.number)
        if number is not None:
            entry = entry._replace(number=number, others=())
            key = entry_key(PRIVATE + moved.number, entry.sequence)
            self._parts.all[moved.part].put(ENTRIES, key, entry_to_row(entry))

    # What waits in backlogs

    def _move_positions(self, step: Callable[[], object]) -> None:
        backlogs = {unpack(row)[0]: number_of(key) for key, row in rows(self._engine, FILTERS)}  # the newest of each
        for key, row in rows(self._engine, POSITIONS):
            head = self._engine.get(SESSIONS, key)
            if head is not None and not (plain := unpack(head)).get("ended", False):
                self._move_position(key, unpack(row), plain["client"]["client_id"], backlogs)
            step()

    def _move_position(self, key: bytes, place: Any, client_id: str, backlogs: Mapping[str, int]) -> None:
        moved = self._moved[number_of(key)]
        part, session = self._parts.all[moved.part], key_of(moved.number)
        subscriptions = {
            row_key[NUMBER_SIZE:].decode(): Options(**unpack(row)[0])
            for row_key, row in rows(self._engine, SUBSCRIPTIONS, key, key_of(number_of(key) + 1))
        }
        behind = BehindSession(client_id, subscriptions, place, backlogs, upgrade_qos=self._upgrade_qos)
        former = self._engine.get(WINDOWS, key)
        head = NO_HEAD if former is None else head_from_row(former)
        queue = self._enqueue(moved, behind, head.queue)
        if queue is not head.queue:
            part.put(WINDOWS, session, head_to_row(head._replace(queue=queue)))
        kept = [filter for filter, options in subscriptions.items() if is_kept(filter, options)]
        begins = {filter: (self._last, 0, 0) for filter in kept if len(kept) <= MAX_TOTALS}
        part.put(POSITIONS, session, pack((self._last + 1, 0, begins)))

    def _enqueue(self, moved: Moved, behind: BehindSession, queue: QueueHead) -> QueueHead:
        """What waits goes behind all that is in the queue, which came before."""
        last, byte_size, levels = queue
        begin, length = levels.get(LOWEST, (last + 1, 0))
        for some in behind.waiting(self._engine):
            own = some.qos, some.target
            sequence = sequence_of(LOWEST, last + 1)
            self._put_entry(moved, Entry(sequence, some.number, some.first, some.length, some.weight, 0, 0, (), own))
            last, byte_size, length = last + some.length, byte_size + some.weight, length + some.length
        return queue if last == queue.last else QueueHead(last, byte_size, {**levels, LOWEST: (begin, length)})


def move_wills(engine: Engine, parts: NewParts, last: int) -> int:
    """Those of clients whose sessions are not stored. Returns the last number of all, if `last` is that before."""
    for _, row in rows(engine, WILLS):
        last += 1
        parts.home(unpack(row)["client"]["client_id"]).put(WILLS, key_of(last), row)
    return last
