"""What the rows of a store say of a session becomes the session's; and what is in rows of which nothing can be made."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.session.durable import Durable, delete_session
from trunkline.broker.session.export import restore_head, target_from_plain
from trunkline.broker.session.state import StreamPlace
from trunkline.broker.session.stored_window import WINDOWS, RowKey, stored_of
from trunkline.hooks.client import client_from_plain
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.router import Options
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.stored_sessions import Found, StoredSession
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.awaiting_rel import Exported as Awaited
    from trunkline.mqtt.session.window import Exported
    from trunkline.mqtt.stored import Place, StoredPublication
    from trunkline.router import Router, Target
    from trunkline.store import Space, WriteBatch

#: Different options of subscriptions that are remembered: many sessions have the same.
MAX_OPTIONS: Final = 10_000

_logger = logging.getLogger("trunkline.store")


class Restoring:
    def __init__(
        self, found: Found, router: Router[Subscriber], epoch: float, gone: float, committer: Committer | None
    ) -> None:
        """`epoch` is what turns node time into that of the store; clients that were connected left at `gone`, in node
        time."""
        self._found = found
        self._router = router
        self._epoch = epoch
        self._gone = gone
        self._records = _Records(found, committer, epoch)
        #: The keys of rows whose messages are not there.
        self._lost: list[tuple[Space, bytes]] = []
        self._options: dict[bytes, tuple[Options, bool, StreamPlace | None]] = {}

    def client(self, stored: StoredSession) -> ClientInfo:
        return client_from_plain(unpack(stored.head)["client"])

    def target_of(self, subscriber: Subscriber) -> Callable[[Mapping[str, Any]], Target[Subscriber]]:
        """Of a message of this subscriber, from what is stored."""
        return partial(target_from_plain, subscriber=subscriber, group_of=self._router.group)

    def subscriptions(self, stored: StoredSession) -> Iterator[tuple[str, Options]]:
        for filter, value in stored.subscriptions:
            yield filter, self._subscription(value)[0]

    def _subscription(self, value: bytes) -> tuple[Options, bool, StreamPlace | None]:
        """The options, whether they are not of the client's own asking, and the place in a stream."""
        known = self._options.get(value)
        if known is None:
            options, unasked, *place = unpack(value)
            known = Options(**options), unasked, StreamPlace(*place) if place else None
            if len(self._options) < MAX_OPTIONS:
                self._options[value] = known
        return known

    def fill(self, session: Session, subscriber: Subscriber, number: int, stored: StoredSession) -> None:
        """The session is new, and has this number in the store."""
        records, gone = self._records, self._gone
        for filter, value in stored.subscriptions:
            options, unasked, place = self._subscription(value)
            session.subscribed(filter, options, by_client=not unasked)
            if place is not None:
                session.streams[filter] = place
        target = self.target_of(subscriber)
        restore_head(unpack(stored.head), session, -self._epoch, gone)
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
                self._lost.append((WINDOWS, key_of(number) + key.packed))
        session.inflight.restore(last_id, sent, gone)
        awaited: list[Awaited] = []
        for _, value in stored.awaited:
            ids, weight, place = unpack(value)
            awaited.append((ids, weight, records.refer(place) if place and records.has(place) else None))
        session.awaiting_rel.restore(awaited, gone)
        durable = session.durable
        if not isinstance(durable, Durable):
            return
        durable.restored(stored.position)
        durable.window.restored(sent_rows)
        durable.awaiting_rel.restored(
            (ids[0], key) for (key, _), (ids, _, _) in zip(stored.awaited, awaited, strict=True)
        )
        if stored.left_at is None:
            durable.changed()  # it is known now when its client left

    def clear_up(self, committer: Committer) -> None:
        """All sessions are there that there are: what belongs to none goes."""
        remains, records = self._found.remains, self._records
        if self._lost:
            committer.change(_LostRows(self._lost))
        for number, places in remains.items():
            committer.change(Discarded(number))
            for publication in filter(records.is_known, places):
                committer.publications.unrefer_queued(records.stored(publication))
        if remains or records.missing:
            text = "the store holds only parts of %d sessions, and of %d publications for others: these are lost"
            _logger.warning(text, len(remains), len(records.missing))
        for unreferred in records.unreferred:
            committer.publications.delete_unused(unreferred)
        records.forget()


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
class Discarded:
    """The rows of the session with this number."""

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
