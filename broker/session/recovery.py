"""The sessions that a store holds, brought back at the start of a node.  # [MQTT-3.1.2-23]"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.broker.backlogs.rows import FILTERS, filter_from_row
from trunkline.broker.committer import ALIVE, MESSAGES, NODE
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.durable import (
    POSITIONS,
    QUEUES,
    SESSIONS,
    SUBSCRIPTIONS,
    Durable,
    Run,
    delete_session,
    key_of,
)
from trunkline.broker.session.export import restore_head, target_from_plain
from trunkline.broker.session.stored_window import SENT, WINDOWS, RowKey, stored_of
from trunkline.hooks.client import client_from_plain
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored import StoredPublication
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.router import Options
from trunkline.store.engine import rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.broker.backlogs.rows import StoredBacklog
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.actor import SessionActor
    from trunkline.broker.session.directory import Directory
    from trunkline.mqtt.awaiting_rel import Exported as Awaited
    from trunkline.mqtt.inflight import Exported
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.stored import IndexEntry, Place
    from trunkline.router import Router, Target
    from trunkline.store import Engine, Space, WriteBatch

_NUMBER: Final = 8
#: What `ALIVE` would say of a store that was never written.
NEVER: Final = pack((0.0, 0, 0.0))

_logger = logging.getLogger("trunkline.store")


@dataclass(slots=True)
class StoredSession:
    head: dict[str, Any]
    subscriptions: list[tuple[str, bytes]] = field(default_factory=list["tuple[str, bytes]"])
    window_head: bytes = b""
    position: bytes = b""
    sent: list[tuple[RowKey, bytes]] = field(default_factory=list["tuple[RowKey, bytes]"])
    awaited: list[tuple[RowKey, bytes]] = field(default_factory=list["tuple[RowKey, bytes]"])
    queue: list[tuple[int, bytes]] = field(default_factory=list["tuple[int, bytes]"])


@dataclass(slots=True)
class Found:
    """What a store holds."""

    #: The broker was last known to run then, in the store's time and by the system's clock.
    alive: float
    wall: float
    sessions: dict[int, StoredSession]
    records: dict[int, bytes]
    #: By the numbers of the records: the entries of backlogs that refer to them, too.
    referred: dict[int, tuple[IndexEntry, ...]]
    #: The last number that was given to a publication.
    last_number: int
    #: Sessions of which only a part is left: a damaged store was repaired.
    remains: set[int]
    backlogs: list[StoredBacklog]


def find(engine: Engine) -> Found:
    """Read all rows of sessions and messages. It takes long: call it in a thread."""
    alive, last_number, wall = unpack(engine.get(NODE, ALIVE) or NEVER)
    sessions = {_number(key): StoredSession(unpack(value)) for key, value in rows(engine, SESSIONS)}
    remains = set[int]()
    referred: dict[int, tuple[IndexEntry, ...]] = {}
    for space in (SUBSCRIPTIONS, WINDOWS, QUEUES, POSITIONS):
        for key, value in rows(engine, space):
            stored = sessions.get(_number(key))
            place = _place(space, key, value)
            if place is not None:
                referred[place[0]] = place[3]
            if stored is None:
                remains.add(_number(key))
                continue
            if space == SUBSCRIPTIONS:
                stored.subscriptions.append((key[_NUMBER:].decode(), value))
            elif space == QUEUES:
                stored.queue.append((int.from_bytes(key[_NUMBER:], "big"), value))
            elif space == POSITIONS:
                stored.position = value
            elif len(key) == _NUMBER:
                stored.window_head = value
            else:
                row_key = RowKey.of(key[_NUMBER:])
                (stored.sent if row_key.lane == SENT else stored.awaited).append((row_key, value))
    records = {number: record for number in referred if (record := engine.get(MESSAGES, key_of(number))) is not None}
    backlogs = [filter_from_row(key, value) for key, value in rows(engine, FILTERS)]
    last_number = max([last_number, *records, *[found.last for found in backlogs]])
    return Found(alive, wall, sessions, records, referred, last_number, remains, backlogs)


def _place(space: Space, key: bytes, value: bytes) -> Place | None:
    """The place of the messages that a row refers to."""
    if space == QUEUES:
        return cast("Place", unpack(value)[0])
    if space == WINDOWS and len(key) > _NUMBER:
        plain = unpack(value)
        return cast("Place | None", plain[1] if RowKey.of(key[_NUMBER:]).lane == SENT else plain[2])
    return None


def restore(
    found: Found,
    directory: Directory,
    router: Router[Subscriber],
    committer: Committer | None,
    epoch: float,
    now: float,
) -> Iterator[SessionActor]:
    """Make the sessions that were found, one by one. Their timers start with `go_on_away`. Without a committer they are
    in memory from now on. `epoch` is what turns node time into that of the store."""
    gone = min(now, found.alive - epoch)  # the process ended then, or later
    records = _Records(found, committer, epoch)
    lost: list[tuple[Space, bytes]] = []
    newest = {stored.head["client"]["client_id"]: number for number, stored in sorted(found.sessions.items())}
    for number, stored in found.sessions.items():
        if newest[stored.head["client"]["client_id"]] == number:
            actor = directory.add(client_from_plain(stored.head["client"]), number)
            lost += _fill(actor, number, stored, records, router, epoch, gone, now)
            yield actor
        elif committer is not None:
            committer.change(_Discarded(number))  # by a clean start
    if committer is None:
        return
    if lost:
        committer.change(_LostRows(lost))
    for number in found.remains:
        committer.change(_Discarded(number))
    if found.remains or records.missing:
        text = "the store holds only parts of %d sessions, and of %d publications for others: these are lost"
        _logger.warning(text, len(found.remains), len(records.missing))
    for publication in records.unreferred:
        committer.release(publication)


def _fill(
    actor: SessionActor,
    session_number: int,
    stored: StoredSession,
    records: _Records,
    router: Router[Subscriber],
    epoch: float,
    gone: float,
    now: float,
) -> list[tuple[Space, bytes]]:
    """Returns the keys of rows whose messages are not there."""
    session, subscriber = actor.session, actor.subscriber
    for filter, value in stored.subscriptions:
        options, unasked = unpack(value)
        session.subscriptions[filter] = Options(**options)
        if unasked:
            session.unasked.add(filter)
        router.subscribe(subscriber, filter, session.subscriptions[filter])
    target = partial(target_from_plain, subscriber=subscriber, member=partial(_member, router, subscriber))
    restore_head(stored.head, session, -epoch, gone)
    lost: list[tuple[Space, bytes]] = []
    last_id, begun_runs = unpack(stored.window_head) if stored.window_head else (0, ())
    begun: dict[int, int] = dict(begun_runs)
    sent: list[Exported[Target[Subscriber]]] = []
    sent_rows: list[RowKey] = []
    for key, value in stored.sent:
        state, place, plain = unpack(value)
        if records.has(place):
            sent.append((key.first, state, records.refer(place), target(plain)))
            sent_rows.append(key)
        else:
            lost.append((WINDOWS, key_of(session_number) + key.packed))
    session.inflight.restore(last_id, sent, gone)
    awaited: list[Awaited] = []
    for _, value in stored.awaited:
        ids, weight, place = unpack(value)
        awaited.append((ids, weight, records.refer(place) if place and records.has(place) else None))
    session.awaiting_rel.restore(awaited, gone)
    if session.behind is not None:
        session.behind.restore(unpack(stored.position) if stored.position else None)
    runs: dict[int, deque[Run]] = {}
    is_mixed = False  # the settings give messages other priorities than before
    for first, value in stored.queue:
        place, qos, plain = unpack(value)
        if not records.has(place):
            lost.append((QUEUES, key_of(session_number) + key_of(first)))
            continue
        some = records.refer(place)
        to = target(plain)
        last = first + some.count - 1
        left = begun.get(first, first)
        for number, message in enumerate(some.messages[left - first :], left):
            if message.expires_at <= now:  # it would take the place of one that has not expired
                actor.not_restored(message, DropReason.EXPIRED)
                continue
            session.queue.number = number - 1
            for dropped in session.queue.push(message, to, qos):
                actor.not_restored(dropped.message, dropped.reason)
        session.queue.number = last
        priority = session.queue.priority_of(some.topic)
        is_mixed = is_mixed or any(session.queue.priority_of(topic) != priority for topic in some.topics)
        if some.stored is not None:
            runs.setdefault(priority, deque()).append(Run(first, last, some.stored))
    durable = session.durable
    if not isinstance(durable, Durable):
        return lost
    durable.restored(stored.window_head, stored.position, runs, anew=is_mixed)
    durable.window.restored(sent_rows)
    durable.awaiting_rel.restored((ids[0], key) for (key, _), (ids, _, _) in zip(stored.awaited, awaited, strict=True))
    if stored.head["left_at"] is None or is_mixed:
        durable.changed()  # it is known now when its client left
    return lost


class _Records:
    def __init__(self, found: Found, committer: Committer | None, epoch: float) -> None:
        self._stored = found.records
        self._referred = found.referred
        #: None: what is found is stored nowhere from now on.
        self._indexed = None if committer is None else committer.indexed
        self._epoch = epoch
        self._found: dict[int, Publication] = {}
        self.missing: set[int] = set()

    def has(self, place: Place) -> bool:
        """False: its row was lost, and the store repaired without it; or the publication ends before this place."""
        number, first, count, _ = place
        if number in self._stored and 0 <= first <= self._publication(number).count - count:
            return True
        self.missing.add(number)
        return False

    def refer(self, place: Place) -> Publication:
        """The messages in this place, for a row that refers to it."""
        number, first, count, _ = place
        publication = self._publication(number)
        if publication.stored is not None:
            publication.stored.references += 1
        return publication.part(first, first + count)

    def _publication(self, number: int) -> Publication:
        publication = self._found.get(number)
        if publication is None:
            publication = self._found[number] = publication_from_bytes(self._stored[number], self._epoch)
            if self._indexed is not None:
                publication.stored = self._indexed[number] = self._stored_as(number, publication.guid)
        return publication

    def _stored_as(self, number: int, guid: int) -> StoredPublication:
        stored = StoredPublication(number, guid, None)
        stored.entries = tuple([(backlog, sequence) for backlog, sequence in self._referred[number]])
        return stored

    @property
    def unreferred(self) -> list[StoredPublication]:
        """Only sessions that were discarded referred to them."""
        found = self._found
        return [
            self._stored_as(number, 0)
            for number in self._stored
            if number not in found or not stored_of(found[number]).references
        ]


@dataclass(slots=True, eq=False)
class _Discarded:
    number: int
    owner: None = None

    def write(self, batch: WriteBatch) -> None:
        delete_session(self.number, batch)


@dataclass(slots=True, eq=False)
class _LostRows:
    """Rows whose messages are gone."""

    keys: list[tuple[Space, bytes]]
    owner: None = None

    def write(self, batch: WriteBatch) -> None:
        for space, key in self.keys:
            batch.delete(space, key)


def _member(router: Router[Subscriber], subscriber: Subscriber, filter: str) -> Target[Subscriber] | None:
    group = router.group(filter)
    return None if group is None else group.member(subscriber)


def _number(key: bytes) -> int:
    return int.from_bytes(key[:_NUMBER], "big")
