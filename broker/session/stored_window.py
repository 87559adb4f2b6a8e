"""The window of a stored session and its awaited PUBRELs: a row for all messages in a row that were sent, or that came,
together.

A row is written once and never changed: when some of its messages are complete, rows of the others take its place. So a
commit costs what has changed, however much is open. The keys of the rows sort them as their messages came, which is the
order in which they are sent again.  # [MQTT-4.6.0-1] [MQTT-4.6.0-4]
"""

from __future__ import annotations

from itertools import count as count_up
from itertools import groupby, pairwise
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from trunkline.broker.session.export import target_to_plain
from trunkline.mqtt.packing import pack
from trunkline.mqtt.session.awaiting_rel import AwaitingRel, Held
from trunkline.mqtt.session.window import Entry, Inflight
from trunkline.store import Space
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Delivery, Exported, Together
    from trunkline.mqtt.stored import Place, StoredPublication
    from trunkline.router import Target
    from trunkline.store import WriteBatch

    T: TypeAlias = Target[Subscriber]

E = TypeVar("E")

#: Under the number of a session alone: what is one of a kind. Under that and a `RowKey`: messages.
WINDOWS: Final = Space("windows")

_row_key: Final = Struct(">cQII")


class RowKey(NamedTuple):
    """What follows the number of the session in the key of a row."""

    #: `SENT` or `AWAITED`.
    lane: bytes
    #: Entries are numbered as they come.
    number: int
    #: Of the first message, in the numbers of its entry.
    first: int
    length: int

    @classmethod
    def of(cls, key: bytes) -> RowKey:
        return cls(*_row_key.unpack(key))

    @property
    def packed(self) -> bytes:
        return _row_key.pack(*self)


SENT: Final = b"s"
AWAITED: Final = b"a"


_NO_PLACES: Final[frozenset[tuple[int, int]]] = frozenset()


class EntryRows:
    """The rows of one entry."""

    __slots__ = ("first", "left", "number", "places")

    def __init__(self, number: int, first: int, left: int, places: frozenset[tuple[int, int]] = _NO_PLACES) -> None:
        self.number = number
        #: The number of its first message.
        self.first = first
        #: Messages that are open.
        self.left = left
        #: What is stored: of each row the position of the first message in the entry, and their number.
        self.places = places


class WindowRows(Generic[E]):
    """The rows of one lane of a session. What is sent has a lane, and what awaits its PUBREL."""

    __slots__ = (
        "_all",
        "_committer",
        "_key",
        "_lane",
        "_last",
        "_publications",
        "_rows_of",
        "_stored_of",
        "changed",
        "owner",
    )

    def __init__(
        self,
        committer: Committer,
        session: int,
        lane: bytes,
        stored_of: Callable[[E], StoredPublication | None],
        rows_of: Callable[[E, StoredPublication | None], Iterable[tuple[int, int, object]]],
    ) -> None:
        """`session` is its number in the store. `stored_of` gives an entry's publication, `rows_of` what there is to be
        stored of the entry: the position of the first message, their number, and the value of the row."""
        self._committer = committer
        self._publications = committer.publications
        self.owner: Ref[Any] | None = None
        #: The session's; None when its rows are deleted.
        self._key: bytes | None = key_of(session)
        self._lane = lane
        self._stored_of = stored_of
        self._rows_of = rows_of
        self._last = 0
        self._all: dict[E, EntryRows] = {}
        #: What is not stored as it is now.
        self.changed: dict[E, EntryRows] = {}

    def add(self, entry: E, first: int, count: int) -> None:
        """So many of its messages are open."""
        if not self.changed:
            self._committer.change(self)
        self._last += 1
        self._all[entry] = self.changed[entry] = EntryRows(self._last, first, count)

    def remove(self, entry: E, count: int) -> None:
        """So many of its messages are not open any more."""
        if not self.changed:
            self._committer.change(self)
        rows = self._all[entry]
        rows.left -= count
        if rows.left or rows.places:
            self.changed[entry] = rows
        else:  # it came and went between two commits
            self.changed.pop(entry, None)
        if not rows.left:
            del self._all[entry]

    def restored(self, entries: Iterable[tuple[E, RowKey]]) -> None:
        """These are all, and are stored."""
        self.changed.clear()
        self._all = {
            entry: EntryRows(key.number, key.first, key.length, frozenset([(0, key.length)])) for entry, key in entries
        }
        self._last = max([self._last, *(rows.number for rows in self._all.values())])

    def write(self, batch: WriteBatch) -> None:
        session_key = self._key
        if session_key is None:
            return
        changed, self.changed = self.changed, {}
        for entry, rows in changed.items():
            stored, before = self._stored_of(entry), rows.places
            if rows.left:
                if stored is not None and not before:
                    self._publications.put(stored, batch, 1)
                places: list[tuple[int, int]] = []
                for at, count, value in self._rows_of(entry, stored):
                    places.append((at, count))
                    if places[-1] not in before:
                        key = _row_key.pack(self._lane, rows.number, rows.first + at, count)
                        batch.put(WINDOWS, session_key + key, pack(value))
                rows.places = frozenset(places)
            else:
                rows.places = _NO_PLACES
                if stored is not None and before:
                    self._publications.unrefer(stored)
            for at, count in before - rows.places if before else ():
                key = _row_key.pack(self._lane, rows.number, rows.first + at, count)
                batch.delete(WINDOWS, session_key + key, put_once=True)

    def release(self) -> None:
        """The rows are deleted with those of the whole session: nothing refers to their publications any more."""
        self._key = None
        for entry, rows in (self._all | self.changed).items():
            stored = self._stored_of(entry)
            if rows.places and stored is not None:
                self._publications.unrefer(stored)


class StoredWindow(Inflight["T"]):
    """A window that tells the committer what it holds."""

    __slots__ = ("_publications", "rows")

    def __init__(self, committer: Committer, session: int, limit: int, max_bytes: int) -> None:
        """`session` is its number in the store."""
        super().__init__(limit, max_bytes)
        self._publications = committer.publications
        self.rows: WindowRows[Entry[T]] = WindowRows(committer, session, SENT, _stored_of_entry, self._rows_of)

    def insert(self, publication: Publication, target: T, qos: int, now: float, delivery: Delivery = "live") -> range:
        stored = self._publications.of(publication)
        packet_ids = super().insert(publication, target, qos, now, delivery)
        if packet_ids:
            stored.pins += len(packet_ids)
            self.rows.add(self._entries[packet_ids.start], packet_ids.start, len(packet_ids))
        return packet_ids

    def end(self, packet_ids: Sequence[int]) -> Sequence[Together[T]]:
        ended = super().end(packet_ids)
        for entry, together in ended:
            self._publications.unpin(stored_of(entry.publication), len(together))
            self.rows.remove(entry, len(together))
        return ended

    def release(self, packet_ids: Sequence[int], now: float, keeps_payload: object = False) -> Sequence[Together[T]]:
        taken: list[Together[T]] = []
        for ascending in _ascending(packet_ids):  # so that the keys sort them as they came
            for entry, together in super().release(ascending, now, keeps_payload):
                self.rows.remove(entry, len(together))
                self.rows.add(self._entries[together[0]], entry.first_id, len(together))
                taken.append((entry, together))
        return taken

    def restore(self, last_id: int, entries: Iterable[Exported[T]], now: float) -> None:
        entries = list(entries)
        for _, _, publication, _ in entries:
            stored_of(publication).pins += publication.count
        super().restore(last_id, entries, now)

    def take_over(self, window: Inflight[T]) -> None:
        """What is in this window, which is not stored, is in here as well."""
        last_id, entries = window.export()
        for _, _, publication, _ in entries:
            self._publications.of(publication)
        self.restore(last_id, entries, 0.0)
        for entry in self._entries.values():
            self.rows.add(entry, entry.first_id, 1)

    def restored(self, keys: Iterable[RowKey]) -> None:
        """What is here came from these rows, and no others."""
        self.rows.restored([(self._entries[key.first], key) for key in keys])

    def _rows_of(self, entry: Entry[T], stored: StoredPublication | None) -> Iterable[tuple[int, int, object]]:
        assert stored is not None
        publication, state, target = entry.publication, int(entry.state), target_to_plain(entry.target)
        if publication.count == 1:
            return ((0, 1, (state, stored.place(publication.guid, 1), target)),)
        entries, first_id = self._entries, entry.first_id
        is_open = [entries.get(first_id + position) is entry for position in range(publication.count)]
        return [
            (position, place[2], (state, place, target))
            for position, place in _stretches(is_open, publication.guids, stored)
        ]


class StoredAwaitingRel(AwaitingRel):
    """Awaited PUBRELs whose messages are stored."""

    __slots__ = ("_publications", "rows")

    def __init__(self, committer: Committer, session: int, maximum: int, max_bytes: int) -> None:
        """`session` is its number in the store."""
        super().__init__(maximum, max_bytes)
        self._publications = committer.publications
        self.rows: WindowRows[Held] = WindowRows(committer, session, AWAITED, _stored_of_held, self._rows_of)

    def receive(
        self, packet_ids: Sequence[int], publication: Publication | None, weight: int, now: float = 0.0
    ) -> bool:
        is_taken = super().receive(packet_ids, publication, weight, now)
        if is_taken:
            if publication is not None:
                self._publications.of(publication)  # what came together is stored together
            self.rows.add(self.open[packet_ids[0]][0], 0, len(packet_ids))
        return is_taken

    def release(self, packet_ids: Sequence[int]) -> list[Publication | None]:
        for held, group in groupby([self.open[packet_id][0] for packet_id in packet_ids]):
            self.rows.remove(held, len(list(group)))
        return super().release(packet_ids)

    def restored(self, keys: Iterable[tuple[int, RowKey]]) -> None:
        """What is here came from these rows, and no others. With each the first packet id."""
        self.rows.restored([(self.open[packet_id][0], key) for packet_id, key in keys])

    def _rows_of(self, held: Held, stored: StoredPublication | None) -> Iterable[tuple[int, int, object]]:
        opened, packet_ids = self.open, held.packet_ids
        is_open = [opened.get(packet_id, _NO_HELD)[0] is held for packet_id in packet_ids]
        weight = held.weight // len(packet_ids)
        guids = range(len(packet_ids)) if held.publication is None else held.publication.guids
        for position, place in _stretches(is_open, guids, stored):
            ids = list(packet_ids[position : position + place[2]])
            yield position, place[2], (ids, weight, None if stored is None else place)


_NO_HELD: Final = (None, 0)


def stored_of(publication: Publication) -> StoredPublication:
    stored = publication.stored
    assert stored is not None  # it is in a durable session
    return stored


_stored_of_entry: Final[Callable[[Entry[Any]], StoredPublication | None]] = attrgetter("publication.stored")


def _stored_of_held(held: Held) -> StoredPublication | None:
    return None if held.publication is None else held.publication.stored


def _stretches(
    is_open: Sequence[bool], guids: Sequence[int], stored: StoredPublication | None
) -> Iterator[tuple[int, Place]]:
    """Open messages that stand in a row in their publication: the position of the first one in the entry, and their
    place."""
    if isinstance(guids, range) and all(is_open):
        yield 0, _place(stored, guids[0], len(is_open))
        return
    positions = [position for position, each in enumerate(is_open) if each]
    numbers = count_up()
    for _, group in groupby(positions, lambda position: (position - (index := next(numbers)), guids[position] - index)):
        together = list(group)
        yield together[0], _place(stored, guids[together[0]], len(together))


def _place(stored: StoredPublication | None, guid: int, count: int) -> Place:
    return (0, 0, count, ()) if stored is None else stored.place(guid, count)


def _ascending(packet_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    first = 0
    for index, (before, after) in enumerate(pairwise(packet_ids), 1):
        if after <= before:
            yield packet_ids[first:index]
            first = index
    yield packet_ids[first:]
