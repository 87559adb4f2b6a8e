"""From one client to the broker: PUBLISH at each QoS, up to routing and the acknowledgement."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import MESSAGE_PUBLISH
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, quoted, reason_string
from trunkline.mqtt.packets import PacketType, Puback, Pubcomp, Pubrec
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.ledger import all_of
from trunkline.mqtt.session.states import ReceiptEffect
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.outbound import Outbound
    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication, ReceivedPublication
    from trunkline.mqtt.session.ledger import Wait
    from trunkline.router import Route

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBCOMP: Final = PacketType.PUBCOMP
#: A message of QoS 2 was handed over before, and is only acknowledged.
_REPEATED: Final = ReceiptEffect.PUBREC
#: The type of the answer to a PUBLISH, by its QoS.
_ANSWERED_BY: Final = {1: PUBACK, 2: PUBREC}


class Undecided(Exception):
    """An access service has to decide before this may be published."""

    def __init__(self, publication: ReceivedPublication) -> None:
        self.publication = publication
        #: The rest of the messages that came together.
        self.messages = publication.messages


class Inbound:
    __slots__ = (
        "_answers",
        "_await_rel_timeout",
        "_awaiting_rel",
        "_context",
        "_is_limited",
        "_max_payload_size",
        "_may_refuse",
        "_mqtt",
        "_outbound",
        "_received",
        "_sent",
        "_services",
        "_session",
        "_stop_waiting",
        "_subscriber",
    )

    def __init__(self, context: SessionContext, outbound: Outbound) -> None:
        self._context = context
        self._session = context.session
        self._services = services = context.services
        self._stop_waiting: Callable[[], None] | None = None
        #: Counts messages by QoS, and packets that acknowledge them.
        self._received = services.metrics.messages_in
        self._sent = services.metrics.sent
        self._outbound = outbound
        self._answers = outbound.answers
        self._subscriber = context.subscriber
        self.attach()

    def attach(self) -> None:
        """A client is connected: take the session's parts and settings, which may be new ones."""
        self._awaiting_rel = self._session.awaiting_rel
        config = self._context.config
        self._mqtt = config.mqtt
        self._max_payload_size = config.mqtt.max_payload_size
        #: May a QoS or RETAIN be refused?
        self._is_limited = self._mqtt.max_qos < 2 or not self._mqtt.retain_available
        #: May a publication be too large, or too much?
        self._may_refuse = bool(self._max_payload_size) or config.refuses_over_rates
        self._await_rel_timeout = config.session.await_rel_timeout

    def enter_zone(self) -> None:
        """The session's settings are other ones, and its client stays: what CONNACK has told it stays as well."""
        self._await_rel_timeout = self._context.config.session.await_rel_timeout
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None
        self.expect_pubrel()

    def publish(
        self, publication: ReceivedPublication, channel: Channel, route: Route[Subscriber] | None = None
    ) -> None:
        """
        Raises:
            ProtocolError: the client must be disconnected.
            Undecided: some of its messages have not been handled yet.
        """
        services = self._services
        outbound = self._outbound
        qos = publication.qos
        count = publication.count
        kind = qos << 1 | publication.retain
        self._received[qos] += count
        if publication.properties:
            self._read_properties(publication, channel)
        if kind:
            if self._is_limited:
                self._check_offer(publication)
            # what comes one after the other is below any maximum
            if channel.receive_maximum_in and qos and (self._answers.ledger.entries or self._awaiting_rel.open):
                self._answers.ledger.check(publication.packet_ids[:1])
            # of those that come here together, all are new
            if qos == 2 and self._awaiting_rel.published(publication.packet_id) is _REPEATED:
                self._repeated(publication, channel)
                return
        client = channel.client
        allowed = channel.may_publish[kind].get(publication.topic)
        if allowed is None:
            if channel.answer is not None and channel.answer[0] is publication:
                allowed = channel.answer[1]
            elif services.access.waits and not client.superuser:
                self._received[qos] -= count  # it is repeated
                raise Undecided(publication)
            else:
                allowed = services.access.may_publish(channel, publication.topic, qos, publication.retain)
        publication.publisher = client.client_id
        publication.username = client.username
        now = outbound.now
        publication.timestamp = wall = now + services.clock.calendar
        publication.guid = services.guids.next(wall, count)
        if not allowed:
            self._refuse(publication, channel, DropReason.NOT_AUTHORIZED, Reason.NOT_AUTHORIZED)
            return
        if self._may_refuse and self._exceeds_quota(publication, channel):
            return
        routed: Publication = publication
        if services.hooks.message_publish:
            if qos == 2 and not self._awaiting_rel.has_room(count, 0):  # a hook that keeps it would get it again
                self._too_many(publication, channel)
                return
            changed = services.publishing(client, publication, now)
            if type(changed) is Deny or type(changed) is Withhold:
                self._withhold(publication, channel, changed)
                return
            routed = changed
        if qos < 2:
            reached = services.pubsub.publish(routed, now, self._subscriber, outbound, route)
            if not reached:
                if services.pubsub.refused(routed):
                    self._publish_singly(publication, routed, channel, route)
                    return
                services.dropped(client, routed, DropReason.NO_SUBSCRIBERS)
            elif qos and (late := services.pubsub.late_refusals) is not None and late.publication is routed:
                wait = late.wait() if services.committer is None else self._wait(routed, qos)
                self._answers.acknowledge_late(late, publication.packet_ids, routed, wait)
                return
            if not qos:
                if (routed.stored is not None or routed.retain) and (wait := self._wait(routed, qos)):
                    self._answers.hold(wait, routed.weight)
                return
        else:
            found = services.pubsub.router.match(routed.topic)
            refusal = services.pubsub.refusal_of(routed, found) if found.sinks else ""
            if refusal:
                self._refuse(publication, channel, DropReason.STREAM_FULL, Reason.QUOTA_EXCEEDED, refusal)
                return
            if not self._awaiting_rel.receive(publication.packet_ids, routed, routed.weight, now):
                self._too_many(publication, channel)
                return
            self.expect_pubrel()
            late = services.pubsub.late_refusals
            if late is not None and self._answers.asks(late, publication.packet_ids, routed, self._wait(routed, qos)):
                return
            reached = bool(found) or services.pubsub.is_wanted(routed.topic)
        wait = self._wait(routed, qos) if services.pubsub.makes_wait else None
        if not reached:
            self._acknowledge(channel, publication, Reason.NO_MATCHING_SUBSCRIBERS, wait=wait)
        else:
            packet_ids = (publication.packet_id,) if count == 1 else publication.packet_ids
            weight = 0.0 if wait is None else routed.weight
            self._answers.acknowledge(_ANSWERED_BY[qos], packet_ids, wait, weight)

    def _exceeds_quota(self, publication: ReceivedPublication, channel: Channel) -> bool:
        """Whether it was refused because it is too large, or comes too soon."""
        size = max(publication.sizes)
        if 0 < self._max_payload_size < size:
            text = f"the payload is larger than {self._max_payload_size} bytes"
            self._refuse(publication, channel, DropReason.PAYLOAD_TOO_LARGE, Reason.QUOTA_EXCEEDED, text)
            return True
        limit = None if channel.quota is None else channel.quota.take_or_refuse(size, self._outbound.now)
        if limit is None:
            return False
        self._services.limit_report.acted(limit.kind, channel.client.client_id, limit.text)
        text = f"too many {limit.kind.counter.rpartition('.')[2]} a second"
        self._refuse(publication, channel, DropReason.RATE_EXCEEDED, Reason.QUOTA_EXCEEDED, text)
        return True

    def _publish_singly(
        self,
        publication: ReceivedPublication,
        routed: Publication,
        channel: Channel,
        route: Route[Subscriber] | None,
    ) -> None:
        """A stream has refused it; where it is several messages, perhaps not all of them."""
        services = self._services
        pubsub, now = services.pubsub, self._outbound.now
        if publication.count == 1 or routed is not publication:
            refusal = pubsub.refused(routed)
            self._refuse(publication, channel, DropReason.STREAM_FULL, Reason.QUOTA_EXCEEDED, refusal)
            return
        for message in publication.messages:
            if not pubsub.publish(message, now, self._subscriber, self._outbound, route):
                self._publish_singly(message, message, channel, route)
            else:
                wait = self._wait(message, message.qos)
                if message.qos:
                    self._acknowledge(channel, message, Reason.SUCCESS, wait=wait)
                elif wait is not None:
                    self._answers.hold(wait, message.weight)

    def _wait(self, publication: Publication, qos: int) -> Wait | None:
        """What calls back when it may be acknowledged: when it is stored, if it has to be.  # [MQTT-4.3.2-4]
        [MQTT-4.3.3-8]"""
        services, stored = self._services, publication.stored
        committer = services.committer
        if committer is None:
            return services.pubsub.waits(publication, None)
        if qos == 2:
            return None if self._session.durable is None else committer.after_commit
        wait: Wait | None = None
        if publication.retain and (qos or committer.is_crowded):
            wait = committer.after_commit
        elif stored is not None:
            # what it is delivered as may be stored in its place
            is_changed = services.hooks.message_deliver
            wait = committer.after_commit if is_changed else partial(committer.publications.wait_for, stored)
        return services.pubsub.waits(publication, wait)

    def _repeated(self, publication: ReceivedPublication, channel: Channel) -> None:
        """It is acknowledged once more, and is not handed over again.  # [MQTT-4.3.3-10]"""
        late, wait = self._services.pubsub.late_refusals, self._stored(channel)
        packet_ids, held = publication.packet_ids, self._awaiting_rel.held
        if late is None or not self._answers.asks(late, packet_ids, held(*packet_ids), wait):
            self._acknowledge(channel, publication, Reason.SUCCESS, wait=wait)

    def _stored(self, channel: Channel) -> Wait | None:
        """Calls back when the session is stored as it is now: what was acknowledged to an earlier connection may not be
        yet."""
        durable = self._session.durable
        return None if durable is None or not channel.client.durable else durable.after_commit

    def publish_parts(self, publication: ReceivedPublication, channel: Channel) -> None:
        """`publish` for messages that came together."""
        done = 0
        for parts, route in self._parts(publication, channel):
            try:
                for part in parts:
                    self.publish(part, channel, route)
            except Undecided as undecided:
                undecided.messages = publication.messages[done + parts.index(undecided.publication) :]
                raise
            done += len(parts) * parts[0].count

    def _parts(
        self, publication: ReceivedPublication, channel: Channel
    ) -> Iterator[tuple[Sequence[ReceivedPublication], Route[Subscriber] | None]]:
        """Parts with a common route, and that route; and single messages where each must be checked separately."""
        services, qos = self._services, publication.qos
        hooks, generation = services.hooks, services.hooks.generation
        if (
            MESSAGE_PUBLISH in hooks.single
            or publication.properties
            or not all(map(channel.may_publish[qos << 1 | publication.retain].get, publication.topics))
            or (self._may_refuse and (channel.quota or 0 < self._max_payload_size < max(publication.sizes)))
        ):
            yield publication.messages, None
            return
        for part, route in services.pubsub.routed(publication):
            if (
                hooks.generation != generation  # a callback has published other messages meanwhile
                or (qos and channel.receive_maximum_in and self._is_crowded(part, channel))
                or (qos == 2 and not self._may_await_rel(part))
            ):
                yield part.messages, None
            else:
                yield (part,), route

    def _is_crowded(self, publication: ReceivedPublication, channel: Channel) -> bool:
        """Whether there are too many without acknowledgement."""
        packet_ids, ledger = publication.packet_ids, self._answers.ledger
        if publication.qos == 1 and not ledger.entries:  # each is acknowledged before the next is handled
            packet_ids = packet_ids[:1]
        return ledger.exceeds(packet_ids)

    def _may_await_rel(self, publication: ReceivedPublication) -> bool:
        awaiting_rel = self._awaiting_rel
        return awaiting_rel.are_new(publication.packet_ids) and awaiting_rel.has_room(
            publication.count, publication.weight
        )

    def pubrel(self, packet: Acknowledgement | Acknowledgements, channel: Channel) -> None:
        for effect, packet_ids, released in self._awaiting_rel.released(packet):
            if effect is ReceiptEffect.PUBCOMP:
                self._release(packet_ids, released, channel)
                continue
            # Of a resumed session an identifier that is not open is one whose PUBCOMP was lost with the connection
            # before: there it is not an error  [MQTT-4.3.3-11]
            reason = Reason.SUCCESS if channel.resumed else Reason.PACKET_IDENTIFIER_NOT_FOUND
            for packet_id in packet_ids:
                self._answers.write(Pubcomp(packet_id, reason), wait=self._stored(channel))

    def _release(self, packet_ids: Sequence[int], released: Sequence[Publication | None], channel: Channel) -> None:
        """The accepted messages are routed now, once.  # [MQTT-4.3.3-12]"""
        pubsub, committer = self._services.pubsub, self._services.committer
        is_stored, wait = self._session.durable is not None, None
        for publication in released:
            for part, route in pubsub.routed(publication) if publication is not None else ():
                if not pubsub.publish(part, self._outbound.now, self._subscriber, self._outbound, route):
                    self._release_singly(part, channel, route)
                is_stored = is_stored or part.stored is not None or part.retain
                wait = pubsub.waits(part, wait)
        if is_stored and committer is not None:
            wait = committer.after_commit if wait is None else all_of((wait, committer.after_commit))
        weight = 0.0 if wait is None else float(sum([each.weight for each in released if each is not None]))
        self._answers.acknowledge(PUBCOMP, packet_ids, wait, weight)

    def _release_singly(self, publication: Publication, channel: Channel, route: Route[Subscriber]) -> None:
        """It went to nobody; where a stream has refused several messages, perhaps not all of them."""
        pubsub = self._services.pubsub
        if publication.count == 1 or not pubsub.refused(publication):
            self._services.unheard(channel.client, publication)
            return
        for message in publication.messages:
            if not pubsub.publish(message, self._outbound.now, self._subscriber, self._outbound, route):
                self._services.unheard(channel.client, message)

    def _read_properties(self, packet: ReceivedPublication, channel: Channel) -> None:
        """Handle topic alias and expiry; the other properties are for the subscribers.  # [MQTT-3.3.2-4]
        [MQTT-3.3.2-20]"""
        channel.aliases_in.read(packet)
        interval = packet.properties.get("message_expiry_interval")
        if interval is not None:
            packet.expires_at = self._outbound.now + interval

    def _check_offer(self, packet: ReceivedPublication) -> None:
        if packet.qos > self._mqtt.max_qos:
            raise ProtocolError(f"QoS {packet.qos} is not offered", Reason.QOS_NOT_SUPPORTED)  # [MQTT-3.2.2-11]
        if packet.retain and not self._mqtt.retain_available:
            raise ProtocolError("retained messages are not offered", Reason.RETAIN_NOT_SUPPORTED)  # [MQTT-3.2.2-14]

    def _acknowledge(
        self,
        channel: Channel,
        packet: ReceivedPublication,
        reason: int,
        properties: Properties = NO_PROPERTIES,
        wait: Wait | None = None,
    ) -> None:
        weight = 0.0 if wait is None else packet.weight
        if reason and channel.version == Version.V5:
            kind = Puback if packet.qos == 1 else Pubrec
            for packet_id in packet.packet_ids:
                self._answers.write(kind(packet_id, reason, properties), wait=wait, weight=weight / packet.count)
        else:
            self._answers.acknowledge(_ANSWERED_BY[packet.qos], packet.packet_ids, wait, weight)

    def _refuse(
        self, packet: ReceivedPublication, channel: Channel, drop: DropReason, reason: Reason, text: str = ""
    ) -> None:
        """3.x can refuse only by closing the connection: there the message is acknowledged and dropped."""
        self._services.dropped(channel.client, packet, drop)
        if drop is DropReason.NOT_AUTHORIZED and self._services.config.acl.deny_action == "disconnect":
            raise ProtocolError(f"not allowed to publish to {quoted(packet.topic)}", Reason.NOT_AUTHORIZED)
        if packet.qos:
            if packet.qos == 2 and channel.version != Version.V5:
                self._awaiting_rel.receive(packet.packet_ids, None, 0)
            properties = reason_string(text) if channel.problem_information else NO_PROPERTIES
            self._acknowledge(channel, packet, fitting(reason, _ANSWERED_BY[packet.qos]), properties)

    def _withhold(self, packet: ReceivedPublication, channel: Channel, answer: Deny | Withhold) -> None:
        """A hook keeps it from all others."""
        if type(answer) is Deny:
            if not answer.disconnect:
                self._refuse(packet, channel, DropReason.HOOK, answer.reason, answer.text)
                return
            self._services.dropped(channel.client, packet, DropReason.HOOK)
            raise ProtocolError(answer.text or "refused", answer.reason)
        if answer.dropped:
            self._services.dropped(channel.client, packet, DropReason.HOOK)
        if packet.qos:
            if packet.qos == 2:
                self._awaiting_rel.receive(packet.packet_ids, None, 0)
            committer = self._services.committer
            # a plugin may have put into the store what it took
            is_stored = committer is not None and channel.client.durable and not answer.dropped
            wait = committer.after_commit if is_stored and committer is not None else None
            self._acknowledge(channel, packet, fitting(answer.reason, _ANSWERED_BY[packet.qos]), wait=wait)

    def _too_many(self, packet: ReceivedPublication, channel: Channel) -> None:
        """More QoS 2 messages are open than `max_awaiting_rel` allows."""
        self._services.dropped(channel.client, packet, DropReason.RECEIVE_MAXIMUM)
        if channel.version != Version.V5:
            raise ProtocolError("too many QoS 2 messages without PUBREL", Reason.QUOTA_EXCEEDED)
        self._acknowledge(channel, packet, Reason.QUOTA_EXCEEDED)

    def expect_pubrel(self) -> None:
        """Drop messages that have waited too long for their PUBREL, if there is a limit."""
        if self._await_rel_timeout and self._stop_waiting is None and len(self._awaiting_rel):
            oldest = self._awaiting_rel.oldest
            delay = max(0.0, oldest + self._await_rel_timeout - self._outbound.now)
            self._stop_waiting = self._context.after(delay, partial(self._expire, oldest))

    def _expire(self, due: float) -> None:
        """Messages that came until `due` have waited long enough; comparing with `due` avoids rounding."""
        self._stop_waiting = None
        before = max(due, self._outbound.now - self._await_rel_timeout)
        for message in self._awaiting_rel.expire(before, MESSAGES_AT_ONCE):
            self._services.dropped(self._session.client, message, DropReason.AWAIT_REL_TIMEOUT)
        self.expect_pubrel()

    def forget_unreleased(self, limit: int) -> bool:
        """The session has ended: no PUBREL will come any more. Returns True if some are left."""
        if self._stop_waiting is not None:
            self._stop_waiting()
            self._stop_waiting = None
        for message in self._awaiting_rel.expire(inf, limit):
            self._services.dropped(self._session.client, message, DropReason.UNRELEASED)
        return len(self._awaiting_rel) > 0
