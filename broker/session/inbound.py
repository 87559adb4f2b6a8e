"""From one client to the broker: PUBLISH at each QoS, up to routing and the acknowledgement."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.broker.session import mail
from trunkline.broker.session.access import Undecided
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import MESSAGE_PUBLISH
from trunkline.mqtt.awaiting_rel import Received
from trunkline.mqtt.batch import PublishBatch
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, quoted, reason_string
from trunkline.mqtt.frames import PACKET_ID
from trunkline.mqtt.inflight import Miss
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import PacketType, Puback, Pubcomp, Publish, Pubrec, Pubrel
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.hooks.client import ClientInfo
    from trunkline.router import Route

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
#: What answers a PUBLISH, by its QoS.
_ANSWERED_BY: Final = {1: PUBACK, 2: PUBREC}


class Inbound:
    __slots__ = (
        "_after",
        "_await_rel_timeout",
        "_awaiting_rel",
        "_max_payload_size",
        "_outbound",
        "_received",
        "_sent",
        "_services",
        "_session",
        "_stop_waiting",
        "_subscriber",
        "now",
    )

    def __init__(
        self,
        session: Session,
        services: Services,
        outbound: Outbound,
        subscriber: Subscriber,
        after: Callable[[float, Callable[[], None]], Callable[[], None]],
    ) -> None:
        """`after(delay, action)` starts a timer of the session and returns what stops it."""
        self._session = session
        self._services = services
        self._after = after
        self._max_payload_size = services.config.mqtt.max_payload_size
        self._await_rel_timeout = services.config.session.await_rel_timeout
        self._stop_waiting: Callable[[], None] | None = None
        #: Counts messages by QoS, and packets that acknowledge them.
        self._received = services.metrics.messages_in
        self._sent = services.metrics.sent
        self._outbound = outbound
        self._subscriber = subscriber
        self._awaiting_rel = session.awaiting_rel
        #: The node's time in this turn.
        self.now = 0.0

    def publish(self, packet: Publish, channel: Channel) -> None:
        """
        Raises:
            ProtocolError: the client must go.
            Undecided: nothing has happened yet.
        """
        services = self._services
        qos = packet.qos
        self._received[qos] += 1
        if packet.properties:
            self._read_properties(packet, channel)
        if qos or packet.retain:
            self._check_limits(packet, channel)
            if qos == 2 and packet.packet_id in self._awaiting_rel:
                self._acknowledge(channel, packet, Reason.SUCCESS)  # [MQTT-4.3.3-10]
                return
        topic = packet.topic
        allowed = channel.may_publish[qos << 1 | packet.retain].get(topic)
        if allowed is None:
            if channel.answer is not None and channel.answer[0] is packet:
                allowed = channel.answer[1]
            elif services.access.waits and not channel.client.superuser:
                self._received[qos] -= 1  # it comes again
                raise Undecided([packet])
            else:
                allowed = services.access.may_publish(channel, topic, qos, packet.retain)
        packet.publisher = channel.client.client_id
        packet.username = channel.client.username
        packet.timestamp = wall = self.now + services.epoch
        packet.guid = services.guids.next(wall)
        if not allowed:
            self._refuse(packet, channel, DropReason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED)
            return
        if self._max_payload_size and len(packet.payload) > self._max_payload_size:
            text = f"the payload is larger than {self._max_payload_size} bytes"
            self._refuse(packet, channel, DropReason.PAYLOAD_TOO_LARGE, Reason.QUOTA_EXCEEDED, text)
            return
        message: Message = packet
        if services.hooks.message_publish:
            changed = services.publishing(channel.client, message, self.now)
            if type(changed) is Deny:
                if changed.disconnect:
                    self._services.dropped(channel.client, packet, DropReason.HOOK)
                    raise ProtocolError(changed.text or "refused", changed.reason)
                self._refuse(packet, channel, DropReason.HOOK, changed.reason, changed.text)
                return
            if type(changed) is Withhold:
                self._withhold(packet, channel, changed)
                return
            message = changed
        if qos == 2:
            if self._awaiting_rel.receive(packet.packet_id, message, weight(message), self.now) is Received.FULL:
                self._too_many(packet, channel)
                return
            self.expect_pubrel()
            found = bool(services.pubsub.router.match(message.topic))
        else:
            found = services.pubsub.publish(message, self.now, self._subscriber, self._outbound) > 0
            if not found:
                self._nobody(message, channel)
        if qos:
            self._acknowledge(channel, packet, Reason.SUCCESS if found else Reason.NO_MATCHING_SUBSCRIBERS)

    def publish_burst(self, burst: PublishBatch, channel: Channel) -> None:
        """As `publish`, for each of its packets.

        Raises:
            ProtocolError: the client must go.
            Undecided: of some of its messages nothing has happened yet.
        """
        services, qos = self._services, burst.qos
        if (
            services.hooks.message_publish_bursts is None
            or services.hooks.message_routed_bursts is None
            or qos > services.config.mqtt.max_qos
            or not all(map(channel.may_publish[qos << 1].get, burst.topics))
            or (self._max_payload_size and max(burst.sizes) > self._max_payload_size)
        ):
            self._publish_each(burst, channel)
            return
        generation = services.hooks.generation
        for part, route in services.pubsub.routed(burst):
            count = len(part)
            if (
                count < 2
                or not route
                or services.hooks.generation != generation  # who looked has let others in
                or (qos and self._crowded(count, qos, channel))
                or (qos == 2 and not self._awaiting_rel.receive_burst(part, self.now))
            ):
                self._publish_each(part, channel)
                continue
            self._received[qos] += count
            part.publisher = channel.client.client_id
            part.username = channel.client.username
            part.timestamp = wall = self.now + services.epoch
            guid = services.guids.take(wall, count)
            part.guids = range(guid, guid + count)
            if services.hooks.message_publish_bursts:
                services.hooks.look(MESSAGE_PUBLISH, services.hooks.message_publish_bursts, channel.client, part)
            if qos < 2:
                self._route_burst(part, route, channel)
            else:
                self.expect_pubrel()
            if qos:
                self._outbound.write_all(Puback if qos == 1 else Pubrec, part.packet_ids)

    def _publish_each(self, burst: PublishBatch, channel: Channel) -> None:
        messages = burst.messages
        for number, packet in enumerate(messages):
            try:
                self.publish(packet, channel)
            except Undecided as undecided:
                undecided.messages = messages[number:]
                raise

    def _route_burst(self, burst: PublishBatch, route: Route[Subscriber], channel: Channel) -> None:
        pubsub = self._services.pubsub
        if pubsub.may_burst(route):
            pubsub.publish_burst(burst, route, self._subscriber, self._outbound)
        else:
            for message in burst.messages:
                self._release(message, channel)

    def _crowded(self, count: int, qos: int, channel: Channel) -> bool:
        """May so many more be too many without acknowledgement?  # [MQTT-3.3.4-7]"""
        more = count if qos == 2 else 1  # of QoS 1, each is acknowledged before the next is looked at
        return channel.version == Version.V5 and len(self._awaiting_rel) + more > channel.receive_maximum_in

    def owes_too_much(self, held: Iterable[mail.Received | mail.Lost], channel: Channel) -> bool:
        """Is the client above its receive maximum, with what is held while a hook is asked?  # [MQTT-3.3.4-7]"""
        if channel.version != Version.V5:
            return False
        owed = len(self._awaiting_rel)
        for message in held:
            for packet in message.packets if type(message) is mail.Received else ():
                if type(packet) is PublishBatch:
                    owed += len(packet) if packet.qos else 0
                elif type(packet) is Publish:
                    owed += packet.qos > 0 and packet.packet_id not in self._awaiting_rel
        return owed > channel.receive_maximum_in

    def pubrel(self, packet: Pubrel, channel: Channel) -> None:
        """The message that was taken over is routed now, once.  # [MQTT-4.3.3-12]"""
        message = self._awaiting_rel.release(packet.packet_id)
        if isinstance(message, Message):
            self._release(message, channel)
        # Of a resumed session an identifier that is not open is one whose PUBCOMP was lost with the connection before: there
        # it is no error  [MQTT-4.3.3-11]
        lost = message is Miss.NOT_FOUND and not channel.resumed
        self._outbound.write(Pubcomp(packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND if lost else Reason.SUCCESS))

    def pubrels(self, packet_ids: Sequence[int], channel: Channel) -> None:
        """As `pubrel`, for each of these packets."""
        released = self._awaiting_rel.release_all(packet_ids)
        if not released:
            for packet_id in packet_ids:
                self.pubrel(Pubrel(packet_id), channel)
            return
        for held in released:
            if isinstance(held, PublishBatch):
                for part, route in self._services.pubsub.routed(held):
                    if route:
                        self._route_burst(part, route, channel)
                    else:
                        for message in part.messages:
                            self._nobody(message, channel)
            elif held is not None:
                self._release(held, channel)
        self._outbound.write_all(Pubcomp, packet_ids)

    def _release(self, message: Message, channel: Channel) -> None:
        if not self._services.pubsub.publish(message, self.now, self._subscriber, self._outbound):
            self._nobody(message, channel)

    def _read_properties(self, packet: Publish, channel: Channel) -> None:
        """Topic alias and expiry; what is left is for the subscribers.  # [MQTT-3.3.2-4] [MQTT-3.3.2-20]"""
        properties = packet.properties
        alias = properties.get("topic_alias")
        if alias is not None:
            packet.topic = channel.aliases_in.resolve(alias, packet.topic)
            rest: Properties = {**properties}
            del rest["topic_alias"]
            packet.properties = rest or NO_PROPERTIES
        interval = properties.get("message_expiry_interval")
        if interval is not None:
            packet.expires_at = self.now + interval

    def _check_limits(self, packet: Publish, channel: Channel) -> None:
        mqtt = self._services.config.mqtt
        if packet.qos > mqtt.max_qos:
            raise ProtocolError(f"QoS {packet.qos} is not offered", Reason.QOS_NOT_SUPPORTED)  # [MQTT-3.2.2-11]
        if packet.retain and not mqtt.retain_available:
            raise ProtocolError("retained messages are not offered", Reason.RETAIN_NOT_SUPPORTED)  # [MQTT-3.2.2-14]
        if (
            packet.qos
            and len(self._awaiting_rel) >= channel.receive_maximum_in
            and channel.version == Version.V5
            and packet.packet_id not in self._awaiting_rel
        ):
            raise ProtocolError(  # [MQTT-3.3.4-7]
                f"more than {channel.receive_maximum_in} messages without acknowledgement",
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def _acknowledge(
        self, channel: Channel, packet: Publish, reason: int, properties: Properties = NO_PROPERTIES
    ) -> None:
        if reason and channel.version == Version.V5:
            kind = Puback if packet.qos == 1 else Pubrec
            self._outbound.write(kind(packet.packet_id, reason, properties))
        elif packet.qos == 1:
            self._outbound.pieces += (b"\x40\x02", PACKET_ID[packet.packet_id])
            self._sent[PUBACK] += 1
        else:
            self._outbound.pieces += (b"\x50\x02", PACKET_ID[packet.packet_id])
            self._sent[PUBREC] += 1

    def _refuse(self, packet: Publish, channel: Channel, drop: DropReason, reason: Reason, text: str = "") -> None:
        """3.x has no way to say no but to close: there the message is acknowledged and goes nowhere."""
        self._services.dropped(channel.client, packet, drop)
        if drop is DropReason.NOT_AUTHORIZED and self._services.config.acl.deny_action == "disconnect":
            raise ProtocolError(f"not allowed to publish to {quoted(packet.topic)}", Reason.NOT_AUTHORIZED)
        if packet.qos:
            if packet.qos == 2 and channel.version != Version.V5:
                self._awaiting_rel.receive(packet.packet_id, None, 0)
            properties = reason_string(text) if channel.problem_information else NO_PROPERTIES
            self._acknowledge(channel, packet, fitting(reason, _ANSWERED_BY[packet.qos]), properties)

    def _withhold(self, packet: Publish, channel: Channel, answer: Withhold) -> None:
        if answer.dropped:
            self._services.dropped(channel.client, packet, DropReason.HOOK)
        if packet.qos:
            if packet.qos == 2:
                self._awaiting_rel.receive(packet.packet_id, None, 0)
            self._acknowledge(channel, packet, fitting(answer.reason, _ANSWERED_BY[packet.qos]))

    def _too_many(self, packet: Publish, channel: Channel) -> None:
        """More QoS 2 messages are open than `max_awaiting_rel` allows."""
        self._services.dropped(channel.client, packet, DropReason.RECEIVE_MAXIMUM)
        if channel.version != Version.V5:
            raise ProtocolError("too many QoS 2 messages without PUBREL", Reason.QUOTA_EXCEEDED)
        self._acknowledge(channel, packet, Reason.QUOTA_EXCEEDED)

    def _nobody(self, message: Message, channel: Channel) -> None:
        self._services.dropped(channel.client, message, DropReason.NO_SUBSCRIBERS)

    def expect_pubrel(self) -> None:
        """Forget what has waited too long for its PUBREL, if there is such a time."""
        if self._await_rel_timeout and self._stop_waiting is None and len(self._awaiting_rel):
            oldest = self._awaiting_rel.oldest
            delay = max(0.0, oldest + self._await_rel_timeout - self.now)
            self._stop_waiting = self._after(delay, partial(self._expire, oldest))

    def _expire(self, due: float) -> None:
        """What came until `due` has waited long enough, whatever the time since then is rounded to."""
        self._stop_waiting = None
        for message in self._awaiting_rel.expire(max(due, self.now - self._await_rel_timeout), MESSAGES_AT_ONCE):
            if message is not None:
                self._services.dropped(self._session.client, message, DropReason.AWAIT_REL_TIMEOUT)
        self.expect_pubrel()

    def forget_unreleased(self, client: ClientInfo, limit: int) -> bool:
        """The session is over: no PUBREL will come any more. True when that was not all."""
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None
        for message in self._awaiting_rel.expire(inf, limit):
            if message is not None:
                self._services.dropped(client, message, DropReason.UNRELEASED)
        return len(self._awaiting_rel) > 0
