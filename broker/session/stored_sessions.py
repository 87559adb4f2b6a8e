"""What a store holds of sessions, as rows: read at the start of a node, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from trunkline.broker.alive_note import ALIVE, CLOCK, NODE
from trunkline.broker.backlogs.rows import FILTERS, filter_from_row
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_queue import NO_HEAD, StoredHead, head_from_row, private_entries
from trunkline.broker.session.stored_will import WILLS
from trunkline.broker.session.stored_window import SENT, WINDOWS, RowKey
from trunkline.broker.stored_publications import MESSAGES, queued_among
from trunkline.mqtt.packing import pack, unpack
from trunkline.store.clock import Note
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of, rows

if TYPE_CHECKING:
    from trunkline.broker.backlogs.rows import StoredBacklog
    from trunkline.mqtt.stored import IndexEntry, Place
    from trunkline.store import Engine, Row, Space

#: What `ALIVE` would say of a store that was never written.
NEVER: Final = pack((0.0, 0, 0.0))
#: What an earlier version does not say.
EARLIER: Final = pack(())


@dataclass(slots=True)
class StoredSession:
    #: Of the client, the will and the expiry.
    head: bytes
    #: What has to be known of it at the start: the client id, when the client left (None: it was connected), how long
    #: the session lasts from then on (None: for ever), and whether it has a will.
    client_id: str
    left_at: float | None
    expiry_interval: float | None
    has_will: bool
    #: Whether only its messages are left, those of shared groups for other members.
    has_ended: bool
    subscriptions: list[tuple[str, bytes]] = field(default_factory=list["tuple[str, bytes]"])
    position: bytes = b""
    sent: list[tuple[RowKey, bytes]] = field(default_factory=list["tuple[RowKey, bytes]"])
    awaited: list[tuple[RowKey, bytes]] = field(default_factory=list["tuple[RowKey, bytes]"])
    #: Also what is known of the queue, whose rows are not read.
    window_head: StoredHead = NO_HEAD

    @property
    def is_idle(self) -> bool:
        """Whether its window is empty."""
        return not (self.sent or self.awaited)


@dataclass(slots=True)
class Found:
    """What a store holds."""

    #: The broker was last known to run then; 0 in a store that was never written.
    note: Note
    sessions: dict[int, StoredSession]
    records: dict[int, bytes]
    #: By the numbers of the records: the entries of backlogs that refer to them, too, and what the store says of their
    #: rows in queues.
    referred: dict[int, tuple[IndexEntry, ...]]
    queued: dict[int, int]
    #: The last number that was given to a publication.
    last_number: int
    #: Sessions of which only a part is left, as a damaged store was repaired: the publications that waited for them
    #: alone, one for each row.
    remains: dict[int, list[int]]
    backlogs: list[StoredBacklog]
    #: Of clients that were connected, by sessions that are not stored.
    wills: list[Row]


def find(engine: Engine) -> Found:
    """Read the rows of sessions and of the messages in their windows: what waits, waits there. It takes long: call it
    in a thread."""
    alive, last_number, calendar = unpack(engine.get(NODE, ALIVE) or NEVER)
    note = Note(alive, calendar, *unpack(engine.get(NODE, CLOCK) or EARLIER))
    sessions = {number_of(key): _session(value) for key, value in rows(engine, SESSIONS)}
    remains: dict[int, list[int]] = {}
    referred: dict[int, tuple[IndexEntry, ...]] = {}
    for space in (SUBSCRIPTIONS, WINDOWS, POSITIONS):
        for key, value in rows(engine, space):
            stored = sessions.get(number_of(key))
            place = place_in(space, key, value)
            if place is not None:
                referred[place[0]] = place[3]
            if stored is None:
                remains[number_of(key)] = []
                continue
            if space == SUBSCRIPTIONS:
                stored.subscriptions.append((key[NUMBER_SIZE:].decode(), value))
            elif space == POSITIONS:
                stored.position = value
            elif len(key) == NUMBER_SIZE:
                stored.window_head = head_from_row(value)
            else:
                row_key = RowKey.of(key[NUMBER_SIZE:])
                (stored.sent if row_key.lane == SENT else stored.awaited).append((row_key, value))
    for number, places in remains.items():
        for entry in private_entries(engine, number):
            referred[entry.number] = entry.others
            places.append(entry.number)
    records = {number: record for number in referred if (record := engine.get(MESSAGES, key_of(number))) is not None}
    backlogs = [filter_from_row(key, value) for key, value in rows(engine, FILTERS)]
    wills = list(rows(engine, WILLS))
    last_number = max(
        [last_number, *records, *[found.last for found in backlogs], *[number_of(key) for key, _ in wills]]
    )
    queued = queued_among(engine, records)
    return Found(note, sessions, records, referred, queued, last_number, remains, backlogs, wills)


def _session(head: bytes) -> StoredSession:
    plain = unpack(head)
    left_at, expiry_interval, has_will = plain["left_at"], plain["expiry_interval"], plain["will"] is not None
    has_ended = plain.get("ended", False)  # not in rows of the first releases
    return StoredSession(head, plain["client"]["client_id"], left_at, expiry_interval, has_will, has_ended)


def place_in(space: Space, key: bytes, value: bytes) -> Place | None:
    """The place of the messages that a row refers to."""
    if space == WINDOWS and len(key) > NUMBER_SIZE:
        plain = unpack(value)
        return cast("Place | None", plain[1] if RowKey.of(key[NUMBER_SIZE:]).lane == SENT else plain[2])
    return None
