"""A session that outlives the process: what of it is stored, and how that is kept up with it.  # [MQTT-3.1.2-23]
[MQTT-4.1.0-1]

Four spaces, all keyed by the number of the session: what is one of a kind, the subscriptions, the window with the
awaited PUBRELs (`stored_window`), and the queue. It grows at one end and shrinks at the other, so what came is written
and what went is deleted; a head says how much there is, which is all that a start reads of it (`queue_rows`). Messages
are stored by themselves, as the publications that they came in; here is only where they are (`trunkline.mqtt.stored`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from itertools import chain
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from trunkline.broker.session.export import head_to_plain, target_to_plain
from trunkline.broker.session.mqueue import Dropped, MessageQueue, Queued, QueueHead
from trunkline.broker.session.queue_rows import NO_QUEUE, QUEUES, Begun, Run, head_to_row
from trunkline.broker.session.stored_window import WINDOWS, StoredAwaitingRel, StoredWindow, stored_of
from trunkline.hooks.client import plain_attributes
from trunkline.mqtt.packing import pack
from trunkline.store import Space
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import QueueSettings, Unread
    from trunkline.broker.session.queue_rows import QueueRows
    from trunkline.broker.session.state import Backlogged, Session
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target
    from trunkline.store import WriteBatch

    T: TypeAlias = Target[Subscriber]

SESSIONS: Final = Space("sessions")
SUBSCRIPTIONS: Final = Space("subscriptions")
#: Of sessions that are behind: where they are in the backlogs.
POSITIONS: Final = Space("positions")


class StoredQueue(MessageQueue["T"]):
    """A queue that tells the committer what it holds. Messages of QoS 0 are not stored."""

    __slots__ = ("_publications", "stored_size")

    def __init__(self, committer: Committer, **settings: Unpack[QueueSettings]) -> None:
        super().__init__(**settings)
        self._publications = committer.publications
        #: The bytes of what is stored.
        self.stored_size = 0

    def push(self, message: Message, target: T, qos: int) -> tuple[Dropped[T], ...]:
        if qos:
            self._publications.pin(self._publications.of(message), 1)
            self.stored_size += message.weight
        dropped = super().push(message, target, qos)
        if qos and target.group is None:  # it was routed before its filter had a backlog
            self.before_backlogs = self.number
        return dropped

    def adopt(self, entries: Sequence[Queued[T]]) -> list[Dropped[T]]:
        if self.unread is not None:
            self.stored_size -= self.unread.head.byte_size
        for message, target, _, number in entries:
            self._publications.pin(stored_of(message), 1)
            self.stored_size += message.weight
            if target.group is None:
                self.before_backlogs = max(self.before_backlogs, number)
        return super().adopt(entries)

    def leave_unread(self, unread: Unread) -> None:
        super().leave_unread(unread)
        self.stored_size += unread.head.byte_size

    def head(self) -> QueueHead | None:
        """Of what is stored, if there is anything."""
        last, lengths = 0, dict[int, int]()
        if self.unread is not None:
            last, _, lengths = self.unread.head
        for at in self._each_class():
            if at.rest:
                last = max(last, at.rest[-1][3])
                lengths = lengths | {at.priority: lengths.get(at.priority, 0) + len(at.rest)}
        return QueueHead(last, self.stored_size, lengths) if lengths else None

    def take(self, room: int, now: float) -> Sequence[Taken[T]]:
        first = self.first if self.length else None
        taken = super().take(room, now)
        if taken and first is not None:
            self._let_go(first)
        return taken

    def _count_out(self, entry: Queued[T]) -> None:
        self._let_go(entry)
        super()._count_out(entry)

    def _let_go(self, entry: Queued[T]) -> None:
        if entry[2]:
            self._publications.unpin(stored_of(entry[0]), 1)
            self.stored_size -= entry[0].weight


class Durable:
    """What is stored of one session, but for its window and awaited PUBRELs, which are parts of the committer by
    themselves."""

    __slots__ = (
        "_anew",
        "_committer",
        "_ended",
        "_forgotten",
        "_head",
        "_is_stored",
        "_key",
        "_position",
        "_publications",
        "_queue",
        "_queue_head",
        "_queued_to",
        "_runs",
        "_session",
        "_terms",
        "_terms_in",
        "_unread_begun",
        "_watched",
        "awaiting_rel",
        "number",
        "owner",
        "subscriptions",
        "window",
    )

    def __init__(
        self,
        session: Session,
        committer: Committer,
        number: int,
        window: StoredWindow,
        queue: StoredQueue,
        awaiting_rel: StoredAwaitingRel,
    ) -> None:
        """`number` is that of no other session; the other parts are the session's."""
        self._session = session
        self._queue = queue
        self.window = window
        self.awaiting_rel = awaiting_rel
        self._committer = committer
        self._publications = committer.publications
        self.number = number
        self._key = key_of(number)
        self.owner: Ref[Any] | None = None
        #: The filters that were subscribed to, or unsubscribed from, and are not stored as they are now.
        self.subscriptions: dict[str, None] = {}
        self._ended = self._forgotten = False
        #: What its client knows of what is stored, and the commit that holds it.
        self._terms: object = None
        self._terms_in = -1
        # What is stored: the head; of the queue how far its first runs have gone, the head, and all up to a number.
        self._is_stored = False
        self._head: object = None
        self._queue_head: tuple[Begun, QueueHead | None] = NO_QUEUE
        self._position = b""
        self._runs: dict[int, deque[Run]] = {}
        self._queued_to = 0
        self._unread_begun: Begun = []
        self._anew = False
        #: The expiry interval that the heartbeat is quick enough for.
        self._watched = 0.0
        committer.sessions += 1

    def own(self, owner: Ref[Any]) -> None:
        self.owner = self.window.rows.owner = self.awaiting_rel.rows.owner = owner

    def changed(self, *, at_once: bool = False) -> None:
        self._committer.change(self, at_once=at_once)

    def after_commit(self, action: Callable[[], None]) -> None:
        self._committer.after_commit(action)

    @property
    def gathering(self) -> int:
        return self._committer.gathering

    @property
    def is_settled(self) -> bool:
        return self._terms == self._promised() and self._terms_in <= self._committer.committed

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._committer.sessions -= 1
            self.changed(at_once=True)

    def forget(self) -> None:
        if not self._forgotten:
            self.end()
            self._forgotten = True
            self.changed(at_once=True)

    def write(self, batch: WriteBatch) -> None:
        session, key = self._session, self._key
        client, revoked = session.client, session.revoked
        expiry = 0.0 if self._ended or session.left_at < inf else session.expiry_interval
        if expiry != self._watched:
            self._watch(expiry)
        if self._forgotten:
            self._delete(batch)
            return
        terms = self._promised()
        if terms != self._terms:
            self._terms, self._terms_in = terms, self._committer.gathering - 1
        attributes = plain_attributes(client) if client.attributes else None
        head = (client, attributes, terms, session.left_at, revoked and tuple(revoked), self._ended)
        if head != self._head:
            self._head, self._is_stored = head, True
            batch.put(SESSIONS, key, pack(head_to_plain(session, -self._publications.epoch, ended=self._ended)))
        if self.subscriptions:
            self._write_subscriptions(key, batch)
        if self._queue.length or self._runs:
            self._write_queue(key, batch)
        if self._runs or self._queue_head is not NO_QUEUE:
            self._write_queue_head(key, batch)
        if session.cursor is not None and (session.cursor.waits or self._position):
            self._write_position(session.cursor, key, batch)

    def restored(self, position: bytes, begun: Begun, head: QueueHead | None) -> None:
        """The session is as it is stored, with this `head` of its queue, whose rows are unread."""
        self._is_stored, self._position = True, position
        self._terms = self._promised()
        if head is not None:
            self._queue_head, self._unread_begun, self._queued_to = (begun, head), begun, head.last

    def adopt(self, rows: QueueRows) -> None:
        """The rows of its queue are read."""
        self._unread_begun = []
        for priority, runs in rows.runs.items():
            self._runs[priority] = runs + self._runs.get(priority, deque())
        if rows.is_mixed:
            self._anew, self._queued_to = True, 0
        self.changed()

    def _watch(self, expiry: float) -> None:
        """After a crash it has aged from the last heartbeat on."""
        heartbeat = self._committer.heartbeat
        heartbeat.forget(self._watched)
        heartbeat.watch(expiry)
        self._watched = expiry

    def _promised(self) -> tuple[object, ...]:
        """What a CONNACK, or the end of a connection, says of the session."""
        session = self._session
        return session.expiry_interval, session.will, session.client.username, session.client.superuser

    def _write_subscriptions(self, key: bytes, batch: WriteBatch) -> None:
        session = self._session
        changed, self.subscriptions = self.subscriptions, {}
        for filter in changed:
            options = session.subscriptions.get(filter)
            if options is None:
                batch.delete(SUBSCRIPTIONS, key + filter.encode())
            else:
                batch.put(SUBSCRIPTIONS, key + filter.encode(), pack((asdict(options), filter in session.unasked)))

    def _write_queue_head(self, key: bytes, batch: WriteBatch) -> None:
        begun = self._unread_begun + [
            (runs[0].first, first)
            for priority, first in self._queue.firsts().items()
            if (runs := self._runs.get(priority)) and runs[0].first < first <= runs[0].last
        ]
        head = begun, self._queue.head()
        if head != self._queue_head:
            self._queue_head = NO_QUEUE if head == NO_QUEUE else head
            batch.put(WINDOWS, key, head_to_row(self.window.last_id, *head))

    def _write_position(self, cursor: Backlogged, key: bytes, batch: WriteBatch) -> None:
        position = pack(cursor.to_plain()) if cursor.waits else b""
        if position == self._position:
            return
        self._position = position
        if position:
            batch.put(POSITIONS, key, position)
        else:
            batch.delete(POSITIONS, key)
        cursor.stored()

    def _write_queue(self, key: bytes, batch: WriteBatch) -> None:
        queue, publications = self._queue, self._publications
        if self._anew:
            self._anew = False
            batch.delete_range(QUEUES, key, key_of(self.number + 1))
            for run in chain.from_iterable(self._runs.values()):
                publications.unrefer_queued(run.stored)
            self._runs.clear()
        for priority, entries in queue.since(self._queued_to):
            runs = self._runs.setdefault(priority, deque())
            for run, (message, target, qos, _) in _in_rows(entries):
                place = run.stored.place(message.guid, run.last - run.first + 1)
                batch.put(QUEUES, key + key_of(run.first), pack((place, qos, target_to_plain(target))))
                publications.refer_queued(run.stored, batch)
                runs.append(run)
        self._queued_to = queue.number
        firsts = queue.firsts()
        for priority, runs in list(self._runs.items()):
            first = firsts.get(priority, maxsize)
            while runs and runs[0].last < first:
                run = runs.popleft()
                batch.delete(QUEUES, key + key_of(run.first), put_once=True)
                publications.unrefer_queued(run.stored)
            if not runs:
                del self._runs[priority]

    def _delete(self, batch: WriteBatch) -> None:
        if not self._is_stored:
            return
        delete_session(self.number, batch)
        self.window.rows.release()
        self.awaiting_rel.rows.release()
        for runs in self._runs.values():
            for run in runs:
                self._publications.unrefer_queued(run.stored)


def make_durable(
    session: Session,
    committer: Committer,
    number: int,
    window: StoredWindow,
    queue: StoredQueue,
    awaiting_rel: StoredAwaitingRel,
) -> Durable:
    """Store the session from now on, with all that it holds, in these parts, which are empty."""
    window.take_over(session.inflight)
    for message, target, qos, _ in session.queue:
        queue.push(message, target, qos)
    awaiting_rel.restore(session.awaiting_rel.export())
    session.inflight, session.queue, session.awaiting_rel = window, queue, awaiting_rel
    session.durable = durable = Durable(session, committer, number, window, queue, awaiting_rel)
    durable.subscriptions |= dict.fromkeys(session.subscriptions)
    return durable


def delete_session(number: int, batch: WriteBatch) -> None:
    """Delete its rows. Its messages may be those of other sessions, too."""
    key, above = key_of(number), key_of(number + 1)
    batch.delete(SESSIONS, key)
    batch.delete_range(WINDOWS, key, above)
    batch.delete(POSITIONS, key)
    batch.delete_range(SUBSCRIPTIONS, key, above)
    batch.delete_range(QUEUES, key, above)


def _in_rows(entries: Iterable[Queued[T]]) -> Iterator[tuple[Run, Queued[T]]]:
    """Entries of a queue together that can be stored together, and the first of each."""
    first: Queued[T] | None = None
    last = guid = 0
    for entry in entries:
        message, target, qos, number = entry
        if (
            first is not None
            and number == last + 1
            and message.guid == guid + 1
            and message.stored is first[0].stored
            and target is first[1]
            and qos == first[2]
        ):
            last, guid = number, message.guid
            continue
        if first is not None:
            yield Run(first[3], last, stored_of(first[0])), first
        first, last, guid = entry, number, message.guid
    if first is not None:
        yield Run(first[3], last, stored_of(first[0])), first
