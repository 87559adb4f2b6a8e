"""The coming and going of a session's connections: attach, takeover, detach, and what the client hears of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.session import mail
from trunkline.broker.session.lifecycle import SessionEvent
from trunkline.hooks.points import (
    CLIENT_CONNACK,
    CLIENT_CONNECTED,
    CLIENT_DISCONNECTED,
    SESSION_CREATED,
    SESSION_RESUMED,
    SESSION_TAKEN_OVER,
)
from trunkline.mqtt.encoder import encode, encode_within
from trunkline.mqtt.explanations import fitting, reason_string
from trunkline.mqtt.packets import Connack, Disconnect, PacketType
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Later
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.ending import Ending, Steps
    from trunkline.broker.session.inbound import Inbound
    from trunkline.broker.session.lifecycle import Life
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.broker.session.subscription_check import SubscriptionCheck
    from trunkline.broker.session.timers import AwayTimers
    from trunkline.broker.session.waiting import Waiting
    from trunkline.hooks.client import ClientInfo

#: Reasons that say no more than that the connection is over.
UNNAMED: Final = (Reason.SUCCESS, Reason.UNSPECIFIED_ERROR)

_logger = logging.getLogger("trunkline.session")


@dataclass(slots=True, eq=False)
class Attachment:
    session: Session
    services: Services
    life: Life
    away: AwayTimers
    waiting: Waiting
    inbound: Inbound
    outbound: Outbound
    subscriber: Subscriber
    check: SubscriptionCheck
    steps: Steps
    ending: Ending
    later: Later
    #: Connections whose request is in the mailbox: they must not wait for an actor that has crashed.
    _requested: list[Channel] = field(default_factory=list["Channel"])
    _stop_retry: Callable[[], None] | None = None

    # A connection comes

    def request(self, channel: Channel, present: bool) -> None:
        """Attach this connection in the session's turn. `present` says whether the session was there before."""
        self._requested.append(channel)
        channel.session = self.subscriber.cast
        channel.session(mail.Attach(channel, present))

    def attach(self, channel: Channel, present: bool) -> None:
        session, services, outbound = self.session, self.services, self.outbound
        if self.life.ended:  # while the request was in the mailbox
            services.open_session(channel)
            self._requested.remove(channel)
            return
        if outbound.channel is not None:
            self._take_over(outbound.channel, channel.client)
        self.away.stop()
        self.life.follow(SessionEvent.ATTACH, channel)
        outbound.attach(channel)  # first, so that a crash ends this connection
        self._requested.remove(channel)
        session.attach(channel.client, channel.expiry_interval, channel.will)
        channel.resumed = present
        self.subscriber.online = True
        connack = Connack(present, Reason.SUCCESS, channel.connack)
        metrics, client = services.metrics, channel.client
        metrics.client_connected += 1
        if present:
            metrics.session_resumed += 1
            services.hooks.notify(SESSION_RESUMED, client)
        else:
            metrics.session_created += 1
            services.hooks.notify(SESSION_CREATED, client)
        outbound.pieces = [encode(connack, channel.version)]  # [MQTT-3.2.0-1]
        services.hooks.notify(CLIENT_CONNACK, client, connack)
        metrics.sent[PacketType.CONNACK] += 1
        self.inbound.expect_pubrel()
        self.check.resume()
        outbound.fill()
        _logger.info(
            "connected from %s by %s, MQTT %s%s",
            client.address,
            client.listener,
            channel.version,
            ", session resumed" if present else "",
            extra=client.log_fields,
        )
        services.hooks.notify(CLIENT_CONNECTED, client)
        if services.config.session.retry_interval and channel.version != Version.V5:
            self._retry_later(channel)

    def _take_over(self, old: Channel, successor: ClientInfo) -> None:
        self.services.metrics.session_takenover += 1
        self.services.hooks.notify(SESSION_TAKEN_OVER, old.client)
        self.end_connection(Reason.SESSION_TAKEN_OVER, "another connection has this client id", successor)

    def _retry_later(self, channel: Channel) -> None:
        interval = self.services.config.session.retry_interval
        self._stop_retry = self.later.after(interval, partial(self._retry, channel, interval))

    def _retry(self, channel: Channel, interval: float) -> None:
        if channel is self.outbound.channel:
            self.outbound.retry(interval)
            self.outbound.fill()
            self._retry_later(channel)

    # A connection goes

    def disconnect(self, reason: Reason, text: str) -> None:
        """End the connection from our side. The session ends, too, if it is not to outlive it."""
        self.end_connection(reason, text)
        self._end_unless_kept()

    def lost(self, reason: Reason, text: str) -> None:
        """The connection is over, and no packet can be sent there."""
        self._left(reason, text)
        self._end_unless_kept()

    def _end_unless_kept(self) -> None:
        if not self.session.expiry_interval:
            self.ending.end("disconnected")

    def end_connection(self, reason: Reason, text: str, successor: ClientInfo | None = None) -> None:
        """The session stays. `successor` is the client of the connection that wants the client id."""
        channel = self.outbound.channel
        assert channel is not None
        self.outbound.flush()
        farewell = b""
        if channel.version == Version.V5:  # behind all that was sent before  [MQTT-3.14.4-1]
            properties = reason_string(text) if channel.problem_information else NO_PROPERTIES
            packet = Disconnect(fitting(reason, PacketType.DISCONNECT), properties)
            farewell = encode_within(packet, channel.version, channel.max_packet_size)
            self.services.metrics.sent[PacketType.DISCONNECT] += 1
        channel.cast(mail.Close(farewell))
        self._left(reason, text, successor)

    def _left(self, reason: Reason, text: str, successor: ClientInfo | None = None) -> None:
        channel, session = self.outbound.channel, self.session
        assert channel is not None
        self.life.follow(SessionEvent.DETACH)
        session.left_at = self.outbound.now
        if self.waiting.end():
            session.will = None  # [MQTT-3.14.4-3]
        self.subscriber.online = False
        if self._stop_retry is not None:
            self._stop_retry()
        self.steps.run(
            self.check.stop,
            self.outbound.detach,
            partial(self._notify_left, channel.client, reason, text, successor),
            partial(self.away.start, session.left_at, self.ending.expire),
        )

    def _notify_left(self, client: ClientInfo, reason: Reason, text: str, successor: ClientInfo | None) -> None:
        self.services.metrics.client_disconnected += 1
        words, named = text, None
        if successor is not None:  # the log alone says where the other one is
            words += f": the new connection is from {successor.address}, this one was from {client.address}"
        if reason not in UNNAMED:
            named = reason.name.lower()
            words += f" ({named})"
        _logger.info("disconnected: %s", words, extra=client.log_fields | {"reason": named})
        self.services.hooks.notify(CLIENT_DISCONNECTED, client, reason, text)

    # The actor ends

    def close_all(self) -> None:
        """Close the connections that have or want this session."""
        for channel in self._requested:
            channel.cast(mail.Close(b""))
        if self.outbound.channel is not None:
            self.outbound.channel.cast(mail.Close(b""))

    def crashed(self) -> None:
        """End the client's connection as any other that is lost."""
        if self.outbound.channel is not None:
            self.steps.salvage(partial(self._left, Reason.UNSPECIFIED_ERROR, "internal error"))
