"""PUBLISH packets to one client: each message as this client may get it.

Output is collected in `pieces` and sent at once at the end of the session's turn. A PUBLISH that waits for a commit
keeps those behind it back.
"""

from __future__ import annotations

from functools import partial
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.answering import Answering
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import (
    DELIVERY_COMPLETED,
    MESSAGE_DELIVER,
    MESSAGE_DELIVERED,
)
from trunkline.mqtt.errors import UNWRITABLE, TooLong
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.session.states import SENDING, Effect, Event, State
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Delivery
    from trunkline.router import Target

_V5: Final = Version.V5


class Sending:
    __slots__ = (
        "_context",
        "_durable",
        "_hooks",
        "_packets",
        "_sent",
        "_services",
        "_session",
        "_uncommitted",
        "_upgrade_qos",
        "_window",
        "answers",
        "channel",
        "direct",
        "now",
        "pieces",
    )

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._session = context.session
        self._services = services = context.services
        self._hooks = services.hooks
        #: Counts messages by QoS.
        self._sent = services.metrics.messages_out
        self._upgrade_qos = services.config.session.upgrade_qos
        self.channel: Channel | None = None
        #: Whether a message may be sent as it comes.
        self.direct = False
        #: The node's time in this turn.
        self.now = 0.0
        #: Wire bytes of this turn.
        self.pieces: list[bytes] = []
        self.answers = Answering(context, self.pieces)
        #: Wire bytes that leave when a commit is done, by its number.
        self._uncommitted: dict[int, list[bytes]] = {}
        #: Where the next PUBLISH goes: to `pieces`, or behind one that waits for a commit.
        self._packets = self.pieces
        self.bind()

    def bind(self) -> None:
        """Take the session's parts, which may be new ones."""
        session = self._session
        self._window, self._durable = session.inflight, session.durable
        self.answers.bind(session.awaiting_rel)

    # Messages

    def deliver(self, publication: Publication, target: Target[Subscriber], delivery: Delivery = "live") -> None:
        """Send it, or let it wait while something is ahead of it: of one that has waited, nothing is."""
        if not self.direct and delivery == "live":
            self.keep(publication, target)
            return
        channel, hooks = self.channel, self._hooks
        assert channel is not None
        count = publication.count
        if count > 1 and not self._are_sent_alike(publication, target, channel):
            for message in publication.messages:
                self.deliver(message, target, delivery)
            return
        if not channel.may_read.get(publication.topic) and not self._may_get(channel, publication.topic):
            self._keep_back(channel, publication, target)
            return
        qos = publication.qos
        if target.qos != qos and (target.qos < qos or self._upgrade_qos):
            qos = target.qos  # [MQTT-3.8.4-8]
        original = publication
        if hooks.message_deliver:
            changed = hooks.transform(MESSAGE_DELIVER, self._session.client, publication)
            if type(changed) is Deny or type(changed) is Withhold:
                self.drop(publication, DropReason.DELIVERY_HOOK)
                return
            publication = changed
        is_plain = publication.expires_at == inf and channel.plain and not target.identifiers
        if not is_plain and publication.expires_at <= self.now:
            self.drop(publication, DropReason.EXPIRED)  # [MQTT-3.3.2-5]
            return
        if qos:
            self._send_in_window(channel, publication, original, target, qos, is_plain, delivery)
            return
        try:
            if not is_plain:
                (message,) = publication.messages
                self._packets.append(self._encode(channel, message, target, 0, 0))
            elif publication.retain and target.retain_as_published:
                self._packets.append(publication.wire(channel.version, True))
            else:
                wire = publication.wire5 if channel.version is _V5 else publication.wire3
                self._packets.append(wire or publication.wire(channel.version))
        except UNWRITABLE as error:
            self._unwritable(publication, error)
            return
        self._sent[0] += count
        if hooks.message_delivered:
            hooks.notify(MESSAGE_DELIVERED, self._session.client, publication, delivery)
        if hooks.delivery_completed:
            hooks.notify(DELIVERY_COMPLETED, self._session.client, publication, delivery)

    def keep(self, publication: Publication, target: Target[Subscriber]) -> None:
        """Let it wait: something is ahead of it, or there is no room in the window."""
        raise NotImplementedError

    def _send_in_window(
        self,
        channel: Channel,
        publication: Publication,
        original: Publication,
        target: Target[Subscriber],
        qos: int,
        is_plain: bool,
        delivery: Delivery,
    ) -> None:
        """Send with QoS 1 or 2 as much as there is room for; the rest, as it was before the hooks, waits."""
        packet_ids = self._window.insert(publication, target, qos, self.now, delivery)
        sent = len(packet_ids)
        rest: Sequence[Message] = ()
        if sent < publication.count:
            if not sent:
                self.keep(original, target)
                return
            rest, publication = publication.messages[sent:], publication.part(0, sent)
        try:
            if is_plain:
                packets = self._packets if qos == 1 else self._packets_at_qos2()
                packets += publication.numbered(
                    channel.version, qos, publication.retain and target.retain_as_published, packet_ids
                )
            else:
                (message,) = publication.messages
                wire = self._encode(channel, message, target, qos, packet_ids.start)
                (self._packets if qos == 1 else self._packets_at_qos2()).append(wire)
        except UNWRITABLE as error:
            self._window.end(packet_ids)
            self._unwritable(publication, error)
            return
        self._sent[qos] += sent
        if self._hooks.message_delivered:
            self._hooks.notify(MESSAGE_DELIVERED, self._session.client, publication, delivery)
        for message in rest:
            self.deliver(message, target, delivery)

    def _are_sent_alike(self, publication: Publication, target: Target[Subscriber], channel: Channel) -> bool:
        """Whether the messages of a publication may be written in one piece."""
        return (
            channel.plain
            and not target.identifiers
            and publication.expires_at == inf
            and not self._hooks.message_deliver
            and all(map(channel.may_read.get, publication.topics))
        )

    def qos(self, message: Message, target: Target[Subscriber]) -> int:
        """What it is sent with."""
        return target.qos if self._upgrade_qos else min(message.qos, target.qos)

    def deliver_own(self, publication: Publication, target: Target[Subscriber], delivery: Delivery = "live") -> None:
        """As `deliver`, of what this client published, by a target that does not want that of all its subscriptions."""
        if target.own is None:
            self.drop(publication, DropReason.NO_LOCAL)  # [MQTT-3.8.3-3]
        else:
            self.deliver(publication, target.own, delivery)

    def _encode(
        self,
        channel: Channel,
        message: Message,
        target: Target[Subscriber],
        qos: int,
        packet_id: int,
        dup: bool = False,
    ) -> bytes:
        """The uncommon ways to write a PUBLISH: for this client alone.

        Raises:
            TooLong: it is larger than the client accepts.
            One of `UNWRITABLE`: the message cannot be written at all.
        """
        encode = partial(
            encode_publish,
            message,
            channel.version,
            qos=qos,
            retain=message.retain and target.retain_as_published,  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
            dup=dup,
            packet_id=packet_id,
            subscription_ids=target.identifiers,  # [MQTT-3.3.4-3]
            # [MQTT-3.3.2-6] whole seconds that are left, never fewer
            expiry_interval=None if message.expires_at == inf else max(0, ceil(message.expires_at - self.now)),
        )
        wire = channel.aliases_out.encode(message.topic, encode, channel.max_packet_size)
        if 0 < channel.max_packet_size < len(wire):
            raise TooLong(f"{len(wire)} bytes; the client accepts {channel.max_packet_size}")  # [MQTT-3.1.2-24]
        return wire

    def _packets_at_qos2(self) -> list[bytes]:
        """What a PUBLISH is added to. It is stored before: after a crash it has to come with the same packet
        identifier, or the client would take it for another message.  # [MQTT-4.3.3-1] [MQTT-4.4.0-1]

        What follows comes behind it, whatever its QoS.  # [MQTT-4.6.0-5]
        """
        durable = self._durable
        if durable is None:
            return self.pieces
        number = durable.gathering
        if number not in self._uncommitted:
            self._uncommitted[number] = self._packets = []
            durable.after_commit(lambda: self._context.soon(lambda: self._committed(number)))
        return self._packets

    def _committed(self, number: int) -> None:
        packets = self._uncommitted.pop(number, None)
        if packets is None:
            return  # the client has gone meanwhile
        self.pieces += packets
        if self._packets is packets:
            self._packets = self.pieces
        self.committed()

    def committed(self) -> None:
        """What waited for a commit has left."""
        raise NotImplementedError

    @property
    def uncommitted(self) -> int:
        """Bytes from the last message on that waits for a commit."""
        return sum(map(len, self._packets))

    def _unwritable(self, publication: Publication, error: Exception) -> None:
        """Only this publication is lost. It counts as if it had been sent and acknowledged.  # [MQTT-3.1.2-25]"""
        reason = DropReason.TOO_LARGE if isinstance(error, TooLong) else DropReason.UNWRITABLE
        self._services.dropped(self._session.client, publication, reason, str(error))

    def flush(self) -> None:
        """Hand what was written to the connection's transport, which sends it at the end of the turn."""
        channel, pieces = self.channel, self.pieces
        if channel is not None and pieces:
            try:
                channel.send(b"".join(pieces))
            except Exception as error:  # noqa: BLE001 - an error there ends the connection, and not the session
                channel.crash(error)
            pieces.clear()

    def attach(self, channel: Channel) -> None:
        """A client is connected, and gets nothing yet."""
        self.channel = channel
        self.answers.attach(channel)

    def detach(self) -> None:
        self.channel = None
        self.answers.detach()
        self.pieces.clear()
        self._uncommitted.clear()
        self._packets = self.pieces

    # Messages that were sent before

    def resend(self, publication: Publication, target: Target[Subscriber], packet_id: int) -> None:
        """Of one message: PUBLISH, or PUBREL if the client has taken it over."""
        channel, state = self.channel, self._window.state(packet_id)
        assert channel is not None
        (message,) = publication.messages
        _, effect = SENDING[state][Event.AGAIN]
        if effect is Effect.PUBREL:
            self.answers.repeat_pubrel(packet_id)
            return
        qos = 1 if state is State.WAIT_PUBACK else 2
        if not self._may_get(channel, message.topic):  # it was sent while the client was allowed to receive it
            self._keep_back(channel, message, target, sent=qos == 2)
            self._withdraw(packet_id)
            return
        try:
            self._packets.append(self._encode(channel, message, target, qos, packet_id, dup=True))  # [MQTT-3.3.1-1]
        except UNWRITABLE as error:
            self._unwritable(message, error)
            self._withdraw(packet_id)
            return
        self._sent[qos] += 1
        if self._hooks.message_delivered:
            self._hooks.notify(MESSAGE_DELIVERED, self._session.client, message, "resent")

    def _withdraw(self, packet_id: int) -> None:
        """The exchange ends without the message."""
        if self._window.withdraw(packet_id, self.now) is Effect.PUBREL:
            self.release((packet_id,))

    def release(self, packet_ids: Sequence[int]) -> None:
        """The PUBREC is stored before PUBREL leaves: after a crash the message must not be sent once more.
        # [MQTT-4.3.3-6]"""
        durable = self._durable
        self.answers.acknowledge(PacketType.PUBREL, packet_ids, None if durable is None else durable.after_commit)

    def _may_get(self, channel: Channel, topic: str) -> bool:
        allowed = channel.may_read.get(topic)
        return self._services.access.may_read(channel, topic) if allowed is None else allowed

    # Messages that the client does not get

    def lose(self, delivery: Any) -> None:
        """In place of the mailbox of a session that has crashed: another member of the shared group gets the delivery,
        or it is dropped."""
        if type(delivery) is tuple:
            publication, target = cast("tuple[Publication, Target[Subscriber]]", delivery)
            for message in publication.messages:
                self.give_up(message, target, DropReason.SESSION_ENDED)

    def give_up(
        self, publication: Publication, target: Target[Subscriber], reason: DropReason, *, is_movable: bool = True
    ) -> None:
        """Hand it to another member of its shared group, or drop it for this reason."""
        (message,) = publication.messages
        group = target.group if is_movable and message.expires_at > self.now else None
        if message.expires_at <= self.now:
            self.drop(message, DropReason.EXPIRED)
        elif group is not None and self._services.pubsub.hand_on(message, group, target.subscriber):
            self.drop(message, DropReason.REDISPATCHED)
        else:
            self.drop(message, reason)

    def _keep_back(
        self, channel: Channel, publication: Publication, target: Target[Subscriber], *, sent: bool = False
    ) -> None:
        """The client may not receive it. A message of a shared group goes to another member, except for QoS 2 messages
        that the client may have received."""
        for message in publication.messages:
            lost = channel.revoked is not None and channel.revoked.concerns(message.topic)
            self.give_up(message, target, DropReason.READ_NOT_AUTHORIZED, is_movable=lost and not sent)

    def drop(self, publication: Publication, reason: DropReason) -> None:
        self._services.dropped(self._session.client, publication, reason)
