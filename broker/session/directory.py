"""The session of each client id, or the client of another protocol that has it. There is at most one at any moment: a
client id is claimed here in one step."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from trunkline.broker.alarms import SESSIONS_FULL
from trunkline.broker.node_use import SESSIONS
from trunkline.broker.session import mail
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.making import Making
from trunkline.broker.takeovers import Takeovers
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trunkline.actors import Supervisor
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.dormant import Dormant
    from trunkline.broker.session.occupant import Occupant
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session, Storage
    from trunkline.hooks.client import ClientInfo


class Directory:
    __slots__ = (
        "_dormant",
        "_ending",
        "_ids",
        "_last_number",
        "_services",
        "_sessions",
        "_supervisor",
        "_takeovers",
        "_use",
        "making",
    )

    def __init__(self, services: Services, supervisor: Supervisor) -> None:
        self._services = services
        #: With what other shards have.
        self._use = services.pubsub.use
        self._use.when_fewer(SESSIONS, self._has_fewer)
        self._supervisor = supervisor
        self._sessions: dict[str, Occupant] = {}
        #: Those that are no actors yet.
        self._dormant: dict[str, Dormant] = {}
        #: Client ids of sessions that have ended, while the store has them still: the commits that end them.
        self._ending: dict[str, int] = {}
        #: The client ids in order, for pages.
        self._ids: SortedList[str] = SortedList()
        self._takeovers = Takeovers()
        #: The number of the last session that is stored.
        self._last_number = 0
        self.making = Making(services)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Occupant]:
        """Those that are not dormant."""
        return iter(list(self._sessions.values()))

    def get(self, client_id: str) -> Occupant | None:
        """Who has this client id; a session awake."""
        known = self._sessions.get(client_id)
        if known is None and client_id in self._dormant:
            known = self._dormant.pop(client_id).wake_up()
        return known

    def add_dormant(self, dormants: Iterable[Dormant]) -> None:
        """Sessions of a store. Nobody has claimed their client ids."""
        self._dormant.update({each.client_id: each for each in dormants})
        self._ids.update(self._dormant)
        self._count()
        self._last_number = max([self._last_number, *[each.number for each in self._dormant.values()]])

    def page(self, after: str = "", limit: int = 100) -> list[Occupant]:
        """The next sessions behind the client id `after`, in order of client id."""
        following = self._ids.irange(after, inclusive=(False, True))
        return [found for found in map(self.get, list(islice(following, limit))) if found is not None]

    def has_room(self, client_id: str) -> bool:
        """Check that this client id may have a session. Call this before each `open`."""
        limit: int = self._services.config.limits.max_sessions
        is_full = 0 < limit <= len(self) + self._use.elsewhere(SESSIONS)
        if not is_full or client_id in self._sessions or client_id in self._dormant:
            return True
        self._services.alarms.activate(SESSIONS_FULL, f"{limit} sessions: no further clients are accepted")
        return False

    def open(self, channel: Channel) -> None:
        """Give a connection the session of its client id: the existing one, or a new one."""
        client = channel.client
        known = self.get(client.client_id)
        # a session with an expiry of 0 ends with its connection, so it cannot be resumed
        if isinstance(known, SessionActor) and not channel.clean_start and known.session.expiry_interval > 0:
            store = self._store if self._is_stored(channel) else None
            known.attach(mail.Attach(channel, True, store))  # [MQTT-3.1.2-5]
            return
        succeeds = client.client_id in self._ending
        if known is not None:  # [MQTT-3.1.2-4]
            succeeds = succeeds or known.session.durable is not None
            known.ref.cast(mail.End(Reason.SESSION_TAKEN_OVER, "discarded", client))
        actor = self.add(client, self._last_number + 1 if self._is_stored(channel) else 0)
        actor.attach(mail.Attach(channel, False, succeeds=succeeds))

    def _is_stored(self, channel: Channel) -> bool:
        return channel.expiry_interval > 0 and channel.client.durable and self._services.committer is not None

    def add(
        self, client: ClientInfo, number: int = 0, subscriber: Subscriber | None = None, *, claims: bool = True
    ) -> SessionActor:
        """A new session of this client, empty and without a connection. It `claims` the client id, unless it is about
        to end. With a number, which no other session has, it is stored. `subscriber` is what routes know it by
        already."""
        self._last_number = max(self._last_number, number)
        session = self.making.stored(client, number) if number else self.making.in_memory(client)
        actor = SessionActor(session, self._services, self._forget, subscriber)
        self._supervisor.start(actor, name=f"session {client.client_id}")
        if claims:
            self._claim(client.client_id, actor)
        return actor

    def enter(self, occupant: Occupant) -> None:
        """The client of another protocol has this client id, which nobody else has."""
        self._claim(occupant.client.client_id, occupant)

    def leave(self, occupant: Occupant) -> None:
        """It has ended."""
        self._forget(occupant.session)

    def empty_session(self, client: ClientInfo) -> Session:
        """For a client whose messages do not wait in it."""
        return self.making.in_memory(client)

    def _claim(self, client_id: str, occupant: Occupant) -> None:
        if client_id not in self._ids:
            self._ids.add(client_id)
            self._count()
        self._sessions[client_id] = occupant

    def _store(self, session: Session) -> None:
        """The session began in memory, and its client has come by a listener where it is stored."""
        self._last_number += 1
        self.making.store(session, self._last_number)

    def _forget(self, session: Session) -> None:
        known = self._sessions.get(session.client_id)
        if known is not None and known.session is session:
            del self._sessions[session.client_id]
            self._ids.remove(session.client_id)
            self._count()
            self._has_fewer()
            if session.durable is not None:
                self._end_stored(session.client_id, session.durable)

    def _count(self) -> None:
        self._use.has(SESSIONS, len(self), self._services.config.limits.max_sessions)

    def _has_fewer(self) -> None:
        self._services.alarms.deactivate(SESSIONS_FULL)

    def _end_stored(self, client_id: str, durable: Storage) -> None:
        commit = self._ending[client_id] = durable.gathering

        def ended() -> None:
            if self._ending.get(client_id) == commit:
                del self._ending[client_id]

        durable.after_commit(ended)

    def flaps(self, client_id: str) -> bool:
        """Whether this client id has been taken over too often recently. Call this before each `open`."""
        known = self._sessions.get(client_id)
        is_takeover = known is not None and known.channel is not None
        return self._takeovers.are_too_many(client_id, self._services.config.flapping, is_one=is_takeover)

    # Back-pressure, see `trunkline.broker.session.slow_consumer`

    def hold_publisher(self, client_id: str, holder: object, trusted: bool) -> bool:
        publisher = self._sessions.get(client_id)
        if publisher is None or publisher.channel is None:
            return False
        most = self._services.config.session.backpressure_budget
        if not publisher.waiting_budget.allows(most, publisher.scheduler.now, trusted=trusted):
            return False
        publisher.channel.cast(mail.Pause(holder))
        return True

    def release_publisher(self, client_id: str, holder: object, in_vain: float) -> None:
        publisher = self._sessions.get(client_id)
        if publisher is not None and publisher.channel is not None:
            most = self._services.config.session.backpressure_budget
            publisher.waiting_budget.charge(in_vain, most, publisher.scheduler.now)
            publisher.channel.cast(mail.Resume(holder))
