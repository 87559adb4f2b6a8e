"""A session as an actor: the owner of one client id, from its first CONNECT to the end of its session.

Mail of the client's connection, deliveries of publishers, answers of the router and timers all come through one
mailbox, so nothing here needs a lock. What goes out is collected during a turn and leaves in one piece at its end.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trunkline.actors import Actor, Shutdown
from trunkline.broker.access import Undecided
from trunkline.broker.pubsub import BurstTo, Subscriber
from trunkline.broker.session import mail, reauthentication, will
from trunkline.broker.session.acknowledged import Acknowledged
from trunkline.broker.session.inbound import Inbound
from trunkline.broker.session.outbound import Outbound
from trunkline.broker.session.pressure import Budget, Pressure
from trunkline.broker.session.state import MESSAGES_AT_ONCE
from trunkline.broker.session.subscribing import Subscribing
from trunkline.broker.session.subscription_check import SubscriptionCheck
from trunkline.broker.session.timers import AwayTimers
from trunkline.broker.session.waiting import Waiting
from trunkline.hooks.points import (
    CLIENT_CONNACK,
    CLIENT_CONNECTED,
    CLIENT_DISCONNECTED,
    SESSION_CREATED,
    SESSION_DISCARDED,
    SESSION_RESUMED,
    SESSION_TAKEN_OVER,
    SESSION_TERMINATED,
)
from trunkline.mqtt.batch import Acknowledgements, PublishBatch
from trunkline.mqtt.encoder import encode, encode_within
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import fitting, reason_string
from trunkline.mqtt.packets import (
    TYPE_OF,
    Auth,
    Connack,
    Disconnect,
    PacketType,
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
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.actors import Timer
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.subscribing import Answer, Outcome
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.decisions import Deny, Withhold
    from trunkline.mqtt.packets import Packet, Will

PUBACK: Final = PacketType.PUBACK
#: Reasons that say no more than that the connection is over.
UNNAMED: Final = (Reason.SUCCESS, Reason.UNSPECIFIED_ERROR)

_logger = logging.getLogger("trunkline.session")


class SessionActor(Actor["mail.ToSession"]):
    __slots__ = (
        "_acknowledged",
        "_attaching",
        "_away",
        "_end_steps",
        "_ended",
        "_filling",
        "_inbound",
        "_on_end",
        "_outbound",
        "_retry",
        "_services",
        "_subscribing",
        "_subscription_check",
        "_waiting",
        "channel",
        "client",
        "left_at",
        "session",
        "subscriber",
        "waiting_budget",
    )

    def __init__(
        self, session: Session, client: ClientInfo, services: Services, on_end: Callable[[SessionActor], None]
    ) -> None:
        """`on_end` is called when the session is over, which makes its client id free."""
        self.session = session
        #: The client; while nobody is connected, the last one.
        self.client = client
        self.channel: Channel | None = None
        #: Connections whose request lies in the mailbox: if it is never handled, they must not wait for it.
        self._attaching: list[Channel] = []
        #: When the last client went, in node time.
        self.left_at = 0.0
        self._services = services
        self._on_end = on_end
        #: How long subscribers may have this client wait in vain.
        self.waiting_budget = Budget(services.config.session.backpressure_budget)
        self._retry: Timer | None = None
        #: Is the next slice of what waits for the client to come in a later turn?
        self._filling = False
        #: Steps of its end, or of its connection's, that are under way.
        self._end_steps: deque[Callable[[], object]] = deque()
        #: Is the client id free, and the actor only here until its routes are gone?
        self._ended = False

    def init(self) -> None:
        self.subscriber = Subscriber(self.session.client_id, self.ref.cast)
        self._waiting = Waiting(self.start_task, self._services.config.session.hook_timeout)
        self._away = AwayTimers(self._after, self._publish_will, self._expire)
        pressure = Pressure(self.session.client_id, self._services, self._after)
        self._outbound = Outbound(self.session, self._services, pressure, self.client)
        self._acknowledged = Acknowledged(self.session, self._services, self._outbound)
        self._inbound = Inbound(self.session, self._services, self._outbound, self.subscriber, self._after)
        self._subscribing = Subscribing(self.session, self._services, self._outbound, self.subscriber)
        self._subscription_check = SubscriptionCheck(self, self._services, self._outbound, self._subscribing)

    # A turn

    def handle_many(self, messages: list[mail.ToSession]) -> None:
        outbound = self._outbound
        outbound.now = self._inbound.now = self.scheduler.now
        deliver = outbound.deliver
        for message in messages:
            if type(message) is tuple:
                deliver(message[0], message[1])
            else:
                self._mail[type(message)](self, message)
        self._flush()

    def _flush(self) -> None:
        outbound = self._outbound
        if outbound.pieces and self.channel is not None:
            pieces, outbound.pieces = outbound.pieces, []
            self.channel.send(pieces)

    def do_later(self, action: Callable[[], None]) -> None:
        """In a later turn: others get theirs before."""
        self.scheduler.later(self.ref, mail.Timeout(action))

    def fill(self) -> None:
        """Send what waits, one slice in a turn."""
        if not self._filling and self._outbound.fill():
            self._filling = True
            self.do_later(self._fill_on)

    def _fill_on(self) -> None:
        self._filling = False
        self.fill()

    def _after(self, delay: float, action: Callable[[], None]) -> Callable[[], None]:
        return self.send_after(delay, mail.Timeout(action)).discard

    def _on_timeout(self, message: mail.Timeout) -> None:
        message.action()

    # What the client sends

    def _on_received(self, message: mail.Received) -> None:
        channel = message.channel
        if channel is not self.channel:
            self._forward(message)
            return
        if self._waiting.on:
            if self._waiting.hold(message):
                self._check_owed(channel)
            return
        inbound, answered, counts = self._inbound, self._acknowledged, self._services.metrics.received
        acknowledged = False
        index = 0
        try:
            for index, packet in enumerate(message.packets):
                if type(packet) is Publish:
                    inbound.publish(packet, channel)
                elif type(packet) is PublishBatch:
                    inbound.publish_burst(packet, channel)
                elif type(packet) is Puback:
                    answered.puback(packet)
                    counts[PUBACK] += 1
                    acknowledged = True
                elif type(packet) is Acknowledgements:
                    self._on_acknowledgements(packet, channel)
                    acknowledged = True
                else:
                    counts[TYPE_OF[type(packet)]] += 1
                    handler = self._packets.get(type(packet))
                    if handler is None:  # [MQTT-3.1.0-2]
                        raise ProtocolError(f"a second {type(packet).__name__.upper()}")
                    handler(self, packet)
                    acknowledged = True
                    if self.channel is not channel:
                        return
                    if self._waiting.on:
                        rest = message.packets[index + 1 :]
                        if rest or message.error is not None:
                            self._hold_rest(mail.Received(channel, rest, message.error))
                        break
            if message.error is not None and not self._waiting.on and self.channel is channel:
                self._services.metrics.packets_malformed += 1
                raise message.error
        except ProtocolError as error:
            self._disconnect(error.reason, str(error))
            return
        except Undecided as undecided:
            rest = [*undecided.messages, *message.packets[index + 1 :]]
            self._ask_access(undecided.messages[0], channel)
            self._hold_rest(mail.Received(channel, rest, message.error))
        if acknowledged:
            self.fill()

    def _hold_rest(self, message: mail.Received) -> None:
        if self._waiting.hold(message, first=True):
            self._check_owed(message.channel)

    def _check_owed(self, channel: Channel) -> None:
        if self._waiting.asks and self._inbound.owes_too_much(self._waiting.held, channel):
            self._disconnect(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {channel.receive_maximum_in} messages without acknowledgement",
            )

    def _ask_access(self, message: Publish, channel: Channel) -> None:
        """What was held back goes on when it is known whether this message may be published."""
        access = self._services.access
        self.wait_for(lambda: access.ask_publish(channel, message), lambda _: None)

    def _on_acknowledgements(self, message: Acknowledgements, channel: Channel) -> None:
        answered, packet_ids = self._acknowledged, message.packet_ids
        self._services.metrics.received[TYPE_OF[message.kind]] += len(packet_ids)
        if message.kind is Puback:
            answered.pubacks(packet_ids)
        elif message.kind is Pubrec:
            answered.pubrecs(packet_ids)
        elif message.kind is Pubrel:
            self._inbound.pubrels(packet_ids, channel)
        else:
            answered.pubcomps(packet_ids)

    def wait_for(self, question: Callable[[], Awaitable[Any]], answered: Callable[[Any], None]) -> None:
        """Ask something that takes time. This client waits for the answer, everybody else goes on."""
        assert self.channel is not None
        self._waiting.ask(self.ref, self.channel, question, answered)

    def _on_answered(self, message: mail.Answered) -> None:
        if message.channel is not self.channel:
            return
        self._waiting.answered()
        try:
            message.proceed()
        except ProtocolError as error:
            self._disconnect(error.reason, str(error))
            return
        self._go_on()

    def _go_on(self) -> None:
        """With what the client sent while it had to wait, up to where it has to wait again."""
        if self._waiting.go_on(lambda message: self._mail[type(message)](self, message)) and self.channel is not None:
            self.channel.cast(mail.Resume(self._waiting))

    def _on_pubrec(self, packet: Pubrec) -> None:
        self._acknowledged.pubrec(packet)

    def _on_pubrel(self, packet: Pubrel) -> None:
        assert self.channel is not None
        self._inbound.pubrel(packet, self.channel)

    def _on_pubcomp(self, packet: Pubcomp) -> None:
        self._acknowledged.pubcomp(packet)

    def _on_subscribe(self, packet: Subscribe) -> None:
        channel, subscribing = self.channel, self._subscribing
        assert channel is not None

        subscribing.check_filters([request.filter for request in packet.requests], channel)

        def subscribe(outcomes: list[Outcome]) -> None:
            self._waiting.on = True  # for the routes
            subscribing.subscribe(packet, outcomes, channel)

        if subscribing.waits(packet):
            self.wait_for(lambda: subscribing.decide_async(packet, channel), subscribe)
        else:
            subscribe(subscribing.decide(packet, channel))

    def _on_unsubscribe(self, packet: Unsubscribe) -> None:
        channel, subscribing = self.channel, self._subscribing
        assert channel is not None

        subscribing.check_filters(packet.filters, channel)

        def unsubscribe(outcomes: list[str | Deny | Withhold]) -> None:
            self._waiting.on = True  # for the routes
            subscribing.unsubscribe(packet, outcomes, channel)

        if subscribing.waits(packet):
            self.wait_for(lambda: subscribing.decide_filters_async(packet, channel), unsubscribe)
        else:
            unsubscribe(subscribing.decide_filters(packet, channel))

    def _on_burst(self, message: BurstTo) -> None:
        self._outbound.deliver_burst(message.burst, message.target)

    def _on_subscribed(self, message: mail.Subscribed) -> None:
        self._subscribing.subscribed(message.answer, message.grants)
        self._routed(message.answer)

    def _on_unsubscribed(self, message: mail.Unsubscribed) -> None:
        self._subscribing.unsubscribed(message.answer, message.existed)
        self._routed(message.answer)

    def _on_unreachable(self, message: mail.Unreachable) -> None:
        del message
        self._give_up()

    def _routed(self, answer: Answer) -> None:
        """The routes are as this connection, or somebody on its behalf, asked for, and it may go on."""
        if answer.channel is self.channel:
            self.fill()
            if answer.packet_id:
                self._waiting.answered()
                self._go_on()

    def _on_subscribe_for(self, message: mail.SubscribeFor) -> None:
        if self.channel is not None:
            self._subscribing.subscribe_for(message.requests, self.channel)

    def _on_unsubscribe_for(self, message: mail.UnsubscribeFor) -> None:
        self._subscribing.unsubscribe_for(message.filters, self.client, self.channel)

    def _on_pingreq(self, packet: Pingreq) -> None:
        self._outbound.write(Pingresp())  # [MQTT-3.12.4-1]

    def _on_auth(self, packet: Auth) -> None:
        assert self.channel is not None
        reauthentication.step(self, self.channel, packet, self._services.hooks)

    def write(self, packet: Packet) -> None:
        """Put a packet behind what goes out in this turn."""
        self._outbound.write(packet)

    def _on_disconnect(self, packet: Disconnect) -> None:
        channel = self.channel
        assert channel is not None
        expiry = packet.properties.get("session_expiry_interval")
        if expiry is not None:
            if expiry and not channel.expiry_interval:  # [MQTT-3.14.2-2]
                raise ProtocolError("a session expiry of 0 cannot be raised at DISCONNECT")
            self.session.expiry_interval = self._services.bounded_expiry(expiry)
        if packet.reason == Reason.SUCCESS:
            channel.will = None  # [MQTT-3.14.4-3]
        self._flush()  # what it was to be told before
        channel.cast(mail.Close(b""))
        self._detach(Reason(packet.reason), "the client said goodbye")

    # The connection comes and goes

    def attach(self, channel: Channel, present: bool) -> None:
        """Have this connection. `present` says whether the session was there before."""
        self._attaching.append(channel)
        channel.session = self.subscriber.cast
        channel.session(mail.Attach(channel, present))

    def _on_attach(self, message: mail.Attach) -> None:
        channel, services = message.channel, self._services
        if self._ended:  # it expired while the request was on its way
            services.open_session(channel)
            self._attaching.remove(channel)
            return
        if self.channel is not None:
            services.metrics.session_takenover += 1
            services.hooks.notify(SESSION_TAKEN_OVER, self.client)
            text = "another connection has this client id"
            self._close(self.channel, Reason.SESSION_TAKEN_OVER, text)
            self._left(Reason.SESSION_TAKEN_OVER, text, successor=channel.client)
        self._away.over()
        self.channel, self.client = channel, channel.client
        self._attaching.remove(channel)
        channel.resumed = message.present
        self.session.expiry_interval = channel.expiry_interval
        self.subscriber.online = True
        connack = Connack(message.present, Reason.SUCCESS, channel.connack)
        services.metrics.client_connected += 1
        if message.present:
            services.metrics.session_resumed += 1
            services.hooks.notify(SESSION_RESUMED, self.client)
        else:
            services.metrics.session_created += 1
            services.hooks.notify(SESSION_CREATED, self.client)
        self._outbound.pieces = [encode(connack, channel.version)]  # [MQTT-3.2.0-1]
        services.hooks.notify(CLIENT_CONNACK, self.client, connack)
        services.metrics.sent[PacketType.CONNACK] += 1
        self._outbound.attach(channel)
        self._inbound.expect_pubrel()
        self._subscription_check.resume()
        self.fill()
        _logger.info(
            "connected from %s by %s, MQTT %s%s",
            self.client.address,
            self.client.listener,
            channel.version,
            ", session resumed" if message.present else "",
            extra=self.client.log_fields,
        )
        services.hooks.notify(CLIENT_CONNECTED, self.client)
        if services.config.session.retry_interval and channel.version != Version.V5:
            self._retry_later(channel)

    def _retry_later(self, channel: Channel) -> None:
        again = mail.Timeout(partial(self._send_again, channel))
        self._retry = self.send_after(self._services.config.session.retry_interval, again)

    def _send_again(self, channel: Channel) -> None:
        if channel is self.channel:
            self._outbound.retry(self._services.config.session.retry_interval)
            self.fill()
            self._retry_later(channel)

    def _forward(self, message: mail.Received | mail.Lost | mail.Congested | mail.Writable) -> None:
        """From a connection that is not ours: one that lost this session, or one that came when it had just ended."""
        if self._ended and message.channel.session is not self.subscriber.cast:
            message.channel.session(message)

    def _on_lost(self, message: mail.Lost) -> None:
        if message.channel is not self.channel:
            self._forward(message)
            return
        if self._waiting.on:
            self._waiting.hold(message)  # what came before it is handled first
        else:
            self._detach(message.reason, message.text)

    def _on_congested(self, message: mail.Congested) -> None:
        if message.channel is self.channel:
            self._outbound.congested()

    def _on_writable(self, message: mail.Writable) -> None:
        if message.channel is self.channel:
            self._outbound.writable()
            self.fill()

    def _on_kick(self, message: mail.Kick) -> None:
        if self.channel is not None and message.channel in (None, self.channel):
            self._disconnect(message.reason, message.text)

    def _on_publish_will(self, message: mail.PublishWill) -> None:
        gone = self.channel
        if gone is not None and gone.will is not None:
            self._publish_will(gone.will)
            gone.will = None
        self._away.publish_will()

    def _on_rules_changed(self, message: mail.RulesChanged) -> None:
        self.forget_decisions(subscriptions=message.subscriptions)

    def forget_decisions(self, *, subscriptions: bool = True) -> None:
        """Access is decided otherwise than before."""
        if self.channel is not None:
            self.channel.forget_decisions()
        if subscriptions:
            self._subscription_check.ask_again()

    def _disconnect(self, reason: Reason, text: str) -> None:
        """End the connection from our side."""
        assert self.channel is not None
        self._close(self.channel, reason, text)
        self._detach(reason, text)

    def _close(self, channel: Channel, reason: Reason, text: str) -> None:
        """Say why where the client can hear it, behind all that it was sent before.  # [MQTT-3.14.4-1]"""
        self._flush()
        farewell = b""
        if channel.version == Version.V5:
            properties = reason_string(text) if channel.problem_information else NO_PROPERTIES
            packet = Disconnect(fitting(reason, PacketType.DISCONNECT), properties)
            farewell = encode_within(packet, channel.version, channel.max_packet_size)
            self._services.metrics.sent[PacketType.DISCONNECT] += 1
        channel.cast(mail.Close(farewell))

    def _left(self, reason: Reason, text: str, successor: ClientInfo | None = None) -> None:
        """The channel is over, and the absence of the client begins. `successor` is whose connection came instead."""
        channel = self.channel
        assert channel is not None
        self.channel = None
        self.left_at = self._outbound.now
        if self._waiting.end():
            channel.will = None
        self.subscriber.online = False
        if self._retry is not None:
            self._retry.discard()
        self._in_steps(
            self._subscription_check.stop,
            self._outbound.detach,
            partial(self._tell_left, channel.client, reason, text, successor),
            partial(self._away.begin, channel.will, self.session.expiry_interval),
        )

    def _tell_left(self, client: ClientInfo, reason: Reason, text: str, successor: ClientInfo | None) -> None:
        self._services.metrics.client_disconnected += 1
        words, named = text, None
        if successor is not None:  # the client itself is not told where the other is
            words += f": the new connection is from {successor.address}, this one was from {client.address}"
        if reason not in UNNAMED:
            named = reason.name.lower()
            words += f" ({named})"
        _logger.info("disconnected: %s", words, extra=client.log_fields | {"reason": named})
        self._services.hooks.notify(CLIENT_DISCONNECTED, client, reason, text)

    def _detach(self, reason: Reason, text: str) -> None:
        """Nobody is connected any more. The session ends now or when its time is up."""
        self._left(reason, text)
        if not self.session.expiry_interval:
            self._end("disconnected")

    @property
    def pending_will(self) -> Will | None:
        """What is published if the client does not come back, or goes, without a cause."""
        return self._away.will if self.channel is None else self.channel.will

    def go_on_away(self, will: Will | None, left_at: float) -> None:
        """The session was restored: its client went at `left_at`, in this node's time."""

        def begin() -> None:
            self.left_at = left_at
            self._away.begin(will, self.session.expiry_interval, self._outbound.now - left_at)
            if not self.session.expiry_interval:
                self._end("disconnected")

        self.ref.cast(mail.Timeout(begin))

    def _publish_will(self, gone: Will) -> None:
        will.publish(gone, self.client, self._services, self._outbound.now)

    # The end

    def _expire(self) -> None:
        self._services.metrics.session_expired += 1
        self._end("expired")

    def _on_end_wanted(self, message: mail.End) -> None:
        if self._ended:
            return
        self.session.expiry_interval = 0.0  # so no will waits for its delay
        if self.channel is not None:
            self._close(self.channel, message.reason, message.cause)
            self._left(message.reason, message.cause, message.successor)
        self._end(message.cause)

    def _end(self, cause: str) -> None:
        """The session is over and its client id free. The actor ends when no route leads to it any more."""
        self._ended = True
        self._in_steps(
            self._away.publish_will,  # [MQTT-3.1.3-9] the end of the session cuts a delay short
            self._away.over,
            partial(self._on_end, self),
            partial(self._tell_end, cause),
            self._remove_routes,
        )

    def _tell_end(self, cause: str) -> None:
        services = self._services
        services.metrics.session_terminated += 1
        if cause == "discarded":
            services.metrics.session_discarded += 1
            services.hooks.notify(SESSION_DISCARDED, self.client)
        else:
            services.hooks.notify(SESSION_TERMINATED, self.client, cause)

    def _remove_routes(self) -> None:
        cast = self.ref.cast
        self._services.pubsub.remove_subscriber(
            self.subscriber, list(self.session.subscriptions), lambda: cast(mail.Unreachable())
        )

    def _give_up(self) -> None:
        """What is left of the session goes to others, or is lost; a part of it in each turn."""
        if self._inbound.forget_unreleased(self.client, MESSAGES_AT_ONCE) or self._outbound.hand_over(MESSAGES_AT_ONCE):
            self.do_later(self._give_up)
        else:
            self.stop()

    def _in_steps(self, *steps: Callable[[], object]) -> None:
        """One after the other. Those that a crash leaves undone are done by `terminate`."""
        self._end_steps.extend(steps)
        while self._end_steps:
            self._end_steps.popleft()()

    def terminate(self, reason: BaseException | None) -> None:
        """The actor is gone. After a crash, the client's connection has ended as any other that is lost, and the session
        with it."""
        for channel in self._attaching:
            channel.cast(mail.Close(b""))
        if reason is not None and not isinstance(reason, Shutdown):
            self._services.metrics.session_crashed += 1
            _logger.error("the session ends after an error in the broker: %r", reason, extra=self.client.log_fields)
            self.session.expiry_interval = 0.0  # so no will waits for its delay
            if self.channel is not None:
                self.channel.cast(mail.Close(b""))
                self._salvage(partial(self._left, Reason.UNSPECIFIED_ERROR, "internal error"))
            if not self._ended:
                self._salvage(partial(self._end, "crashed"))
            self._salvage(partial(self._inbound.forget_unreleased, self.client, maxsize))
            self._salvage(partial(self._outbound.hand_over, maxsize))
        elif not self._ended:
            self._ended = True
            if self.channel is not None:
                self.channel.cast(mail.Close(b""))
            self._on_end(self)
            self._remove_routes()
        # They hold methods of this actor. Nothing comes any more that would need them, and the collector need not come for it.
        del (
            self._away,
            self._acknowledged,
            self._inbound,
            self._outbound,
            self._subscription_check,
            self._subscribing,
            self._waiting,
        )

    def _salvage(self, action: Callable[[], object]) -> None:
        """Do it and all that a crash has left undone: what raises once more costs nothing else."""
        self._end_steps.append(action)
        while self._end_steps:
            try:
                self._end_steps.popleft()()
            except Exception:
                _logger.exception("another error at the end of the session", extra=self.client.log_fields)

    _mail: ClassVar[dict[type, Callable[[SessionActor, Any], None]]] = {
        BurstTo: _on_burst,
        mail.Attach: _on_attach,
        mail.Received: _on_received,
        mail.Lost: _on_lost,
        mail.Congested: _on_congested,
        mail.Writable: _on_writable,
        mail.Subscribed: _on_subscribed,
        mail.Unsubscribed: _on_unsubscribed,
        mail.Unreachable: _on_unreachable,
        mail.Answered: _on_answered,
        mail.Timeout: _on_timeout,
        mail.Kick: _on_kick,
        mail.End: _on_end_wanted,
        mail.SubscribeFor: _on_subscribe_for,
        mail.UnsubscribeFor: _on_unsubscribe_for,
        mail.PublishWill: _on_publish_will,
        mail.RulesChanged: _on_rules_changed,
    }

    #: PUBLISH and PUBACK are not here: they are taken before the look-up.
    _packets: ClassVar[dict[type, Callable[[SessionActor, Any], None]]] = {
        Pubrec: _on_pubrec,
        Pubrel: _on_pubrel,
        Pubcomp: _on_pubcomp,
        Subscribe: _on_subscribe,
        Unsubscribe: _on_unsubscribe,
        Pingreq: _on_pingreq,
        Auth: _on_auth,
        Disconnect: _on_disconnect,
    }
