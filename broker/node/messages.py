"""Messages that do not come from a client's connection: those of the broker itself, of its plugins and of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio

from trunkline.broker.metrics import DropReason
from trunkline.broker.routes import Subscriber
from trunkline.hooks.decisions import TAKEN, Deny, Withhold
from trunkline.mqtt.frames import check_writable
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import validate_filter, validate_name
from trunkline.router import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.routes import Grant
    from trunkline.broker.session.services import Services
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication


class OwnMessages:
    def __init__(self, services: Services) -> None:
        self._services = services

    def message(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        publisher: str = "",
    ) -> Message:
        """A new message with its id and its times, to be routed.

        Raises:
            ProtocolError: this is not a topic name.
        """
        validate_name(topic)
        return self._services.stamp(
            Message(topic, payload, qos, retain, properties, publisher=publisher), trio.current_time()
        )

    def route(self, message: Message) -> int:
        """Returns the number of sessions that it went to.

        Raises:
            TypeError, ValueError: the message cannot be sent.
        """
        check_writable(message)
        services = self._services
        reached = services.pubsub.publish(message, trio.current_time())
        if not reached and services.pubsub.refused(message):
            services.unheard(services.publisher_of(message), message)
        return reached

    def refusal(self, message: Message) -> str:
        """Why a stream has refused a message that was just routed, to nobody then; empty if none has."""
        return self._services.pubsub.refused(message)

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> int:
        """Publish as the broker itself: access rules and hooks at `message.publish` do not apply. Returns the number of
        sessions that it went to.

        Raises:
            ProtocolError: this is not a topic name.
        """
        return self.route(self.message(topic, payload, qos, retain))

    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold:
        """Publish as if this client did so now, through the hooks at `message.publish`. Returns the number of sessions
        that it went to, or the answer of the hook that refused or took it."""
        services, now = self._services, trio.current_time()
        fresh = Message(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            publisher=client.client_id,
            username=client.username,
        )
        check_writable(services.stamp(fresh, now))
        changed = services.publishing(client, fresh, now)
        if isinstance(changed, Deny | Withhold):
            if changed is not TAKEN:
                services.dropped(client, fresh, DropReason.HOOK)
            return changed
        reached = services.pubsub.publish(changed, now)
        if not reached:
            services.unheard(client, changed)
        return reached

    def subscribe(
        self,
        name: str,
        filter: str,
        qos: int,
        deliver: Callable[[Message], None],
        answered: Callable[[Reason | None], None],
    ) -> Callable[[], None]:
        """Route messages to a callable. Returns a function that ends this. `answered` is called with None once the
        route is made, or with the reason if it is refused.

        Raises:
            ProtocolError: this is not a topic filter.
        """
        validate_filter(filter)

        def take(letter: Any) -> None:
            if type(letter) is tuple:
                for message in cast("tuple[Publication, object]", letter)[0].messages:
                    deliver(message)

        subscriber = Subscriber(f"$plugin/{name}", take)
        subscriber.online = True
        pubsub = self._services.pubsub

        def done(results: list[Grant | Reason]) -> None:
            answered(results[0] if isinstance(results[0], Reason) else None)

        pubsub.make_routes(subscriber, [(filter, Options(qos))], done)
        return lambda: pubsub.remove_routes(subscriber, [filter], lambda _: None)
