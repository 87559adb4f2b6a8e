"""The will, which the broker publishes for a client that has disconnected without a DISCONNECT (MQTT 5.0, section
3.1.2.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

from trunkline.broker.metrics import DropReason
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.access import Question
from trunkline.broker.session.stored_will import StoredWill
from trunkline.hooks.decisions import TAKEN
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES, Properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.packets import Will
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Target


def delay(will: Will) -> int:
    """Seconds between the end of the connection and the publication, if the session lasts that long."""
    return will.properties.get("will_delay_interval", 0)


class Publishing(Protocol):
    """As whom a will is published: a session, or what is left of one."""

    @property
    def services(self) -> Services: ...
    @property
    def config(self) -> Config: ...
    @property
    def subscriber(self) -> Subscriber: ...


class OwnCopy:
    """The session's copy of its client's own will goes through its mailbox: the session's turn may be over."""

    __slots__ = ("_client", "_services", "_subscriber")

    def __init__(self, subscriber: Subscriber, client: ClientInfo, services: Services) -> None:
        self._subscriber = subscriber
        self._client = client
        self._services = services

    def deliver(self, publication: Publication, target: Target[Subscriber]) -> None:
        self._subscriber.cast((publication, target))

    def deliver_own(self, publication: Publication, target: Target[Subscriber]) -> None:
        if target.own is None:
            self._services.dropped(self._client, publication, DropReason.NO_LOCAL)  # [MQTT-3.8.3-3]
        else:
            self.deliver(publication, target.own)


def publish(will: Will, client: ClientInfo, context: Publishing, now: float) -> None:
    """Publish it as the client would: the access rules are checked now, not when it connected."""
    question = Question(client, "publish", will.topic, will.qos, will.retain)
    services = context.services
    if services.access.waits:
        kept = None
        if services.committer is not None and client.durable:  # until it is decided
            kept = StoredWill.of(client, will, services.committer)
        services.start_task(_ask_first, question, will, context, kept)
    else:
        _route(will, client, context, now, allowed=services.access.decide(question))


async def _ask_first(question: Question, will: Will, context: Publishing, kept: StoredWill | None) -> None:
    allowed = await context.services.access.ask(question)
    _route(will, question.client, context, trio.current_time(), allowed=allowed)
    if kept is not None:
        kept.end()


def publish_left(left: Iterable[StoredWill], services: Services) -> Iterator[None]:
    """One by one, those of clients that were connected when an earlier process ended."""
    for stored in left:
        will = stored.will
        if will is not None:
            subscriber = Subscriber(stored.client.client_id, _nobody)
            publish(will, stored.client, _Left(services, services.config, subscriber), trio.current_time())
            stored.end()
        yield


@dataclass(slots=True)
class _Left:
    services: Services
    config: Config
    subscriber: Subscriber


def _nobody(message: object) -> None:
    """Takes nothing: its session is gone."""


def _route(will: Will, client: ClientInfo, context: Publishing, now: float, *, allowed: bool | None) -> None:
    services, subscriber = context.services, context.subscriber
    properties: Properties = {**will.properties}
    properties.pop("will_delay_interval", None)
    message = Message(
        will.topic,
        will.payload,
        will.qos,
        will.retain,  # [MQTT-3.1.2-14] [MQTT-3.1.2-15]
        properties or NO_PROPERTIES,
        publisher=client.client_id,
        username=client.username,
    )
    services.stamp(message, now)
    if not allowed:
        services.dropped(client, message, DropReason.NOT_AUTHORIZED)
        return
    if 0 < context.config.mqtt.max_payload_size < len(message.payload):
        services.dropped(client, message, DropReason.PAYLOAD_TOO_LARGE)
        return
    if services.hooks.message_publish:
        changed = services.publishing(client, message, now)
        if not isinstance(changed, Message):
            if changed is not TAKEN:
                services.dropped(client, message, DropReason.HOOK)
            return
        message = changed
    if not services.pubsub.publish_will(message, now, subscriber, OwnCopy(subscriber, client, services)):
        services.unheard(client, message)
