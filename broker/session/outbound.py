"""From the broker to one client: the window, the queue behind it, redelivery, and retained messages.

A message goes straight to the wire while nothing is ahead of it: the client is there, its socket takes more, the queue
is empty and the window has room. Otherwise it waits in the queue, so that order is kept. What is to be sent is
collected in `pieces` and leaves in one go at the end of the session's turn.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.replay import Replay, Replays
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.hooks.points import (
    DELIVERY_COMPLETED,
    MESSAGE_DELIVER,
    MESSAGE_DELIVERED,
    MESSAGE_QUEUED,
)
from trunkline.mqtt.batch import PublishBatch, acknowledge_all
from trunkline.mqtt.encoder import encode_within
from trunkline.mqtt.errors import UNWRITABLE, TooLong
from trunkline.mqtt.frames import PACKET_ID, encode_publish, publish_pieces
from trunkline.mqtt.inflight import Entry, State
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import TYPE_OF, Acknowledgement, Packet, Pubrel
from trunkline.mqtt.weight import weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.actors import Later
    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.mqueue import Queued
    from trunkline.broker.session.pressure import Pressure
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.router import Target

#: Bytes that leave the queue in one turn. More would only wait in front of the socket.
BURST: Final = 262_144


class Outbound:
    __slots__ = (
        "_filling",
        "_later",
        "_pressure",
        "_queue",
        "_replays",
        "_sent",
        "_services",
        "_session",
        "_upgrade_qos",
        "_window",
        "_writable",
        "channel",
        "direct",
        "held",
        "now",
        "pieces",
    )

    def __init__(self, session: Session, services: Services, pressure: Pressure, later: Later) -> None:
        self._session = session
        self._services = services
        self._later = later
        #: Counts messages by QoS.
        self._sent = services.metrics.messages_out
        self._queue = session.queue
        self._window = session.inflight
        self._pressure = pressure
        #: None where there are none.
        self._replays: Replays | None = None
        self._upgrade_qos = services.config.session.upgrade_qos
        self._writable = False
        self.channel: Channel | None = None
        #: Is nothing ahead of the next message?
        self.direct = False
        #: Is the next slice of what waits to be sent in a later turn?
        self._filling = False
        #: Does everything wait, because it is asked whether the client may have it?
        self.held = False
        #: The node's time in this turn.
        self.now = 0.0
        #: Wire bytes of this turn.
        self.pieces: list[bytes] = []

    # A message comes

    def deliver(self, message: Message, target: Target[Subscriber]) -> None:
        qos = message.qos
        if target.qos != qos and (target.qos < qos or self._upgrade_qos):
            qos = target.qos  # [MQTT-3.8.4-8]
        if self.direct:
            self._send(message, target, qos)
            return
        if self._replays is not None:
            # what was retained before this message must not come after it
            for earlier, replayed in self._replays.overtaken_by(message, self.now):
                self._enqueue(earlier, replayed, self._qos(earlier, replayed))
        self._enqueue(message, target, qos)

    def _qos(self, message: Message, target: Target[Subscriber]) -> int:
        """The QoS of a retained message on its way.  # [MQTT-3.8.4-8]"""
        return target.qos if self._upgrade_qos else min(message.qos, target.qos)

    def deliver_burst(self, burst: PublishBatch, target: Target[Subscriber]) -> None:
        """As `deliver`, for each of its messages."""
        qos = burst.qos
        if target.qos != qos and (target.qos < qos or self._upgrade_qos):
            qos = target.qos  # [MQTT-3.8.4-8]
        channel, hooks = self.channel, self._services.hooks
        delivered, completed = hooks.message_delivered_bursts, hooks.delivery_completed_bursts
        if (
            channel is None
            or not self.direct
            or not channel.plain
            or target.identifiers
            or not all(map(channel.may_read.get, burst.topics))
            or hooks.message_deliver
            or delivered is None
            or (qos == 0 and completed is None)
        ):
            for message in burst.messages:
                self.deliver(message, target)
            return
        count = len(burst)
        if qos:
            count = self._number(burst, target, qos, channel)
        else:
            self.pieces.append(burst.wire(channel.version))
        self._sent[qos] += count
        if count:
            if delivered:
                hooks.look(MESSAGE_DELIVERED, delivered, self._session.client, burst.part(0, count))
            if not qos and completed:
                hooks.look(DELIVERY_COMPLETED, completed, self._session.client, burst)
        if count < len(burst):
            for message in burst.messages[count:]:
                self.deliver(message, target)

    def _number(self, burst: PublishBatch, target: Target[Subscriber], qos: int, channel: Channel) -> int:
        """Send the first messages of a burst, as many as the window has room for. Returns how many that were."""
        count = min(len(burst), self._window.room)
        if count:
            some = burst.part(0, count)
            packet_ids = self._window.insert_burst(some, target, qos, self.now)
            if packet_ids:
                self.pieces.append(some.numbered(channel.version, qos, packet_ids))
            return len(packet_ids)
        return 0

    def deliver_own(self, message: Message, target: Target[Subscriber]) -> None:
        """As `deliver`, of a message of this client, by a target that does not want those of all its subscriptions."""
        if target.own is None:
            self.drop(message, DropReason.NO_LOCAL)  # [MQTT-3.8.3-3]
        else:
            self.deliver(message, target.own)

    def _enqueue(self, message: Message, target: Target[Subscriber], qos: int) -> None:
        dropped = self._queue.push(message, target, qos)
        if self._services.hooks.message_queued and not any(
            gone.message is message and gone.target is target for gone in dropped
        ):
            self._services.hooks.notify(MESSAGE_QUEUED, self._session.client, message)
        for gone, _, _, reason in dropped:
            slow = reason is DropReason.QUEUE_FULL and self.channel is not None
            self.drop(gone, DropReason.SLOW_CONSUMER if slow else reason)
        self.direct = False
        if self.channel is not None and (
            self._queue.length >= self._pressure.high or self._queue.byte_size >= self._pressure.high_bytes
        ):
            self._pressure.hold(message.publisher, self.now)

    def _send(self, message: Message, target: Target[Subscriber], qos: int) -> None:
        channel = self.channel
        assert channel is not None
        allowed = channel.may_read.get(message.topic)
        if allowed is None:
            allowed = self._services.access.may_read(channel, message.topic)
        if not allowed:
            self._keep_back(channel, message, target)
            return
        original = message
        if self._services.hooks.message_deliver:
            changed = self._services.hooks.transform(MESSAGE_DELIVER, self._session.client, message)
            if not isinstance(changed, Message):
                self.drop(message, DropReason.DELIVERY_HOOK)
                return
            message = changed
        if message.expires_at <= self.now:
            self.drop(message, DropReason.EXPIRED)  # [MQTT-3.3.2-5]
            return
        packet_id = 0
        try:
            if qos:
                packet_id = self._window.insert(message, target, qos, self.now)
                if not packet_id:
                    self._enqueue(original, target, qos)
                    return
                if channel.plain and not target.identifiers and message.expires_at == inf:
                    head, tail = publish_pieces(
                        message, channel.version, qos, message.retain and target.retain_as_published
                    )
                    self.pieces += (head, PACKET_ID[packet_id], tail)
                else:
                    self._encode(channel, message, target, qos, packet_id)
            elif channel.plain and not target.identifiers and message.expires_at == inf:
                self.pieces.append(
                    publish_pieces(message, channel.version, 0, message.retain and target.retain_as_published)[0]
                )
            else:
                self._encode(channel, message, target, 0, 0)
        except UNWRITABLE as error:
            self._unwritable(message, packet_id, error)
            return
        self._sent[qos] += 1
        hooks = self._services.hooks
        if hooks.message_delivered:
            hooks.notify(MESSAGE_DELIVERED, self._session.client, message)
        if not qos and hooks.delivery_completed:
            hooks.notify(DELIVERY_COMPLETED, self._session.client, message)

    def _encode(
        self,
        channel: Channel,
        message: Message,
        target: Target[Subscriber],
        qos: int,
        packet_id: int,
        dup: bool = False,
    ) -> None:
        """The uncommon ways to write a PUBLISH: for this client alone.

        Raises:
            TooLong: the client takes none so large.
            One of `UNWRITABLE`: the message cannot be written at all.
        """
        alias, omit_topic = (0, False) if dup else channel.aliases_out.find(message.topic)
        wire = encode_publish(
            message,
            channel.version,
            qos=qos,
            retain=message.retain and target.retain_as_published,  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
            dup=dup,
            packet_id=packet_id,
            subscription_ids=target.identifiers,  # [MQTT-3.3.4-3]
            topic_alias=alias,
            omit_topic=omit_topic,
            # [MQTT-3.3.2-6] whole seconds that are left, never fewer
            expiry_interval=None if message.expires_at == inf else max(0, ceil(message.expires_at - self.now)),
        )
        if 0 < channel.max_packet_size < len(wire):
            raise TooLong(f"{len(wire)} bytes, {channel.max_packet_size} are taken")  # [MQTT-3.1.2-24]
        if alias and not omit_topic:
            channel.aliases_out.set(message.topic, alias)
        self.pieces.append(wire)

    def _unwritable(self, message: Message, packet_id: int, error: Exception) -> None:
        """It costs this message and no more. It counts as if it had been sent and acknowledged.  # [MQTT-3.1.2-25]"""
        if packet_id:
            self._window.forget(packet_id)
        reason = DropReason.TOO_LARGE if isinstance(error, TooLong) else DropReason.UNWRITABLE
        self._services.dropped(self._session.client, message, reason, str(error))

    # Other packets

    def write(self, packet: Packet) -> bool:
        """Put a packet behind what goes out in this turn. False if the client takes none as large."""
        channel = self.channel
        if channel is None:
            return True
        wire = encode_within(packet, channel.version, channel.max_packet_size)
        if wire:
            self.pieces.append(wire)
            self._services.metrics.sent[TYPE_OF[type(packet)]] += 1
        return bool(wire)

    def write_all(self, kind: type[Acknowledgement], packet_ids: Sequence[int]) -> None:
        """As `write`, acknowledgements of success in a row."""
        self.pieces.append(acknowledge_all(kind, packet_ids))
        self._services.metrics.sent[TYPE_OF[kind]] += len(packet_ids)

    def flush(self) -> None:
        """Hand what was written to the connection."""
        if self.pieces and self.channel is not None:
            pieces, self.pieces = self.pieces, []
            self.channel.send(pieces)

    # The connection comes and goes

    def attach(self, channel: Channel) -> None:
        """A client is there. What it had not acknowledged is sent again, before anything else.  # [MQTT-4.4.0-1]"""
        self.channel = channel
        self._writable = True
        self._window.resume(min(self._services.config.session.max_inflight, channel.receive_maximum))

    def detach(self) -> None:
        self.channel = None
        self.direct = self._writable = self.held = False
        self._replays = None
        self._pressure.leave(self.now)
        self.pieces = []

    def congested(self) -> None:
        self.direct = self._writable = False

    def writable(self) -> None:
        self._writable = True

    def replay(self, grant: Grant, target: Target[Subscriber]) -> None:
        """Send the retained messages that match a new subscription."""
        if self._replays is None:
            self._replays = Replays(self._services.pubsub.retained)
        self._replays.add(Replay(grant, target, self._services.pubsub.retained, self._may_replay, self.now))
        self.direct = False

    def end_replays(self, filters: Iterable[str]) -> None:
        """Of these subscriptions, which are no more."""
        if self._replays is not None:
            self._replays.end(filters)
            self._replays = self._replays or None

    @property
    def empty(self) -> bool:
        """Nothing waits, and nothing is unacknowledged."""
        return not self._queue.length and not len(self._window)

    def _may_replay(self, message: Message) -> bool:
        services = self._services
        if not services.access.may_read_retained(self._session.client, message.topic):
            self.drop(message, DropReason.READ_NOT_AUTHORIZED)
            return False
        if services.config.retained.check_retain_source and not services.access.may_still_publish(
            services.publisher_of(message), message
        ):
            self.drop(message, DropReason.NOT_AUTHORIZED)
            return False
        return True

    def fill(self) -> None:
        """Send what waits, as far as window and socket take it, one slice of it in a turn."""
        channel = self.channel
        if self._filling or channel is None or not self._writable or self.held:
            return
        window, queue = self._window, self._queue
        room = BURST
        while room > 0 and (again := window.next_again(self.now)) is not None:
            room -= weight(again[1].message)
            self._resend(channel, *again)
        expired: list[Queued[Target[Subscriber]]] = []
        while queue.length and room > 0:
            entry = queue.pop(self.now, expired, 2 if window.room else 0)
            if entry is None:
                break
            room -= weight(entry[0])
            self._send(*entry[:3])
        for gone in expired:
            self.drop(gone[0], DropReason.EXPIRED)
        if len(expired) >= MESSAGES_AT_ONCE:
            room = 0
        if not queue.length and room > 0:
            room = self._send_retained(room)
        self.direct = room > 0 and not queue.length and self._replays is None
        if self._pressure.on and self._pressure.eased(queue):
            self._pressure.release()
        if room <= 0:
            self._filling = True
            self._later.next_turn(self._fill_on)

    def _fill_on(self) -> None:
        self._filling = False
        self.fill()

    def _send_retained(self, room: int) -> int:
        """One batch of retained messages, or of steps towards them, no more than `room` bytes; what is left of these."""
        for _ in range(self._services.config.retained.replay_batch):
            if self._replays is None or self._queue.length or room <= 0:
                return room
            replay = self._replays.first
            message = replay.next()
            if message is not None:
                room -= weight(message)
                self._send(message, replay.target, self._qos(message, replay.target))
            elif replay.over:
                self.end_replays((replay.filter,))
        return 0

    def _resend(self, channel: Channel, packet_id: int, entry: Entry[Target[Subscriber]]) -> None:
        if entry.state is State.WAIT_PUBCOMP:
            self.write(Pubrel(packet_id))
            return
        if not self._may_get(channel, entry.message):
            self._withdraw(channel, packet_id, entry)
            return
        try:
            self._encode(channel, entry.message, entry.target, entry.qos, packet_id, dup=True)  # [MQTT-3.3.1-1]
        except UNWRITABLE as error:
            self._unwritable(entry.message, packet_id, error)
            return
        self._sent[entry.qos] += 1
        if self._services.hooks.message_delivered:
            self._services.hooks.notify(MESSAGE_DELIVERED, self._session.client, entry.message)

    def _may_get(self, channel: Channel, message: Message) -> bool:
        allowed = channel.may_read.get(message.topic)
        return self._services.access.may_read(channel, message.topic) if allowed is None else allowed

    def _withdraw(self, channel: Channel, packet_id: int, entry: Entry[Target[Subscriber]]) -> None:
        """It was sent while the client might have it. Now the exchange ends without it."""
        self._keep_back(channel, entry.message, entry.target, sent=entry.qos == 2)
        if entry.qos == 1:
            self._window.forget(packet_id)
        else:  # the client may have it, and would take a later message with this id for the same
            self._window.pubrec(packet_id, self.now)
            self.write(Pubrel(packet_id))

    def retry(self, interval: float) -> None:
        """Have `fill` send again what a 3.x client has not acknowledged for that long."""
        self._window.repeat(self.now, interval)

    def hand_over(self, limit: int) -> bool:
        """The session is over: what a shared group gave it and it did not finish goes to other members, but for QoS 2
        that was sent.  # [MQTT-4.8.2-5]

        The rest of what it had not finished is lost. True when so many were not all.
        """
        for _ in range(limit):
            entry = self._window.take()
            if entry is None:
                queued = self._queue.pop(-inf, [])
                if queued is None:
                    return False
                self._orphaned(queued[0], queued[1], DropReason.SESSION_ENDED)
            elif entry.state is not State.WAIT_PUBCOMP:
                movable = entry.state is State.WAIT_PUBACK
                self._orphaned(entry.message, entry.target, DropReason.SESSION_ENDED, movable=movable)
        return True

    def _orphaned(
        self, message: Message, target: Target[Subscriber], reason: DropReason, *, movable: bool = True
    ) -> None:
        """It goes to another member of the shared group that it came by, or is dropped for this reason."""
        group = target.group if movable and message.expires_at > self.now else None
        member = None if group is None else group.pick(message.publisher, message.topic, (target.subscriber,))
        if message.expires_at <= self.now:
            self.drop(message, DropReason.EXPIRED)
        elif member is None:
            self.drop(message, reason)
        else:
            self.drop(message, DropReason.REDISPATCHED)
            member.subscriber.cast((message, member))

    def _keep_back(self, channel: Channel, message: Message, target: Target[Subscriber], *, sent: bool = False) -> None:
        """The client may not have it. What a shared group gave it while it might is for another member; not what it may
        have at QoS 2."""
        lost = channel.revoked is not None and channel.revoked.concerns(message.topic)
        self._orphaned(message, target, DropReason.READ_NOT_AUTHORIZED, movable=lost and not sent)

    def drop(self, message: Message, reason: DropReason) -> None:
        self._services.dropped(self._session.client, message, reason)
