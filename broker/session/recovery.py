"""The sessions that a store holds, brought back at the start of a node.  # [MQTT-3.1.2-23]"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.dormant import Dormant, Dormants
from trunkline.broker.session.restoring import Discarded, Restoring
from trunkline.mqtt.packing import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.actors import Scheduler
    from trunkline.broker.backlogs.backlog import Cursor
    from trunkline.broker.backlogs.backlogs import Backlogs, Rejoined
    from trunkline.broker.committer import Committer
    from trunkline.broker.session.actor import SessionActor
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.stored_sessions import Found, StoredSession
    from trunkline.router import Router
    from trunkline.store import Engine


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
        self._restoring = Restoring(found, router, epoch, self._gone, committer)
        #: Sessions that are actors already, whose timers do not run yet.
        self._waiting: list[SessionActor] = []
        self._has_started = False
        self._dormants = Dormants(directory.get)

    def restore(self) -> Iterator[None]:
        """Bring the sessions back, one by one. Their timers start with `go_on`."""
        found = self._found
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
        if self._committer is not None:
            self._directory.add_dormant(dormant)
            self._restoring.clear_up(self._committer)
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
                self._committer.change(Discarded(number))
            return
        session = self._restore(number, stored, claims=False).session
        session.expiry_interval, session.will = 0.0, None

    def _can_sleep(self, stored: StoredSession) -> bool:
        """Nobody stores the place in the backlogs of one that is dormant: it is stored, or there is none."""
        return stored.is_idle and (
            bool(stored.position) or not any(is_kept(*each) for each in self._restoring.subscriptions(stored))
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
        client = self._restoring.client(stored)
        actor = self._directory.add(client, number, subscriber, claims=claims)
        cursor = actor.session.cursor
        place = rejoined or self._route(actor.subscriber, stored, cast("Cursor | None", cursor))
        if cursor is not None and place is not None:
            cursor.adopt(place)
        if stored.window_head.queue.levels:
            self._restore_queue(actor, number, stored)
        self._restoring.fill(actor.session, actor.subscriber, number, stored)
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
        for filter, options in self._restoring.subscriptions(stored):
            behind = is_behind and is_kept(filter, options)
            self._router.subscribe(subscriber, filter, options, behind=behind)
            if behind:
                kept.append(filter)
        return None if backlogs is None or cursor is None else backlogs.rejoin(cursor, kept, position)

    def _restore_queue(self, actor: SessionActor, number: int, stored: StoredSession) -> None:
        """Leave it unread, if it stays in the store."""
        # imported here: most stores have none
        from trunkline.broker.session.queue_reader import QueueReader, waiting

        queue, head = actor.session.queue, stored.window_head.queue
        if self._committer is not None:
            actor.leave_unread(QueueReader(queue, head))
        elif self._engine is not None:
            target = self._restoring.target_of(actor.subscriber)
            for each in waiting(self._engine, number, target, self._epoch):
                actor.not_restored([(gone.message, gone.reason) for gone in queue.push(*each)])


def _nobody(message: object) -> None:
    """Takes nothing: the session is not there yet."""
