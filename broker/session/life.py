"""The life of a session: its connections come and go, it waits for its client, and it ends.

When it ends, its client id is free at once; what is left of it goes to others or is dropped in slices.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.session import mail
from trunkline.broker.session.absence import Absence
from trunkline.broker.session.lifecycle import SessionEvent
from trunkline.broker.session.remains import ANOTHER_ERROR, Remains
from trunkline.broker.session.state import MESSAGES_AT_ONCE
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
from trunkline.mqtt.encoder import encode, encode_within
from trunkline.mqtt.explanations import fitting, reason_string
from trunkline.mqtt.packets import Connack, Disconnect, PacketType
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import OVERHEAD, properties_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.broker.metrics import DropReason
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.inbound import Inbound
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.subscription_check import SubscriptionCheck
    from trunkline.broker.session.waiting import Waiting
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import Will
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.ledger import Wait
    from trunkline.router import Target

#: Reasons that say no more than that the connection is over.
UNNAMED: Final = (Reason.SUCCESS, Reason.UNSPECIFIED_ERROR)

_logger = logging.getLogger("trunkline.session")


@dataclass(slots=True, eq=False)
class SessionLife:
    context: SessionContext
    waiting: Waiting
    inbound: Inbound
    outbound: Outbound
    check: SubscriptionCheck
    #: Makes the client id free.
    on_end: Callable[[Session], None]
    #: Deliveries that the actor did not handle before its end.
    undelivered: list[tuple[Publication, Target[Subscriber]]] = field(default_factory=lambda: [], init=False)
    absence: Absence = field(init=False)
    #: Stored messages that were not restored, and why: they are dropped when the hooks can hear of it.
    not_restored: deque[tuple[Message, DropReason]] = field(
        default_factory=deque["tuple[Message, DropReason]"], init=False
    )
    #: Connections whose request is in the mailbox: they must not wait for an actor that has crashed.
    _requested: list[Channel] = field(default_factory=lambda: [], init=False)
    #: These stop the timers that run until the client goes.
    _timers: list[Callable[[], None]] = field(default_factory=lambda: [], init=False)
    #: The remaining steps of an end, which are taken even if one crashes.
    _steps: list[Callable[[], object]] = field(default_factory=lambda: [], init=False)

    def __post_init__(self) -> None:
        self.absence = Absence(self.context, self.outbound)

    # A connection comes

    def request(self, request: mail.Attach) -> None:
        """Attach this connection in the session's turn."""
        self._requested.append(request.channel)
        request.channel.session = self.context.subscriber.cast
        request.channel.session(request)

    def attach(self, request: mail.Attach) -> None:
        context, outbound, channel, present = self.context, self.outbound, request.channel, request.present
        session, services = context.session, context.services
        if context.ended:  # while the request was in the mailbox
            services.open_session(channel)
            self._requested.remove(channel)
            return
        metrics, hooks, client = services.metrics, services.hooks, channel.client
        if outbound.channel is not None:
            metrics.session_takenover += 1
            hooks.notify(SESSION_TAKEN_OVER, outbound.channel.client)
            self.hear_out()
            self.end_connection(Reason.SESSION_TAKEN_OVER, "another connection has this client id", client)
        self._stop_timers()
        if not (context.config is channel.config is services.config):
            context.enter_zone(channel.config)
            outbound.enter_zone()
        self.inbound.attach()
        context.follow(SessionEvent.ATTACH, channel)
        outbound.attach(channel)  # first, so that a crash ends this connection
        self._requested.remove(channel)
        session.attach(client, channel.expiry_interval, channel.will)
        if session.durable is not None:
            session.durable.changed(at_once=True)
        else:
            self.absence.store_will()
        channel.resumed = present
        context.subscriber.online = True
        services.pubsub.presence_changed(session.subscriptions)
        if present:
            metrics.session_resumed += 1
            hooks.notify(SESSION_RESUMED, client)
        else:
            metrics.session_created += 1
            hooks.notify(SESSION_CREATED, client)
        self.inbound.expect_pubrel()
        self.check.resume()
        wait = self._until_stored(client, succeeds=request.succeeds)
        if wait is None or services.committer is None:
            self._accept(channel, present, stored=False)
        else:
            services.committer.noted += _weight(client, channel.will)
            self.waiting.until(wait, channel, partial(self._accept, channel, present, stored=True))
            self._timers = [self.context.after(channel.config.mqtt.connect_timeout, partial(self._too_late, channel))]

    def _until_stored(self, client: ClientInfo, *, succeeds: bool = False) -> Wait | None:
        """Calls back when the store has what the client is told of its session; None if it does, or need not."""
        session, committer = self.context.session, self.context.services.committer
        kept = session.durable or session.stored_will
        if committer is None or not client.durable or (not succeeds and (kept is None or kept.is_settled)):
            return None
        return committer.after_commit

    def _too_late(self, channel: Channel) -> None:
        """A full disk keeps no connections, of which many may be closed at the other end."""
        if channel is self.outbound.channel and not channel.is_accepted:
            self.disconnect(Reason.SERVER_UNAVAILABLE, "the store has not taken its session in time")

    def _accept(self, channel: Channel, present: bool, *, stored: bool) -> None:
        """Send CONNACK, and what follows it."""
        self._stop_timers()
        outbound, client = self.outbound, channel.client
        metrics, hooks = self.context.services.metrics, self.context.services.hooks
        connack = Connack(present, Reason.SUCCESS, channel.connack)
        channel.is_accepted = True
        outbound.pieces.append(encode(connack, channel.version))  # [MQTT-3.2.0-1]
        hooks.notify(CLIENT_CONNACK, client, connack)
        metrics.sent[PacketType.CONNACK] += 1
        metrics.client_connected += 1
        outbound.begin(stored=stored)
        if _logger.isEnabledFor(logging.INFO):
            _logger.info(
                "connected from %s by %s, MQTT %s%s",
                client.address,
                client.listener,
                channel.version,
                ", session resumed" if present else "",
                extra=client.log_fields,
            )
        hooks.notify(CLIENT_CONNECTED, client)
        self._retry_later(channel)

    def enter_zone(self) -> None:
        """The session's settings are other ones, and its client stays."""
        channel = self.outbound.channel
        if channel is not None and channel.is_accepted:
            self._stop_timers()
            self._retry_later(channel)

    def _retry_later(self, channel: Channel) -> None:
        interval = self.context.config.session.retry_interval
        if interval and channel.version != Version.V5:
            self._timers = [self.context.after(interval, partial(self._retry, channel, interval))]

    def _retry(self, channel: Channel, interval: float) -> None:
        durable = self.context.session.durable
        if channel is self.outbound.channel:
            if durable is None:
                self._repeat(channel, interval)
            else:  # how far its messages have come is stored before
                durable.after_commit(lambda: self.context.soon(partial(self._repeat, channel, interval)))
            self._retry_later(channel)

    def _repeat(self, channel: Channel, interval: float) -> None:
        if channel is self.outbound.channel:
            self.outbound.repeat(interval)

    # A connection goes

    def disconnect(self, reason: Reason, text: str) -> None:
        """End the connection from our side. The session ends, too, if it is not to outlive it."""
        self.end_connection(reason, text)
        self._end_unless_kept()

    def kick(self, reason: Reason, text: str) -> None:
        """As `disconnect`, for a reason that is not in what the client has sent."""
        self.hear_out()
        self.disconnect(reason, text)

    def hear_out(self) -> None:
        """A client that is held up may have said goodbye already."""
        channel = self.outbound.channel
        if channel is not None and self.context.session.will is not None and channel.says_goodbye():
            self.absence.forget_will()  # [MQTT-3.14.4-3]

    def publish_will_at_stop(self) -> None:
        self.hear_out()
        self.absence.publish_will_at_stop()

    def lost(self, reason: Reason, text: str) -> None:
        """The connection is over, and no packet can be sent there."""
        self._left(reason, text)
        self._end_unless_kept()

    def _end_unless_kept(self) -> None:
        if not self.context.session.expiry_interval:
            self.end("disconnected")

    def end_connection(self, reason: Reason, text: str, successor: ClientInfo | None = None) -> None:
        """The session stays. `successor` is the client of the connection that wants the client id."""
        channel = self.outbound.channel
        assert channel is not None
        self.outbound.flush()
        farewell = b""
        # behind all that was sent before, CONNACK at the least  [MQTT-3.14.0-1] [MQTT-3.14.4-1]
        if channel.version == Version.V5 and channel.is_accepted:
            properties = reason_string(text) if channel.problem_information else NO_PROPERTIES
            packet = Disconnect(fitting(reason, PacketType.DISCONNECT), properties)
            farewell = encode_within(packet, channel.version, channel.max_packet_size)
            self.context.services.metrics.sent[PacketType.DISCONNECT] += 1
        channel.cast(mail.Close(farewell))
        self._left(reason, text, successor)

    def _left(self, reason: Reason, text: str, successor: ClientInfo | None = None) -> None:
        channel, context = self.outbound.channel, self.context
        assert channel is not None
        context.follow(SessionEvent.DETACH)
        context.session.left_at = self.outbound.now
        if context.session.durable is not None:
            context.session.durable.changed(at_once=True)
        if self.waiting.end() or not channel.is_accepted:
            self.absence.forget_will()  # [MQTT-3.14.4-3] [MQTT-3.1.2-8]
        context.subscriber.online = False
        context.services.pubsub.presence_changed(context.session.subscriptions)
        self._take(
            self.check.stop,
            self.outbound.detach,
            partial(self._notify_left, channel, reason, text, successor),
            self._stop_timers,
            partial(self.absence.begin, self._expire),
        )

    def close_when_stored(self, channel: Channel) -> None:
        """The close answers a DISCONNECT, which may have taken the will away, or given the session another time."""
        close = partial(channel.cast, mail.Close(b""))
        wait = self._until_stored(channel.client)
        if wait is None:
            close()
        else:
            wait(close)

    def _notify_left(self, channel: Channel, reason: Reason, text: str, successor: ClientInfo | None) -> None:
        services, client = self.context.services, channel.client
        if not channel.is_accepted:
            _logger.info("gone before its CONNACK, which waits for the store: %s", text, extra=client.log_fields)
            return
        services.metrics.client_disconnected += 1
        if _logger.isEnabledFor(logging.INFO):
            words, named = text, None
            if successor is not None:  # the log alone says where the other one is
                words += f": the new connection is from {successor.address}, this one was from {client.address}"
            if reason not in UNNAMED:
                named = reason.name.lower()
                words += f" ({named})"
            _logger.info("disconnected: %s", words, extra=client.log_fields | {"reason": named})
        services.hooks.notify(CLIENT_DISCONNECTED, client, reason, text)

    def _stop_timers(self) -> None:
        for stop in self._timers:
            stop()
        self._timers.clear()
        self.absence.end()

    # No client is connected

    def _expire(self) -> None:
        self.context.services.metrics.session_expired += 1
        self.end("expired")

    def restore(self) -> None:
        """The session was restored: its client went at `session.left_at`, in this node's time."""
        self.context.follow(SessionEvent.RESTORE)
        self.context.in_slices(self._drop_each(self.not_restored))
        self.absence.begin(self._expire)
        self._end_unless_kept()

    def _drop_each(self, gone: deque[tuple[Message, DropReason]]) -> Iterator[None]:
        while gone:
            for _ in range(min(len(gone), MESSAGES_AT_ONCE)):
                self.outbound.drop(*gone.popleft())
            yield

    # The session ends

    def end(self, cause: str) -> None:
        """The client has no connection any more. The actor ends when no route leads to it."""
        self.context.follow(SessionEvent.END)
        self._take(
            self.absence.publish_will,  # [MQTT-3.1.3-9] the end of the session cuts a delay short
            self._end_stored,
            self._stop_timers,
            partial(self.on_end, self.context.session),
            partial(self._notify_ended, cause),
            self._remove_routes,
        )

    def end_now(self, message: mail.End) -> None:
        session = self.context.session
        if self.context.ended:
            return
        stays = session.durable is not None and message.cause == "shutdown"  # it goes on with the next start
        if not stays:
            session.expiry_interval = 0.0  # so no will waits for its delay
        if self.outbound.channel is not None:
            self.hear_out()
            self.end_connection(message.reason, message.cause, message.successor)
        if not stays:
            self.end(message.cause)

    def _end_stored(self) -> None:
        if self.context.session.durable is not None:
            self.context.session.durable.end()

    def _notify_ended(self, cause: str) -> None:
        services, client = self.context.services, self.context.session.client
        services.metrics.session_terminated += 1
        if cause == "discarded":
            services.metrics.session_discarded += 1
            services.hooks.notify(SESSION_DISCARDED, client)
        else:
            services.hooks.notify(SESSION_TERMINATED, client, cause)

    def _remove_routes(self) -> None:
        context = self.context
        filters = list(context.session.subscriptions)
        context.services.pubsub.remove_subscriber(context.subscriber, filters, partial(context.soon, self._give_up))

    def _give_up(self) -> None:
        self.context.in_slices(self._remains.give_up(self._give_up))

    @property
    def _remains(self) -> Remains:
        return Remains(self.context, self.inbound, self.outbound, self.undelivered)

    # The actor ends

    def close_all(self) -> None:
        """Close the connections that have or want this session."""
        for channel in self._requested:
            channel.cast(mail.Close(b""))
        if self.outbound.channel is not None:
            self.outbound.channel.cast(mail.Close(b""))

    def forget_connection(self) -> None:
        """Stop sending to and receiving from the client: the node ends like a killed process, without a DISCONNECT."""
        if self.outbound.channel is not None:
            self.context.follow(SessionEvent.DETACH)
            self.outbound.channel = None

    def stop(self) -> None:
        """The node stops: no hook is called, and no will is published."""
        if self.context.ended:
            return
        if self.outbound.channel is not None:
            self.context.follow(SessionEvent.DETACH)
        self.context.follow(SessionEvent.END)
        self.on_end(self.context.session)
        self._remove_routes()

    def crashed(self) -> None:
        """End the client's connection as any other that is lost, and the session with it. The actor has ended already,
        so a task gives up what is left."""
        self.context.subscriber.cast = self.outbound.lose  # its routes are still there
        self.context.session.expiry_interval = 0.0  # so no will waits for its delay
        if self.outbound.channel is not None:
            self._salvage(partial(self._left, Reason.UNSPECIFIED_ERROR, "internal error"))
        if not self.context.ended:
            self._salvage(partial(self.end, "crashed"))
        self._salvage(partial(self.context.services.start_task, self._remains.give_up_in_task))

    def _take(self, *steps: Callable[[], object]) -> None:
        """Make these calls, one after the other. If one crashes, `_salvage` makes the others."""
        left = self._steps
        left += steps
        while left:
            left.pop(0)()

    def _salvage(self, step: Callable[[], object]) -> None:
        """After a crash: do what is left, then this. An error in one step does not keep the others from being done."""
        self._steps.append(step)
        while self._steps:
            try:
                self._steps.pop(0)()
            except Exception:
                _logger.exception(ANOTHER_ERROR, extra=self.context.session.client.log_fields)


def _weight(client: ClientInfo, will: Will | None) -> int:
    """Bytes of memory, roughly, that wait for the store before a CONNACK."""
    known = OVERHEAD + len(client.client_id) + len(client.username or "")
    return known if will is None else known + len(will.topic) + len(will.payload) + properties_weight(will.properties)
