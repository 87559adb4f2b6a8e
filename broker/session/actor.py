"""A session as an actor: the owner of one client id, from its first CONNECT to the end of its session.

Messages of the client's connection, deliveries of publishers, answers of the route writer and timers all come through
one mailbox, so nothing here needs a lock. Output is collected during a turn and sent in one piece at its end.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from trunkline.actors import Actor, Due, Shutdown
from trunkline.broker.routes import Queued
from trunkline.broker.session import mail, reauthentication
from trunkline.broker.session.acknowledged import Acknowledged
from trunkline.broker.session.context import SessionContext
from trunkline.broker.session.inbound import Inbound, Undecided
from trunkline.broker.session.life import SessionLife
from trunkline.broker.session.outbound import Outbound, PauseReason
from trunkline.broker.session.services import bounded_expiry
from trunkline.broker.session.slow_consumer import Budget
from trunkline.broker.session.subscribing import Subscribing
from trunkline.broker.session.subscription_check import SubscriptionCheck
from trunkline.broker.session.waiting import Waiting
from trunkline.hooks.points import MESSAGE_QUEUED
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import (
    TYPE_OF,
    Acknowledgements,
    Auth,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
)
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.metrics import DropReason
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.queue_reader import QueueReader
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session, Storage
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Decoded

_logger = logging.getLogger("trunkline.session")

#: A delivery in the mailbox: a publication and its target.
DELIVERIES: Final = frozenset({tuple})
#: Packets that change nothing of what is stored of the session but its window and its awaited PUBRELs.
EXCHANGES: Final = frozenset({Publish, PublishBatch, Puback, Pubrec, Pubrel, Pubcomp, Acknowledgements, Pingreq})


class SessionActor(Actor["mail.ToSession"]):
    __slots__ = (
        "_acknowledged",
        "_context",
        "_inbound",
        "_life",
        "_on_end",
        "_outbound",
        "_received",
        "_services",
        "_subscriber",
        "_subscribing",
        "_subscription_check",
        "_waiting",
        "session",
        "waiting_budget",
    )

    def __init__(
        self,
        session: Session,
        services: Services,
        on_end: Callable[[Session], None],
        subscriber: Subscriber | None = None,
    ) -> None:
        """`on_end` is called when the session is over, which makes its client id free. `subscriber` is what routes know
        it by already."""
        self.session = session
        self._services = services
        #: Counts packets by type.
        self._received = services.metrics.received
        self._on_end = on_end
        self._subscriber = subscriber
        #: The budget of seconds that subscribers may keep this client waiting in vain.
        self.waiting_budget = Budget()

    def init(self) -> None:
        self._context = context = SessionContext(
            self.session, self._services, self.ref, self.scheduler, self._subscriber
        )
        self._waiting = waiting = Waiting(context)
        self._outbound = outbound = Outbound(context)
        self._acknowledged = Acknowledged(context, outbound)
        self._inbound = inbound = Inbound(context, outbound)
        self._subscribing = subscribing = Subscribing(context, outbound, waiting)
        self._subscription_check = check = SubscriptionCheck(context, outbound, subscribing.unsubscribe_for)
        self._life = SessionLife(context, waiting, inbound, outbound, check, self._on_end)

    @property
    def config(self) -> Config:
        """The settings for its client: those of the zone that it came by last."""
        return self._context.config

    @property
    def protocol(self) -> str:
        return str(self.client.version)

    @property
    def speaks_mqtt(self) -> bool:
        return True

    @property
    def subscriber(self) -> Subscriber:
        """The session as routes and publishers see it."""
        return self._context.subscriber

    @property
    def client(self) -> ClientInfo:
        """The client; while it is not connected, as of its last connection."""
        return self.session.client

    @property
    def channel(self) -> Channel | None:
        """The client's connection."""
        return self._outbound.channel

    # A turn

    def handle_many(self, messages: list[mail.ToSession]) -> None:
        outbound = self._outbound
        outbound.now = self.scheduler.now
        deliver = outbound.deliver
        try:
            for message in messages:
                if type(message) is tuple:
                    deliver(message[0], message[1])
                elif type(message) is mail.Stored:
                    outbound.answers.stored(message)
                else:
                    self._mail[type(message)](self, message)
                    if self.session.durable is not None:
                        self.session.durable.changed()
        except Exception:
            handled = [each is message for each in messages].index(True)  # pyright: ignore[reportPossiblyUnboundVariable]
            self.undelivered(messages[handled + 1 :])
            raise
        if outbound.pieces:
            outbound.flush()
        if self.session.durable is not None:
            if not outbound.direct or self.session.client.attributes:
                self.session.durable.changed()
            outbound.bound()

    def undelivered(self, messages: list[mail.ToSession]) -> None:
        self._life.undelivered += [message for message in messages if type(message) is tuple]

    def yields(self, messages: list[mail.ToSession]) -> bool:
        """The client's packets come before deliveries: its acknowledgements make room for them."""
        return DELIVERIES.issuperset(map(type, messages))

    # Packets of the client

    def handle_handed(self, message: tuple[Channel, list[Decoded], ProtocolError | None]) -> None:
        """Handle the packets of a read in order, and the error that ended them."""
        channel, received, error = message
        context, outbound, inbound = self._context, self._outbound, self._inbound
        outbound.now = self.scheduler.now
        durable = self.session.durable
        if durable is not None:
            self._note_changes(durable, received)
        if channel is not context.reading:
            late = mail.Received(channel, received, error)
            if channel is outbound.channel:
                self._hold(late)
            else:
                self._forward(late)
            return
        acknowledged = False
        packets = iter(received)
        try:
            for packet in packets:
                if type(packet) is Publish:
                    inbound.publish(packet, channel)
                elif type(packet) is PublishBatch:
                    inbound.publish_parts(packet, channel)
                else:
                    kind: type = type(packet)
                    if kind is Acknowledgements:
                        many = cast("Acknowledgements", packet)
                        kind = many.kind
                        self._received[TYPE_OF[kind]] += many.count - 1
                    self._received[TYPE_OF[kind]] += 1
                    handler = self._packets.get(kind)
                    if handler is None:  # [MQTT-3.1.0-2]
                        raise ProtocolError(f"a second {kind.__name__.upper()}")
                    handler(self, packet, channel)
                    acknowledged = True
                    if context.reading is not channel:
                        if outbound.channel is not channel:
                            return
                        rest = list(packets)
                        if rest or error is not None:
                            self._hold(mail.Received(channel, rest, error), first=True)
                        break
        except ProtocolError as violation:
            self._life.disconnect(violation.reason, str(violation))
            return
        except Undecided as undecided:
            rest = [*undecided.messages, *packets]
            ask = partial(self._services.access.ask_publish, channel, undecided.messages[0])
            self._waiting.ask(channel, ask, lambda _: None)
            self._hold(mail.Received(channel, rest, error), first=True)
        if error is not None and context.reading is channel:
            self._services.metrics.packets_malformed += 1
            self._life.disconnect(error.reason, str(error))
        elif acknowledged and not outbound.direct:
            outbound.fill()
        if outbound.pieces:
            outbound.flush()
        if durable is not None and channel.client.attributes:  # a hook may have set them
            durable.changed()

    def _note_changes(self, durable: Storage, packets: list[Decoded]) -> None:
        """What these packets change of the session is to be stored."""
        if not (self._outbound.direct and EXCHANGES.issuperset(map(type, packets))):
            durable.changed()
        self._outbound.bound()

    def _hold(self, message: mail.Received, *, first: bool = False) -> None:
        """The client has to wait before this is handled."""
        channel = message.channel
        if self._waiting.hold(message, first=first) and self._waiting.asks and channel.receive_maximum_in:
            self._proceed(lambda: self._outbound.answers.ledger.check(self._waiting.packet_ids))

    def _on_answered(self, message: mail.Answered) -> None:
        if message.channel is not self._outbound.channel:
            return
        self._waiting.answered(message.channel)
        if self._proceed(message.proceed):
            self._go_on(message.channel)

    def _proceed(self, action: Callable[[], None]) -> bool:
        """Returns False if that ended the connection."""
        try:
            action()
        except ProtocolError as error:
            self._life.disconnect(error.reason, str(error))
            return False
        return True

    def _go_on(self, channel: Channel) -> None:
        """Handle the packets that the client sent while it had to wait, until it has to wait again."""
        self._waiting.go_on(channel, lambda message: self._mail[type(message)](self, message))

    def _on_routed(self, message: mail.Routed) -> None:
        """If this connection asked, its client need not wait any more."""
        channel = message.channel
        if self._proceed(message.proceed) and channel is not None and channel is self._outbound.channel:
            self._outbound.fill()
            if message.is_awaited:
                self._waiting.answered(channel)
                self._go_on(channel)

    def _on_rules_changed(self, message: mail.RulesChanged) -> None:
        channel, context = self._outbound.channel, self._context
        if channel is not None and channel.config is not context.config:
            # what CONNACK has told the client stays as it is
            context.enter_zone(channel.config)
            self._outbound.enter_zone()
            self._inbound.enter_zone()
            self._life.enter_zone()
        self._subscription_check.forget_decisions(message.subscriptions)

    def _on_subscribe_for(self, message: mail.SubscribeFor) -> None:
        if self._outbound.channel is not None:
            self._subscribing.subscribe_for(message.requests, self._outbound.channel)

    def _on_unsubscribe_for(self, message: mail.UnsubscribeFor) -> None:
        self._subscribing.unsubscribe_for(message.filters)

    def _on_pingreq(self, packet: Pingreq, channel: Channel) -> None:
        del packet, channel
        self._outbound.answers.write(Pingresp())  # [MQTT-3.12.4-1]

    def _on_auth(self, packet: Auth, channel: Channel) -> None:
        reauthentication.step(packet, channel, self._outbound, self._waiting, self._subscription_check.forget_decisions)

    def _on_disconnect(self, packet: Disconnect, channel: Channel) -> None:
        session = self.session
        expiry = packet.properties.get("session_expiry_interval")
        if expiry is not None:
            if expiry and not channel.expiry_interval:  # [MQTT-3.14.2-2]
                raise ProtocolError("a session expiry of 0 cannot be raised at DISCONNECT")
            session.expiry_interval = bounded_expiry(expiry, channel.config.session)
        if packet.reason == Reason.SUCCESS:
            self._life.absence.forget_will()  # [MQTT-3.14.4-3]
        self._outbound.flush()  # output that the client was to get before
        self._life.close_when_stored(channel)
        self._life.lost(Reason(packet.reason), "the client sent DISCONNECT")

    # Connection and end

    def attach(self, request: mail.Attach) -> None:
        request.channel.hand = self.ref.hand
        self._life.request(request)

    def _on_attach(self, message: mail.Attach) -> None:
        if message.store is not None and self.session.durable is None and not self._context.ended:
            message.store(self.session)
            self._context.became_durable()
            self._outbound.bind()
        self._life.attach(message)

    def _forward(self, message: mail.Received | mail.Lost) -> None:
        """It comes from a connection that lost this session, or that requested it when it had just ended."""
        if self._context.ended and message.channel.session is not self.subscriber.cast:
            message.channel.session(message)

    def _on_lost(self, message: mail.Lost) -> None:
        channel = message.channel
        if channel is self._context.reading:
            self._life.lost(message.reason, message.text)
        elif channel is self._outbound.channel:
            self._waiting.hold(message)  # earlier messages are handled first
        else:
            self._forward(message)

    def _on_congested(self, message: mail.Congested) -> None:
        if message.channel is self._outbound.channel:
            self._outbound.pause(PauseReason.SOCKET)

    def _on_writable(self, message: mail.Writable) -> None:
        if message.channel is self._outbound.channel:
            self._outbound.resume(PauseReason.SOCKET)

    def _on_queued(self, message: Queued) -> None:
        for each in message.publication.messages:
            self._services.hooks.notify(MESSAGE_QUEUED, self.client, each)

    def _on_kick(self, message: mail.Kick) -> None:
        channel = self._outbound.channel
        if channel is not None and message.channel in (None, channel):
            self._life.kick(message.reason, message.text)

    def leave_unread(self, reader: QueueReader) -> None:
        """What has waited for the session since before the start is in the store."""
        reader.bind(self._context, self._outbound.wake)
        self._outbound.arrange()

    def not_restored(self, gone: list[tuple[Message, DropReason]]) -> None:
        """These were stored for this session, and are dropped."""
        self._life.not_restored += gone

    def go_on_away(self) -> None:
        """The session was restored: its client went at `session.left_at`, in this node's time."""
        self._context.soon(self._life.restore)

    def forget_connection(self) -> None:
        self._life.forget_connection()

    def terminate(self, reason: BaseException | None) -> None:
        """A crash ends the client's connection like a lost one, and the session with it."""
        self._life.close_all()
        if reason is not None and not isinstance(reason, Shutdown):
            self._services.metrics.session_crashed += 1
            _logger.error("the session ends after an error in the broker: %r", reason, extra=self.client.log_fields)
            self._life.crashed()
        else:
            self._life.stop()

    _mail: ClassVar[dict[type, Callable[[SessionActor, Any], None]]] = {
        mail.Attach: _on_attach,
        mail.Received: lambda self, message: self.handle_handed((message.channel, message.packets, message.error)),
        mail.Lost: _on_lost,
        mail.Congested: _on_congested,
        mail.Writable: _on_writable,
        mail.Routed: _on_routed,
        mail.Answered: _on_answered,
        Due: lambda _, message: message.action(),
        mail.Kick: _on_kick,
        mail.End: lambda self, message: self._life.end_now(message),
        mail.SubscribeFor: _on_subscribe_for,
        mail.UnsubscribeFor: _on_unsubscribe_for,
        mail.PublishWill: lambda self, _: self._life.publish_will_at_stop(),
        Queued: _on_queued,
        mail.RulesChanged: _on_rules_changed,
    }

    #: Without PUBLISH, which needs no lookup.
    _packets: ClassVar[dict[type, Callable[[SessionActor, Any, Channel], None]]] = {
        Puback: lambda self, packet, _: self._acknowledged.answered(packet),
        Pubrec: lambda self, packet, _: self._acknowledged.answered(packet),
        Pubrel: lambda self, packet, channel: self._inbound.pubrel(packet, channel),
        Pubcomp: lambda self, packet, _: self._acknowledged.answered(packet),
        Subscribe: lambda self, packet, channel: self._subscribing.subscribe(packet, channel),
        Unsubscribe: lambda self, packet, channel: self._subscribing.unsubscribe(packet, channel),
        Pingreq: _on_pingreq,
        Auth: _on_auth,
        Disconnect: _on_disconnect,
    }
