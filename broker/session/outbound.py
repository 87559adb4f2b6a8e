"""From the broker to one client: the window, the queue behind it, redelivery, and retained messages.

A message goes straight to the wire while nothing is ahead of it: the client is connected, its socket accepts more, the
queue is empty and the window has room. Otherwise it waits in the queue, so that order is kept, or in the backlogs: what
waits leaves both in the order in which it came. Output is collected in `pieces` and sent at once at the end of the
session's turn. A PUBLISH that waits for a commit keeps those behind it back.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.answering import Answering
from trunkline.broker.session.behind import Behind
from trunkline.broker.session.pressure import Pressure
from trunkline.broker.session.replay import Replay, Replays
from trunkline.broker.session.state import FEEDS_AT_ONCE, MESSAGES_AT_ONCE
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.hooks.points import (
    DELIVERY_COMPLETED,
    MESSAGE_DELIVER,
    MESSAGE_DELIVERED,
    MESSAGE_QUEUED,
)
from trunkline.mqtt.errors import UNWRITABLE, TooLong
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.inflight import Entry, State
from trunkline.mqtt.packets import PacketType
from trunkline.mqtt.topics import STREAM_PREFIX
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import HEAVY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.behind import Piece
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.mqueue import Queued
    from trunkline.broker.session.stream_feed import StreamFeeds
    from trunkline.mqtt.inflight import Delivery
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options, Target

#: Bytes that leave the queue in one turn. More would only wait for the socket.
MAX_SLICE: Final = 262_144

NO_IDS: Final = range(0)
_V5: Final = Version.V5


class Outbound:
    __slots__ = (
        "_behind",
        "_congested",
        "_context",
        "_durable",
        "_feeds",
        "_filling",
        "_hooks",
        "_packets",
        "_pressure",
        "_queue",
        "_replays",
        "_sent",
        "_services",
        "_session",
        "_uncommitted",
        "_upgrade_qos",
        "_waits_for_commit",
        "_window",
        "answers",
        "channel",
        "direct",
        "held",
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
        self._pressure = Pressure(context)
        #: None where there are none.
        self._replays: Replays | None = None
        self._upgrade_qos = services.config.session.upgrade_qos
        self._congested = False
        #: Is nothing more sent for now? Before CONNACK; until it is stored how far an earlier connection came; and when
        #: there is much behind a message that waits for a commit.
        self._waits_for_commit = False
        self.channel: Channel | None = None
        #: None where the session has never had a subscription to a stream.
        self._feeds: StreamFeeds | None = None
        #: Whether nothing is ahead of the next message.
        self.direct = False
        #: Whether the next slice of the waiting messages is scheduled for a later turn.
        self._filling = False
        #: Whether everything waits for access decisions.
        self.held = False
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
        self._queue, self._window, self._durable = session.queue, session.inflight, session.durable
        backlogs = self._services.backlogs
        #: None where messages that wait are all in the queue.
        self._behind: Behind | None = None
        if session.durable is not None and backlogs is not None:
            self._behind = session.behind = Behind(self._context, backlogs, self._fill_on_arrival)
        self.answers.bind(session.awaiting_rel)

    def enter_zone(self) -> None:
        """The session's settings are other ones."""
        self._pressure.enter_zone()
        if self.channel is not None:
            self._window.limit_messages(self._largest_window(self.channel))

    # Messages

    def deliver(self, publication: Publication, target: Target[Subscriber], delivery: Delivery = "live") -> None:
        """Send it, or queue it while something is ahead of it: of one that has waited, nothing is."""
        if not self.direct and delivery == "live":
            self._wait(publication, target)
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
            self._unwritable(publication, NO_IDS, error)
            return
        self._sent[0] += count
        if hooks.message_delivered:
            hooks.notify(MESSAGE_DELIVERED, self._session.client, publication, delivery)
        if hooks.delivery_completed:
            hooks.notify(DELIVERY_COMPLETED, self._session.client, publication, delivery)

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
        """Send with QoS 1 or 2 as much as there is room for; the rest, as it was before the hooks, waits in the
        queue."""
        packet_ids = self._window.insert(publication, target, qos, self.now, delivery)
        sent = len(packet_ids)
        rest: Sequence[Message] = ()
        if sent < publication.count:
            if not sent:
                for message in original.messages:
                    self._enqueue(message, target, qos)
                return
            rest, publication = publication.messages[sent:], publication.part(0, sent)
        try:
            if is_plain:
                retain = publication.retain and target.retain_as_published
                packets = self._packets if qos == 1 else self._packets_at_qos2()
                packets += publication.numbered(channel.version, qos, retain, packet_ids)
            else:
                (message,) = publication.messages
                wire = self._encode(channel, message, target, qos, packet_ids.start)
                (self._packets if qos == 1 else self._packets_at_qos2()).append(wire)
        except UNWRITABLE as error:
            self._unwritable(publication, packet_ids, error)
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

    def _wait(self, publication: Publication, target: Target[Subscriber]) -> None:
        for message in publication.messages:
            self._enqueue(message, target, self._qos(message, target))

    def _qos(self, message: Message, target: Target[Subscriber]) -> int:
        return target.qos if self._upgrade_qos else min(message.qos, target.qos)

    def deliver_own(self, publication: Publication, target: Target[Subscriber], delivery: Delivery = "live") -> None:
        """As `deliver`, of what this client published, by a target that does not want that of all its subscriptions."""
        if target.own is None:
            self.drop(publication, DropReason.NO_LOCAL)  # [MQTT-3.8.3-3]
        else:
            self.deliver(publication, target.own, delivery)

    def _enqueue(self, message: Message, target: Target[Subscriber], qos: int) -> None:
        dropped = self._queue.push(message, target, qos)
        if self._hooks.message_queued and not any(
            gone.message is message and gone.target is target for gone in dropped
        ):
            self._hooks.notify(MESSAGE_QUEUED, self._session.client, message)
        for gone, _, _, reason in dropped:
            slow = reason is DropReason.QUEUE_FULL and self.channel is not None
            self.drop(gone, DropReason.SLOW_CONSUMER if slow else reason)
        self.direct = False
        queue, pressure = self._queue, self._pressure
        if self._behind is not None and qos and target.group is None:  # it was routed before its filter had a backlog
            self._behind.queued_before = queue.number
        if self.channel is not None and (queue.length >= pressure.high or queue.byte_size >= pressure.high_bytes):
            pressure.hold(message.publisher, self.now)
            if self._behind is not None and not self._behind and pressure.is_in_vain(queue):
                self._behind.begin()

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
        alias, omit_topic = channel.aliases_out.find(message.topic)
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
            raise TooLong(f"{len(wire)} bytes; the client accepts {channel.max_packet_size}")  # [MQTT-3.1.2-24]
        if alias and not omit_topic:
            channel.aliases_out.set(message.topic, alias)
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
        if self._waits_for_commit:
            self._waits_for_commit = False
            self.fill()

    def bound(self) -> None:
        """Let what comes next wait in the queue, which has a limit, if much is written that waits for a commit."""
        if self._packets is not self.pieces and sum(map(len, self._packets)) > MAX_SLICE:
            self._waits_for_commit = True
            self.direct = False

    def _unwritable(self, publication: Publication, packet_ids: range, error: Exception) -> None:
        """Only this publication is lost. It counts as if it had been sent and acknowledged.  # [MQTT-3.1.2-25]"""
        self._window.end(packet_ids)
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

    # Attaching and detaching

    def attach(self, channel: Channel) -> None:
        """A client is connected, and gets nothing yet."""
        self.channel = channel
        self._congested, self._waits_for_commit = False, True
        self.answers.attach(channel)
        if self._behind is not None:
            self._behind.attach()
        if self._services.streams is not None and any(map(_is_of_stream, self._session.subscriptions)):
            self._stream_feeds().attach()
        self._window.resume(self._largest_window(channel))

    def _largest_window(self, channel: Channel) -> int:
        return min(channel.config.session.max_inflight, channel.receive_maximum)

    def begin(self, connack: bytes, *, stored: bool) -> None:
        """Send CONNACK, then unacknowledged messages again, before anything else.  # [MQTT-4.4.0-1]

        How far they have come is `stored` before they are repeated.
        """
        self.pieces[:] = [connack]
        durable, channel = self._durable, self.channel
        if durable is not None and not stored and self._window.has_qos2:
            durable.after_commit(lambda: self._context.soon(lambda: self._resume(channel)))
        else:
            self._waits_for_commit = False

    def _resume(self, channel: Channel | None) -> None:
        if self.channel is channel:
            self._waits_for_commit = False
            self.fill()

    def detach(self) -> None:
        self.channel = None
        self.direct = self.held = False
        if self._replays is not None:  # how many messages these are is not known, and a walk to count them takes long
            self._services.metrics.messages_retained_cut += len(self._replays)
            self._replays = None
        self._pressure.leave(self.now)
        self.answers.detach()
        self.pieces.clear()
        self._uncommitted.clear()
        self._packets = self.pieces
        if self._behind is not None:
            self._behind.detach()
        if self._feeds is not None:
            self._feeds.detach()

    def congested(self) -> None:
        self.direct, self._congested = False, True

    def writable(self) -> None:
        self._congested = False

    def replay(self, grant: Grant, target: Target[Subscriber]) -> None:
        """Send the retained messages that match a new subscription."""
        if self._replays is None:
            self._replays = Replays(self._services.pubsub.retained)
        self._replays.add(Replay(grant, target, self._services.pubsub.retained, self._may_replay, self.now))
        self.direct = False

    def end_replays(self, filters: Iterable[str]) -> None:
        """Stop sending retained messages, or those of streams, for these ended subscriptions."""
        if self._feeds is not None:
            self._feeds.end(filters)
        if self._replays is not None:
            self._replays.end(filters)
            self._replays = self._replays or None

    @property
    def empty(self) -> bool:
        """Nothing waits, and nothing is unacknowledged."""
        return not self._queue.length and not len(self._window) and not self._behind

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
        """Send waiting messages, as far as window and socket allow, one slice per turn."""
        channel, window, queue = self.channel, self._window, self._queue
        if self.direct and not window.unsent:
            return
        if self._filling or channel is None or self._congested or self._waits_for_commit or self.held:
            return
        room = MAX_SLICE
        while room > 0 and (again := window.next_again(self.now)) is not None:
            room -= self._resend(channel, *again)
        if not window.unsent:
            room = self._send_waiting(room)
            if not queue.length and room > 0 and not self._behind:
                room = self._send_retained(room)
            if self._feeds and room > 0 and not queue.length:
                room = self._send_streams(self._feeds, room)
            is_empty = not queue.length and self._replays is None and not self._behind and not self._feeds
            self.direct = is_empty and room > 0
        if self._pressure.on and self._pressure.eased(queue):
            self._pressure.release()
        if room <= 0:
            self._filling = True
            self._context.next_turn(self._fill_on)

    def _fill_on(self) -> None:
        self._filling = False
        self.fill()

    def _fill_on_arrival(self) -> None:
        """Something was read, or there is nothing more to read."""
        self.fill()
        self.flush()

    def _send_waiting(self, room: int) -> int:
        """What waits in the queue and in the backlogs, in the order in which it came, as the window has room for it, of
        at most `room` bytes. Returns the bytes that are left."""
        queue, window, behind = self._queue, self._window, self._behind
        expired: list[Queued[Target[Subscriber]]] = []
        while room > 0:
            piece = None
            if behind:
                piece = behind.next()
                if piece is None and behind.is_reading:
                    break  # what is read may have come before what is in the queue
                if piece is not None and queue.length and self._came_first(queue.first, behind, piece):
                    piece = None
                elif piece is not None and not (window.room and behind.comes_next(piece)):
                    break
            if piece is None and not queue.length:
                break
            if self._replays is not None:
                topic = queue.first[0].topic if piece is None else piece.publication.topic
                overtaken = self._replays.overtaken_by(topic, self.now) if window.room else None
                if overtaken is not None:
                    room -= overtaken[0].weight
                    self.deliver(*overtaken, "retained")
                    continue
                if not window.room:
                    break
            if behind and piece is not None:
                room -= self._send_piece(behind, piece)
                continue
            entry = queue.pop(self.now, expired, 2 if window.room else 0)
            if entry is None:
                break
            room -= entry[0].weight
            self.deliver(entry[0], entry[1], "retained" if entry[1].retained else "waited")
        for gone in expired:
            self.drop(gone[0], DropReason.EXPIRED)
        return 0 if len(expired) >= MESSAGES_AT_ONCE else room

    def _came_first(self, queued: Queued[Target[Subscriber]], behind: Behind, piece: Piece) -> bool:
        """Ids are in the order of PUBLISH packets, and a message of QoS 2 is routed at its PUBREL."""
        message, _, _, number = queued
        return number <= behind.queued_before or message.guid < piece.publication.guid

    def _send_piece(self, behind: Behind, piece: Piece) -> int:
        """As much of it as the window has room for. Returns its weight."""
        assert self.channel is not None
        # what is heavy is weighed one by one, and what may be overtaken is looked at so
        together = piece.publication.weight < HEAVY and self._replays is None
        alike = together and self._are_sent_alike(piece.publication, piece.target, self.channel)
        publication, target = behind.take(self._window.room if alike else 1)
        if target.no_local and publication.publisher == self._session.client_id:
            self.deliver_own(publication, target, "waited")
        else:
            self.deliver(publication, target, "waited")
        return publication.weight

    def _send_retained(self, room: int) -> int:
        """One batch of retained messages, or of steps towards them, of at most `room` bytes. Returns the bytes that are
        left."""
        for _ in range(self._services.config.retained.replay_batch):
            if self._replays is None or self._queue.length or room <= 0:
                return room
            replay = self._replays.first
            message = replay.next()
            if message is not None:
                room -= message.weight
                self.deliver(message, replay.target, "retained")
            elif replay.over:
                self.end_replays((replay.filter,))
        return 0

    def begin_feed(self, filter: str, options: Options, properties: Properties) -> None:
        """A subscription to a stream was made, with these properties. `feed` sends what there is for it."""
        # imported here: few clients subscribe to streams
        from trunkline.broker.session.stream_feed import read_start

        self._stream_feeds().begin(filter, options, read_start(properties))

    def feed(self, filter: str) -> None:
        self._stream_feeds().wake(filter)
        self.direct = False

    def _stream_feeds(self) -> StreamFeeds:
        if self._feeds is None:
            from trunkline.broker.session.stream_feed import StreamFeeds

            assert self._services.streams is not None
            self._feeds = StreamFeeds(self._context, self._services.streams(), self._fill_on_feed)
        return self._feeds

    def end_feeds(self) -> Iterator[None]:
        """The session has ended: its places in streams go with it, some in each slice."""
        streams = list(filter(_is_of_stream, self._session.subscriptions))
        if streams and self._services.streams is not None:
            for first in range(0, len(streams), FEEDS_AT_ONCE):
                self._stream_feeds().forget(streams[first : first + FEEDS_AT_ONCE])
                yield

    def _fill_on_feed(self) -> None:
        self.direct = False
        self._fill_on_arrival()

    def _send_streams(self, feeds: StreamFeeds, room: int) -> int:
        """Messages of streams, as the window has room for them. Returns the bytes that are left."""
        committer = self._services.committer if self._durable is not None else None
        while room > 0 and not self._queue.length:
            taken = feeds.take(self._window.room)
            if taken is None:
                return 0
            if not taken:
                break
            for message, target in taken:
                room -= message.weight
                if committer is not None and self._qos(message, target):
                    committer.stored(message)
                if target.no_local and message.publisher == self._session.client_id:
                    self.deliver_own(message, target, "waited")
                else:
                    self.deliver(message, target, "waited")
        return room

    def _resend(self, channel: Channel, packet_id: int, entry: Entry[Target[Subscriber]]) -> int:
        """Returns its weight."""
        message = entry.message(packet_id)
        if entry.state is State.WAIT_PUBCOMP:
            self.answers.repeat_pubrel(packet_id)
        elif not self._may_get(channel, message.topic):
            self._withdraw(channel, packet_id, entry)
        else:
            try:
                wire = self._encode(channel, message, entry.target, entry.qos, packet_id, dup=True)  # [MQTT-3.3.1-1]
                self._packets.append(wire)
            except UNWRITABLE as error:
                self._unwritable(message, range(packet_id, packet_id + 1), error)
                return message.weight
            self._sent[entry.qos] += 1
            if self._hooks.message_delivered:
                self._hooks.notify(MESSAGE_DELIVERED, self._session.client, message, "resent")
        return message.weight

    def _may_get(self, channel: Channel, topic: str) -> bool:
        allowed = channel.may_read.get(topic)
        return self._services.access.may_read(channel, topic) if allowed is None else allowed

    def _withdraw(self, channel: Channel, packet_id: int, entry: Entry[Target[Subscriber]]) -> None:
        """It was sent while the client was allowed to receive it. Now the exchange ends without it."""
        self._keep_back(channel, entry.message(packet_id), entry.target, sent=entry.qos == 2)
        if entry.qos == 1:
            self._window.end((packet_id,))
        else:  # the client may have received it, and would mistake a later message with this id for it
            self._window.release((packet_id,), self.now)
            durable = self._durable
            self.answers.acknowledge(PacketType.PUBREL, (packet_id,), None if durable is None else durable.after_commit)

    def retry(self, interval: float) -> None:
        """Let `fill` send messages again that a 3.x client has not acknowledged for that long."""
        self._window.repeat(self.now, interval)

    def hand_over(self, limit: int) -> bool:
        """The session has ended: unfinished messages of shared groups go to other members, except for QoS 2 messages
        that were sent.  # [MQTT-4.8.2-5]

        Other unfinished messages are dropped. Returns True if some are left.
        """
        if self._behind and self._behind.end(limit):
            return True
        taken = self._window.take(limit)
        for message, target, state in taken:
            if state is not State.WAIT_PUBCOMP:
                self._orphaned(message, target, DropReason.SESSION_ENDED, movable=state is State.WAIT_PUBACK)
        for _ in range(limit - len(taken)):
            queued = self._queue.pop(-inf, [])
            if queued is None:
                return False
            self._orphaned(queued[0], queued[1], DropReason.SESSION_ENDED)
        return True

    def lose(self, delivery: Any) -> None:
        """In place of the mailbox of a session that has crashed: another member of the shared group gets the delivery,
        or it is dropped."""
        if type(delivery) is tuple:
            publication, target = cast("tuple[Publication, Target[Subscriber]]", delivery)
            for message in publication.messages:
                self._orphaned(message, target, DropReason.SESSION_ENDED)

    def _orphaned(
        self, message: Message, target: Target[Subscriber], reason: DropReason, *, movable: bool = True
    ) -> None:
        """Hand it to another member of its shared group, or drop it for this reason."""
        group = target.group if movable and message.expires_at > self.now else None
        member = None if group is None else group.pick(message.publisher, message.topic, (target.subscriber,))
        if message.expires_at <= self.now:
            self.drop(message, DropReason.EXPIRED)
        elif member is None:
            self.drop(message, reason)
        else:
            self.drop(message, DropReason.REDISPATCHED)
            member.subscriber.cast((message, member))

    def _keep_back(
        self, channel: Channel, publication: Publication, target: Target[Subscriber], *, sent: bool = False
    ) -> None:
        """The client may not receive it. A message of a shared group goes to another member, except for QoS 2 messages
        that the client may have received."""
        for message in publication.messages:
            lost = channel.revoked is not None and channel.revoked.concerns(message.topic)
            self._orphaned(message, target, DropReason.READ_NOT_AUTHORIZED, movable=lost and not sent)

    def drop(self, publication: Publication, reason: DropReason) -> None:
        self._services.dropped(self._session.client, publication, reason)


def _is_of_stream(filter: str) -> bool:
    return filter.startswith(STREAM_PREFIX)
