"""The sessions that a store holds, brought back at the start of a node.  # [MQTT-3.1.2-23]"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.dormant import Dormant, Dormants
from trunkline.broker.session.durable import Durable, delete_session
from trunkline.broker.session.export import restore_head, target_from_plain
from trunkline.broker.session.stored_window import WINDOWS, RowKey, stored_of
from trunkline.hooks.client import client_from_plain
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.router import Options
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.actors import Scheduler
    from trunkline.broker.backlogs.backlog import Cursor
    from trunkline.broker.backlogs.backlogs import Backlogs, Rejoined
    from trunkline.broker.committer import Committer
    from trunkline.broker.session.actor import SessionActor
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.stored_sessions import Found, StoredSession
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.awaiting_rel import Exported as Awaited
    from trunkline.mqtt.session.window import Exported
    from trunkline.mqtt.stored import Place, StoredPublication
    from trunkline.router import Router, Target
    from trunkline.store import Engine, Space, WriteBatch

#: Different options of subscriptions that are remembered: many sessions have the same.
MAX_OPTIONS: Final = 10_000

_logger = logging.getLogger("trunkline.store")


class Recovery:
    """Makes sessions of what was found, at the start and later."""

    def __init__(
        self,
        found: Found,
        directory: Directory,
        router: Router[Subscriber],
        epoch: float,
        now: float,
        committer: Committer | None = None,
        backlogs: Backlogs | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`epoch` is what turns node time into that of the store. Without a committer, the sessions are in memory from
        now on: what waits for them is read from the `engine`."""
        self._found = found
        self._directory = directory
        self._router = router
        self._backlogs = backlogs
        self._committer = committer
        self._engine = engine
        self._epoch = epoch
        self._now = now
        self._gone = min(now, found.note.stored - epoch)  # the process ended then, or later
        self._records = _Records(found, committer, epoch)
        self._lost: list[tuple[Space, bytes]] = []
        self._options: dict[bytes, tuple[Options, bool]] = {}
        #: Sessions that are actors already, whose timers do not run yet.
        self._waiting: list[SessionActor] = []
        self._has_started = False
        self._dormants = Dormants(directory.get)

    def restore(self) -> Iterator[None]:
        """Bring the sessions back, one by one. Their timers start with `go_on`."""
        found, committer = self._found, self._committer
        newest = {stored.client_id: number for number, stored in sorted(found.sessions.items()) if not stored.has_ended}
        dormant: list[Dormant] = []
        for number, stored in found.sessions.items():
            if newest.get(stored.client_id) != number:
                self._finish(number, stored)
            elif self._backlogs is not None and self._backlogs.is_used and self._can_sleep(stored):
                dormant.append(self._dormant(number, stored))
            else:
                self._restore(number, stored)
            yield
        if committer is None:
            return
        self._directory.add_dormant(dormant)
        if self._lost:
            committer.change(_LostRows(self._lost))
        for number, places in found.remains.items():
            committer.change(_Discarded(number))
            for publication in filter(self._records.is_known, places):
                committer.publications.unrefer_queued(self._records.stored(publication))
        if found.remains or self._records.missing:
            text = "the store holds only parts of %d sessions, and of %d publications for others: these are lost"
            _logger.warning(text, len(found.remains), len(self._records.missing))
        for unreferred in self._records.unreferred:
            committer.publications.delete_unused(unreferred)
        self._records.forget()
        found.sessions.clear()

    def go_on(self, scheduler: Scheduler) -> None:
        """Everything else has started: what the sessions have waited for may happen."""
        self._has_started = True
        for actor in self._waiting:
            actor.go_on_away()
        self._waiting.clear()
        self._dormants.start(scheduler)

    def _finish(self, number: int, stored: StoredSession) -> None:
        """It has ended, and its messages were not all given to other members of its shared groups."""
        if stored.is_idle and not stored.window_head.queue.levels:
            if self._committer is not None:
                self._committer.change(_Discarded(number))
            return
        session = self._restore(number, stored, claims=False).session
        session.expiry_interval, session.will = 0.0, None

    def _can_sleep(self, stored: StoredSession) -> bool:
        """Nobody stores the place in the backlogs of one that is dormant: it is stored, or there is none."""
        return stored.is_idle and (
            bool(stored.position)
            or not any(is_kept(filter, self._subscription(value)[0]) for filter, value in stored.subscriptions)
        )

    def _dormant(self, number: int, stored: StoredSession) -> Dormant:
        subscriber = Subscriber(stored.client_id, _nobody, durable=True)
        dormant = Dormant(stored.client_id, number, subscriber, self._directory.get)
        dormant.rejoined = rejoined = self._route(subscriber, stored, dormant)
        dormant.wake_up = lambda: self._restore(number, stored, subscriber, rejoined)
        if stored.has_will or stored.left_at is None:
            self._dormants.wakes(stored.client_id, self._gone)
        elif stored.expiry_interval is not None:
            self._dormants.wakes(stored.client_id, stored.left_at - self._epoch + stored.expiry_interval)
        return dormant

    def _restore(
        self,
        number: int,
        stored: StoredSession,
        subscriber: Subscriber | None = None,
        rejoined: Rejoined | None = None,
        *,
        claims: bool = True,
    ) -> SessionActor:
        """Make it an actor. One that was dormant has its routes, as a `subscriber`, and its place in the backlogs."""
        head = unpack(stored.head)
        actor = self._directory.add(client_from_plain(head["client"]), number, subscriber, claims=claims)
        cursor = actor.session.cursor
        place = rejoined or self._route(actor.subscriber, stored, cast("Cursor | None", cursor))
        if cursor is not None and place is not None:
            cursor.adopt(place)
        self._lost += self._fill(actor, number, stored, head)
        if self._has_started:
            actor.go_on_away()
        else:
            self._waiting.append(actor)
        return actor

    def _route(self, subscriber: Subscriber, stored: StoredSession, cursor: Cursor | None) -> Rejoined | None:
        """Make the routes of its subscriptions, and join the backlogs of those that keep messages."""
        backlogs = self._backlogs
        position = unpack(stored.position) if stored.position else None
        is_behind = backlogs is not None and (position is not None or backlogs.is_used)
        kept: list[str] = []
        for filter, value in stored.subscriptions:
            options, _ = self._subscription(value)
            behind = is_behind and is_kept(filter, options)
            self._router.subscribe(subscriber, filter, options, behind=behind)
            if behind:
                kept.append(filter)
        return None if backlogs is None or cursor is None else backlogs.rejoin(cursor, kept, position)

    def _subscription(self, value: bytes) -> tuple[Options, bool]:
        """The options, and whether they are not of the client's own asking."""
        known = self._options.get(value)
        if known is None:
            options, unasked = unpack(value)
            known = Options(**options), unasked
            if len(self._options) < MAX_OPTIONS:
                self._options[value] = known
        return known

    def _fill(
        self, actor: SessionActor, session_number: int, stored: StoredSession, head: dict[str, Any]
    ) -> list[tuple[Space, bytes]]:
        """Returns the keys of rows whose messages are not there."""
        session, subscriber, records = actor.session, actor.subscriber, self._records
        gone = self._gone
        for filter, value in stored.subscriptions:
            options, unasked = self._subscription(value)
            session.subscribed(filter, options, by_client=not unasked)
        target = partial(target_from_plain, subscriber=subscriber, group_of=self._router.group)
        restore_head(head, session, -self._epoch, gone)
        lost: list[tuple[Space, bytes]] = []
        last_id = stored.window_head.last_id
        if stored.sent:  # ids go on behind those that may come again
            last_id = stored.sent[-1][0].first + stored.sent[-1][0].length - 1
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
        if stored.window_head.queue.levels:
            self._restore_queue(actor, session_number, stored, target)
        durable = session.durable
        if not isinstance(durable, Durable):
            return lost
        durable.restored(stored.position)
        durable.window.restored(sent_rows)
        durable.awaiting_rel.restored(
            (ids[0], key) for (key, _), (ids, _, _) in zip(stored.awaited, awaited, strict=True)
        )
        if stored.left_at is None:
            durable.changed()  # it is known now when its client left
        return lost

    def _restore_queue(
        self,
        actor: SessionActor,
        number: int,
        stored: StoredSession,
        target: Callable[[Mapping[str, Any]], Target[Subscriber]],
    ) -> None:
        """Leave it unread, if it stays in the store."""
        # imported here: most stores have none
        from trunkline.broker.session.queue_reader import QueueReader, waiting

        queue, head = actor.session.queue, stored.window_head.queue
        if self._committer is not None:
            actor.leave_unread(QueueReader(queue, head))
        elif self._engine is not None:
            for each in waiting(self._engine, number, target, self._epoch):
                actor.not_restored([(gone.message, gone.reason) for gone in queue.push(*each)])


class _Records:
    def __init__(self, found: Found, committer: Committer | None, epoch: float) -> None:
        self._bytes = found.records
        self._referred = found.referred
        self._queued = found.queued
        #: None: what is found is stored nowhere from now on.
        self._publications = None if committer is None else committer.publications
        self._epoch = epoch
        self._found: dict[int, Publication] = {}
        self.missing: set[int] = set()

    def is_known(self, number: int) -> bool:
        return number in self._bytes

    def has(self, place: Place) -> bool:
        """False: its row was lost, and the store repaired without it; or the publication ends before this place."""
        number, first, count, _ = place
        if self.is_known(number) and 0 <= first <= self._publication(number).count - count:
            return True
        self.missing.add(number)
        return False

    def refer(self, place: Place) -> Publication:
        """The messages in this place, for a row of a window that refers to it."""
        number, first, count, _ = place
        publication = self._publication(number)
        if publication.stored is not None:
            publication.stored.references += 1
        return publication.part(first, first + count)

    def _publication(self, number: int) -> Publication:
        publication = self._found.get(number)
        if publication is None:
            publication = self._found[number] = publication_from_bytes(self._bytes[number], self._epoch)
            if self._publications is not None:
                queued = self._queued.get(number, 0)
                publication.stored = self._publications.found(number, publication.guid, self._referred[number], queued)
        return publication

    def stored(self, number: int) -> StoredPublication:
        return stored_of(self._publication(number))

    @property
    def unreferred(self) -> list[StoredPublication]:
        """Only sessions that were discarded referred to them."""
        return [stored for stored in map(self.stored, self._bytes) if not stored.references]

    def forget(self) -> None:
        """Nobody refers to them any more but the sessions that have them."""
        self._bytes.clear()
        self._referred.clear()
        self._found.clear()


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


def _nobody(message: object) -> None:
    """Takes nothing: the session is not there yet."""
