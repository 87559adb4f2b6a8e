"""The session of each client id, or the client of another protocol that has it. There is at most one at any moment: a
client id is claimed here in one step."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio
from sortedcontainers import SortedList

from trunkline.broker.alarms import SESSIONS_FULL
from trunkline.broker.session import mail
from trunkline.broker.session.actor import SessionActor
from trunkline.broker.session.durable import Durable, StoredParts, make_durable
from trunkline.broker.session.mqueue import HIGHEST, LOWEST, MessageQueue, Overflow, QueueSettings
from trunkline.broker.session.state import Session
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.window import Inflight
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from trunkline.actors import Supervisor
    from trunkline.broker.committer import Committer
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.dormant import Dormant
    from trunkline.broker.session.occupant import Occupant
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Storage
    from trunkline.config.mqtt_settings import SessionSettings
    from trunkline.hooks.client import ClientInfo

#: Client ids up to which the takeovers are kept without a sweep.
MIN_SWEPT: Final = 1024


class Directory:
    __slots__ = (
        "_dormant",
        "_ending",
        "_flapping",
        "_ids",
        "_last_number",
        "_queue",
        "_services",
        "_sessions",
        "_supervisor",
        "_sweep_at",
    )

    def __init__(self, services: Services, supervisor: Supervisor) -> None:
        self._services = services
        self._supervisor = supervisor
        self._sessions: dict[str, Occupant] = {}
        #: Those that are no actors yet.
        self._dormant: dict[str, Dormant] = {}
        #: Client ids of sessions that have ended, while the store has them still: the commits that end them.
        self._ending: dict[str, int] = {}
        #: The client ids in order, for pages.
        self._ids: SortedList[str] = SortedList()
        #: Recent takeovers of each client id; for a blocked one, the last entry is the time when that ends.
        self._flapping: dict[str, deque[float]] = {}
        self._sweep_at = MIN_SWEPT
        #: The number of the last session that is stored.
        self._last_number = 0
        self.configure()

    def configure(self) -> None:
        """New sessions get the settings as they are now."""
        services = self._services
        settings = services.config.session
        self._queue: QueueSettings = {
            "max_length": settings.max_queue_length,
            "max_bytes": services.config.queue_bytes,
            "store_qos0": settings.store_qos0,
            "overloads": services.overload.exceeded,
            "overflow": Overflow(settings.overflow),
            **priority_settings(settings),
        }

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
        self._last_number = max([self._last_number, *[each.number for each in self._dormant.values()]])

    def page(self, after: str = "", limit: int = 100) -> list[Occupant]:
        """The next sessions behind the client id `after`, in order of client id."""
        following = self._ids.irange(after, inclusive=(False, True))
        return [found for found in map(self.get, list(islice(following, limit))) if found is not None]

    def has_room(self, client_id: str) -> bool:
        """Check that this client id may have a session. Call this before each `open`."""
        limit: int = self._services.config.limits.max_sessions
        if not 0 < limit <= len(self) or client_id in self._sessions or client_id in self._dormant:
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
        committer = self._services.committer
        if number and committer is not None:
            parts = self._stored_parts(committer, number)
            session = Session(client, *parts)
            session.durable = Durable(session, committer, number, parts)
            self._last_number = max(self._last_number, number)
        else:
            session = self.empty_session(client)
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
        in_flight, awaited = self._limits
        return Session(client, Inflight(*in_flight), MessageQueue(**self._queue), AwaitingRel(*awaited))

    def _claim(self, client_id: str, occupant: Occupant) -> None:
        if client_id not in self._ids:
            self._ids.add(client_id)
        self._sessions[client_id] = occupant

    @property
    def _limits(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the window, and of awaited PUBRELs: messages and bytes."""
        settings = self._services.config.session
        return (
            (settings.max_inflight, settings.max_inflight_bytes),
            (settings.max_awaiting_rel, self._services.config.queue_bytes),
        )

    def _stored_parts(self, committer: Committer, number: int) -> StoredParts:
        in_flight, awaited = self._limits
        return StoredParts.new(committer, number, in_flight, self._queue, awaited)

    def _store(self, session: Session) -> None:
        """The session began in memory, and its client has come by a listener where it is stored."""
        committer = self._services.committer
        assert committer is not None
        self._last_number = number = self._last_number + 1
        make_durable(session, committer, number, self._stored_parts(committer, number))

    def _forget(self, session: Session) -> None:
        known = self._sessions.get(session.client_id)
        if known is not None and known.session is session:
            del self._sessions[session.client_id]
            self._ids.remove(session.client_id)
            self._services.alarms.deactivate(SESSIONS_FULL)
            if session.durable is not None:
                self._end_stored(session.client_id, session.durable)

    def _end_stored(self, client_id: str, durable: Storage) -> None:
        commit = self._ending[client_id] = durable.gathering

        def ended() -> None:
            if self._ending.get(client_id) == commit:
                del self._ending[client_id]

        durable.after_commit(ended)

    # Two clients that share a client id would disconnect each other for ever

    def flaps(self, client_id: str) -> bool:
        """Whether this client id has been taken over too often recently. Call this before each `open`."""
        settings = self._services.config.flapping
        takeovers = self._flapping.get(client_id)
        known = self._sessions.get(client_id)
        is_takeover = settings.max_takeovers and known is not None and known.channel is not None
        if takeovers is None and not is_takeover:
            return False
        now = trio.current_time()
        if takeovers and takeovers[-1] > now:
            return True  # blocked until then
        if not is_takeover:
            return False
        if takeovers is None:
            if len(self._flapping) >= self._sweep_at:
                self._sweep_flapping(now)
            takeovers = self._flapping[client_id] = deque()
        takeovers.append(now)
        while takeovers[0] <= now - settings.window:
            takeovers.popleft()
        if len(takeovers) <= settings.max_takeovers:
            return False
        takeovers.append(now + settings.jail)
        return True

    def _sweep_flapping(self, now: float) -> None:
        """Forget takeovers that are too old to count."""
        window = self._services.config.flapping.window
        self._flapping = {
            client_id: takeovers for client_id, takeovers in self._flapping.items() if takeovers[-1] > now - window
        }
        self._sweep_at = max(MIN_SWEPT, 2 * len(self._flapping))

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


def priority_settings(settings: SessionSettings) -> QueueSettings:
    """Of a queue."""
    default = HIGHEST if settings.default_priority == "highest" else LOWEST
    return {"priority": _priorities(settings.priorities), "default_priority": default}


def _priorities(by_filter: Mapping[str, int]) -> Callable[[str], int | None] | None:
    """The priority of a topic: of its own name if it is listed, or else of the first filter that matches."""
    if not by_filter:
        return None

    def priority(topic: str) -> int | None:
        exact = by_filter.get(topic)
        if exact is not None:
            return exact
        for filter, value in by_filter.items():
            if matches(filter, topic):
                return value
        return None

    return priority
