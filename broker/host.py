"""The node's interface for its plugins: the implementation of `trunkline.plugins.context.Host`."""

from __future__ import annotations

from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import trio

from trunkline.actors import Paced
from trunkline.broker.metrics import DropReason
from trunkline.broker.routes import Subscriber
from trunkline.broker.session import mail
from trunkline.broker.session.access import Question
from trunkline.hooks.decisions import TAKEN, Deny, Withhold
from trunkline.mqtt.frames import check_writable
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import validate_filter, validate_name
from trunkline.router import Options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import Any

    from trunkline.broker.routes import Grant
    from trunkline.broker.session.actor import SessionActor
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.hooks.alarm import Alarm
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.plugins.context import Client
    from trunkline.plugins.store import PluginStore, PluginStores
    from trunkline.streams.interface import Streams


#: Sessions that are notified before other work gets its turn.
NOTIFIED_AT_ONCE: Final = 100


class NodeHost:
    def __init__(
        self,
        services: Services,
        sessions: Directory,
        figures: Callable[[], Awaitable[dict[str, int]]],
        plugin_stores: PluginStores,
        streams: Callable[[], Streams],
    ) -> None:
        self._services = services
        self._plugin_stores = plugin_stores
        self._sessions = sessions
        self._streams = streams
        self._figures = figures
        #: Sessions that have not been notified yet that access decisions have changed.
        self._to_notify: list[SessionActor] = []

    def alarms(self) -> list[Alarm]:
        return self._services.alarms.active

    def limits(self) -> dict[str, int]:
        return self._services.config.all_limits()

    async def metrics(self) -> dict[str, int]:
        return await self._figures()

    def store_of(self, plugin: str) -> PluginStore:
        return self._plugin_stores.of(plugin)

    @property
    def streams(self) -> Streams:
        return self._streams()

    @property
    def now(self) -> float:
        return trio.current_time()

    @property
    def wall(self) -> float:
        return trio.current_time() + self._services.clock.calendar

    @property
    def clock_correction(self) -> float:
        return self._services.clock.correction

    @property
    def node_name(self) -> str:
        return self._services.config.node.name

    # Messages

    def message(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties, publisher: str
    ) -> Message:
        """
        Raises:
            ProtocolError: this is not a topic name.
        """
        validate_name(topic)
        return self._services.stamp(Message(topic, payload, qos, retain, properties, publisher=publisher), self.now)

    def publish(self, message: Message) -> int:
        """
        Raises:
            TypeError, ValueError: the message cannot be sent.
        """
        check_writable(message)
        return self._services.pubsub.publish(message, self.now)

    def delete_retained(self, topics: list[str]) -> None:
        self._services.pubsub.delete_retained(topics)

    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold:
        services, now = self._services, self.now
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

    # Clients; the listing code is imported on first use

    def client(self, client_id: str) -> Client | None:
        from trunkline.broker.views import client_row

        found = self._sessions.get(client_id)
        return None if found is None else client_row(found)

    def clients(self, after: str, limit: int) -> list[Client]:
        from trunkline.broker.views import client_rows

        return client_rows(self._sessions, after, limit)

    def subscriptions(self, client_id: str) -> Mapping[str, Options]:
        found = self._sessions.get(client_id)
        return MappingProxyType({} if found is None else found.session.subscriptions)

    def subscribe_client(self, client_id: str, requests: list[SubscriptionRequest]) -> bool:
        found = self._sessions.get(client_id)
        if found is None or found.channel is None:
            return False
        found.ref.cast(mail.SubscribeFor(requests))
        return True

    def unsubscribe_client(self, client_id: str, filters: list[str]) -> bool:
        found = self._sessions.get(client_id)
        if found is None:
            return False
        found.ref.cast(mail.UnsubscribeFor(filters))
        return True

    def kick(
        self,
        client_id: str,
        reason: Reason = Reason.ADMINISTRATIVE_ACTION,
        text: str = "disconnected by an operator",
    ) -> bool:
        found = self._sessions.get(client_id)
        if found is None or found.channel is None:
            return False
        found.ref.cast(mail.Kick(reason, text))
        return True

    @property
    def logged_clients(self) -> list[str]:
        """Client ids whose packets are in the log."""
        return sorted(self._services.logged_clients)

    def log_packets(self, client_id: str, on: bool) -> None:
        """Start or stop logging a client's packets, on this connection and on later ones."""
        logged, found = self._services.logged_clients, self._sessions.get(client_id)
        if on:
            logged.add(client_id)
        else:
            logged.discard(client_id)
        if found is not None and found.channel is not None:
            found.channel.cast(mail.LogPackets(found.channel.client, on))

    # Access

    def may(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> bool:
        return bool(self._services.access.decide(Question(client, action, topic, qos, retain)))

    def forget_decisions(self, client_id: str | None, *, subscriptions: bool = True) -> None:
        if client_id is None:
            walking = bool(self._to_notify)
            self._to_notify = list(self._sessions)
            for session in islice(self._taken_to_notify(), NOTIFIED_AT_ONCE):
                session.ref.cast(mail.RulesChanged())
            if self._to_notify and not walking:
                self._services.start_task(self._notify_the_rest)
        elif (actor := self._sessions.get(client_id)) is not None:
            actor.ref.cast(mail.RulesChanged(subscriptions))

    async def _notify_the_rest(self) -> None:
        await trio.lowlevel.checkpoint()  # the first ones check all their subscriptions
        async for actor in Paced(self._taken_to_notify(), NOTIFIED_AT_ONCE):
            actor.ref.cast(mail.RulesChanged())

    def _taken_to_notify(self) -> Iterator[SessionActor]:
        while self._to_notify:
            yield self._to_notify.pop()

    # Alarms

    def raise_alarm(self, name: str, text: str) -> None:
        self._services.alarms.activate(name, text)

    def clear_alarm(self, name: str) -> None:
        self._services.alarms.deactivate(name)
