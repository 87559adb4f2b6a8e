"""New sessions, in memory or stored, with the settings as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.session.durable import Durable, StoredParts, make_durable
from trunkline.broker.session.mqueue import HIGHEST, LOWEST, MessageQueue, Overflow, QueueSettings
from trunkline.broker.session.state import Session
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.mqtt.session.window import Inflight
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.committer import Committer
    from trunkline.broker.session.services import Services
    from trunkline.config.mqtt_settings import SessionSettings
    from trunkline.hooks.client import ClientInfo


class Making:
    __slots__ = ("_queue", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
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

    def in_memory(self, client: ClientInfo) -> Session:
        in_flight, awaited = self._limits
        return Session(client, Inflight(*in_flight), MessageQueue(**self._queue), AwaitingRel(*awaited))

    def stored(self, client: ClientInfo, number: int) -> Session:
        """With a number that no other session has."""
        committer = self._services.committer
        if committer is None:  # it was stored, and is in memory from now on
            return self.in_memory(client)
        parts = self._parts(committer, number)
        session = Session(client, *parts)
        session.durable = Durable(session, committer, number, parts)
        return session

    def store(self, session: Session, number: int) -> None:
        """From now on, under a number that no other session has."""
        committer = self._services.committer
        assert committer is not None
        make_durable(session, committer, number, self._parts(committer, number))

    @property
    def _limits(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the window, and of awaited PUBRELs: messages and bytes."""
        settings = self._services.config.session
        return (
            (settings.max_inflight, settings.max_inflight_bytes),
            (settings.max_awaiting_rel, self._services.config.queue_bytes),
        )

    def _parts(self, committer: Committer, number: int) -> StoredParts:
        in_flight, awaited = self._limits
        return StoredParts.new(committer, number, in_flight, self._queue, awaited)


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
