"""To one client: each message as MSG or HMSG, once for each subscription that it came by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.carrying import WITH_HEADERS, WITHOUT_HEADERS, deliver_all, form_of
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import DELIVERY_COMPLETED, MESSAGE_DELIVER, MESSAGE_DELIVERED
from trunkline.mqtt.publication import PublishBatch

if TYPE_CHECKING:
    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.nats.subscriptions import SubjectRoute, SubjectSubscription, SubjectSubscriptions
    from trunkline.broker.routes import Subscriber
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Target


class Delivering:
    __slots__ = (
        "_dialogue",
        "_form",
        "_may_read",
        "_pieces",
        "_routes",
        "_services",
        "_standing",
        "_subscriptions",
        "kept_back",
    )

    def __init__(self, standing: Standing, dialogue: Dialogue, subscriptions: SubjectSubscriptions) -> None:
        self._standing = standing
        self._dialogue = dialogue
        self._subscriptions = subscriptions
        self._services = standing.services
        self._pieces = dialogue.pieces
        self._routes = subscriptions.by_number
        self.follow_terms()
        #: Topics that access rules have decided about.
        self._may_read = standing.channel.may_read
        #: How many of its own copies of a message the client did not get, nor another member of a group.
        self.kept_back = 0

    def follow_terms(self) -> None:
        self._form = WITH_HEADERS if self._standing.terms.headers else WITHOUT_HEADERS

    def deliver(self, publication: Publication, target: Target[Subscriber]) -> None:
        services, standing = self._services, self._standing
        hooks = services.hooks
        if standing.pressure.high_bytes < self._dialogue.pending:
            standing.pressure.hold(publication.publisher, self._dialogue.scheduler.now)
            standing.jetstream.hold(publication.topic, standing)
        if isinstance(publication, PublishBatch) and self._delivered_together(publication, target):
            return
        for message in publication.messages:
            topic = message.topic
            if self._dialogue.is_too_slow:
                self._give_up(message, target, DropReason.SESSION_ENDED)
                continue
            if not self._may_read.get(topic) and not services.access.may_read(standing.channel, topic):
                self._give_up(message, target, DropReason.READ_NOT_AUTHORIZED)
                continue
            written = message
            if hooks.message_deliver:
                changed = hooks.transform(MESSAGE_DELIVER, standing.client, message)
                if isinstance(changed, Deny | Withhold):
                    services.dropped(standing.client, message, DropReason.DELIVERY_HOOK)
                    continue
                (written,) = changed.messages
            if written.expires_at <= self._dialogue.scheduler.now:
                services.dropped(standing.client, message, DropReason.EXPIRED)
                continue
            self._write(written, target)
            if hooks.message_delivered:
                hooks.notify(MESSAGE_DELIVERED, standing.client, written, "live")
            if hooks.delivery_completed:
                hooks.notify(DELIVERY_COMPLETED, standing.client, written, "live")

    def _delivered_together(self, publication: PublishBatch, target: Target[Subscriber]) -> bool:
        """Whether that was possible: nothing looks at each message."""
        dialogue, hooks, topic = self._dialogue, self._services.hooks, publication.topic
        if (
            len(publication.topics) > 1
            or publication.has_properties
            or publication.expires_at <= dialogue.scheduler.now
            or dialogue.is_too_slow
            or not self._may_read.get(topic)
            or hooks.message_deliver
            or hooks.message_delivered
            or hooks.delivery_completed
        ):
            return False
        subscriptions: list[SubjectSubscription] = []
        for route in filter(None, map(self._routes.get, target.identifiers)):
            if route.is_shared and len(route.subscriptions) > 1:
                return False  # each message goes to another one
            subscriptions += route.subscriptions.values()
        if any(each.maximum for each in subscriptions):
            return False
        payloads, count = publication.payloads, publication.count
        for subscription in subscriptions:
            if not dialogue.is_too_slow:
                data = deliver_all(topic, subscription.sid, payloads)
                subscription.delivered += count
                self._pieces.append(data)
                self._services.metrics.messages_out[0] += count
                dialogue.wrote(len(data))
        return True

    def _write(self, message: Message, target: Target[Subscriber]) -> None:
        head, tail = form_of(message, self._form)
        for number in target.identifiers:
            route = self._routes.get(number)
            if route is None:
                continue  # the client has unsubscribed meanwhile
            for subscription in (self._next(route),) if route.is_shared else tuple(route.subscriptions.values()):
                subscription.delivered += 1
                self._pieces += (head, subscription.sid, tail)
                self._dialogue.wrote(len(tail))
                self._services.metrics.messages_out[0] += 1
                if subscription.delivered == subscription.maximum:
                    self._subscriptions.end(subscription)
                if self._dialogue.is_too_slow:
                    return

    def _next(self, route: SubjectRoute) -> SubjectSubscription:
        """Of the client's subscriptions in a queue group, each in its turn."""
        subscriptions = route.subscriptions
        sid = next(iter(subscriptions))
        chosen = subscriptions[sid]
        if len(subscriptions) > 1:
            subscriptions[sid] = subscriptions.pop(sid)  # now it is the last one
        return chosen

    def deliver_own(self, publication: Publication, target: Target[Subscriber]) -> None:
        """As `deliver`, of what this client has published, where it does not want that: another member of the group
        gets it, if there is one."""
        for message in publication.messages:
            self.kept_back += not self._move(message, target)

    def lose(self, delivery: Any) -> None:
        """In place of the mailbox of a client that has left."""
        if type(delivery) is tuple:
            publication, target = cast("tuple[Publication, Target[Subscriber]]", delivery)
            for message in publication.messages:
                self._give_up(message, target, DropReason.SESSION_ENDED)

    def _give_up(self, message: Message, target: Target[Subscriber], reason: DropReason) -> None:
        moved = reason is DropReason.SESSION_ENDED and self._move(message, target)
        self._services.dropped(self._standing.client, message, DropReason.REDISPATCHED if moved else reason)

    def _move(self, message: Message, target: Target[Subscriber]) -> bool:
        """Hand it to another member of its shared group."""
        group, pubsub = target.group, self._standing.services.pubsub
        return group is not None and pubsub.hand_on(message, group, target.subscriber)

    def drained(self) -> None:
        """All that was sent has been written."""
        if self._standing.pressure.on:
            self._standing.pressure.release()
