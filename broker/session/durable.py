"""A session that outlives the process: what of it is stored, and how that is kept up with it.  # [MQTT-3.1.2-23]
[MQTT-4.1.0-1]

All spaces are keyed by the number of the session: what is one of a kind, the subscriptions, its place in backlogs, the
window with the awaited PUBRELs (`stored_window`), and the private backlog (`stored_queue`). Messages are stored by
themselves, as the publications that they came in; here is only where they are (`trunkline.mqtt.stored`).
"""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.session.export import head_to_plain
from trunkline.broker.session.stored_queue import StoredQueue, private_key
from trunkline.broker.session.stored_window import WINDOWS, StoredAwaitingRel, StoredWindow
from trunkline.hooks.client import plain_attributes
from trunkline.mqtt.packing import pack
from trunkline.store import Space
from trunkline.store.engine import key_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from trunkline.actors import Ref
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import QueueSettings
    from trunkline.broker.session.state import Backlogged, Session
    from trunkline.router import Target
    from trunkline.store import WriteBatch

    T: TypeAlias = Target[Subscriber]

SESSIONS: Final = Space("sessions")
SUBSCRIPTIONS: Final = Space("subscriptions")
#: Of sessions that are behind: where they are in the backlogs.
POSITIONS: Final = Space("positions")


class StoredParts(NamedTuple):
    """What of a session tells the committer what it holds."""

    window: StoredWindow
    queue: StoredQueue
    awaiting_rel: StoredAwaitingRel

    @classmethod
    def new(
        cls,
        committer: Committer,
        number: int,
        in_flight: tuple[int, int],
        queue: QueueSettings,
        awaited: tuple[int, int],
    ) -> Self:
        """Of the session with this number: the limits of its window and of awaited PUBRELs are messages and bytes."""
        return cls(
            StoredWindow(committer, number, *in_flight),
            StoredQueue(committer, number, **queue),
            StoredAwaitingRel(committer, number, *awaited),
        )


class _Stage(Enum):
    LIVES = "lives"
    #: No start brings it back, but for what others are to get of it.
    ENDED = "ended"
    #: Nothing is left.
    FORGOTTEN = "forgotten"


class Durable:
    """What is stored of one session, but for its window and awaited PUBRELs, which are parts of the committer by
    themselves."""

    __slots__ = (
        "_committer",
        "_head",
        "_is_stored",
        "_key",
        "_position",
        "_publications",
        "_queue",
        "_session",
        "_stage",
        "_terms",
        "_terms_in",
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
        parts: StoredParts,
    ) -> None:
        """`number` is that of no other session, and the parts are its own."""
        self._session = session
        self.window, self._queue, self.awaiting_rel = parts
        self._committer = committer
        self._publications = committer.publications
        self.number = number
        self._key = key_of(number)
        self.owner: Ref[Any] | None = None
        #: The filters that were subscribed to, or unsubscribed from, and are not stored as they are now.
        self.subscriptions: dict[str, None] = {}
        self._stage = _Stage.LIVES
        #: What its client knows of what is stored, and the commit that holds it.
        self._terms: object = None
        self._terms_in = -1
        # What is stored of what is one of a kind.
        self._is_stored = False
        self._head: object = None
        self._position = b""
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
        if self._stage is _Stage.LIVES:
            self._stage = _Stage.ENDED
            self._committer.sessions -= 1
            self.changed(at_once=True)

    def forget(self) -> None:
        if self._stage is not _Stage.FORGOTTEN:
            self.end()
            self._stage = _Stage.FORGOTTEN
            self.changed(at_once=True)

    def write(self, batch: WriteBatch) -> None:
        session, key = self._session, self._key
        client, revoked, has_ended = session.client, session.revoked, self._stage is not _Stage.LIVES
        expiry = 0.0 if has_ended or session.left_at < inf else session.expiry_interval
        if expiry != self._watched:
            self._watch(expiry)
        if self._stage is _Stage.FORGOTTEN:
            self._delete(batch)
            return
        terms = self._promised()
        if terms != self._terms:
            self._terms, self._terms_in = terms, self._committer.gathering
        attributes = plain_attributes(client) if client.attributes else None
        head = (client, attributes, terms, session.left_at, revoked and tuple(revoked), has_ended)
        if head != self._head:
            self._head, self._is_stored = head, True
            batch.put(SESSIONS, key, pack(head_to_plain(session, -self._publications.epoch, ended=has_ended)))
        if self.subscriptions:
            self._write_subscriptions(key, batch)
        self._queue.write(batch, self.window.last_id)
        if session.cursor is not None and (session.cursor.waits or self._position):
            self._write_position(session.cursor, key, batch)

    def restored(self, position: bytes) -> None:
        """The session is as it is stored."""
        self._is_stored, self._position = True, position
        self._terms = self._promised()

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
                place = session.streams.get(filter) or ()
                row = asdict(options), filter in session.unasked, *place
                batch.put(SUBSCRIPTIONS, key + filter.encode(), pack(row))

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

    def _delete(self, batch: WriteBatch) -> None:
        if not self._is_stored:
            return
        delete_session(self.number, batch)
        self.window.rows.release()
        self.awaiting_rel.rows.release()
        self._queue.release()


def make_durable(session: Session, committer: Committer, number: int, parts: StoredParts) -> Durable:
    """Store the session from now on, with all that it holds, in these parts, which are empty."""
    window, queue, awaiting_rel = parts
    window.take_over(session.inflight)
    for message, target, qos, _ in session.queue:
        queue.push(message, target, qos)
    awaiting_rel.restore(session.awaiting_rel.export())
    session.inflight, session.queue, session.awaiting_rel = parts
    session.durable = durable = Durable(session, committer, number, parts)
    durable.subscriptions |= dict.fromkeys(session.subscriptions)
    return durable


def delete_session(number: int, batch: WriteBatch) -> None:
    """Delete its rows. Its messages may be those of other sessions, too."""
    key, above = key_of(number), key_of(number + 1)
    batch.delete(SESSIONS, key)
    batch.delete_range(WINDOWS, key, above)
    batch.delete(POSITIONS, key)
    batch.delete_range(SUBSCRIPTIONS, key, above)
    batch.delete_range(ENTRIES, private_key(number), private_key(number + 1))
