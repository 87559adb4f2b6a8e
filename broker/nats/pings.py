"""The server's PINGs to a client that is silent, and how many may be without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.nats.protocol.operations import PING

if TYPE_CHECKING:
    from trunkline.broker.net.transport import Transport
    from trunkline.config.nats_settings import NatsSettings


class Pings:
    __slots__ = ("_sent_at", "_transport", "unanswered")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: PINGs that the client has not answered.
        self.unanswered = 0
        self._sent_at = 0.0

    def is_stale(self, last_read: float, now: float, settings: NatsSettings) -> bool:
        """It is time to look. Sends a PING, unless the client has sent something or too many are without an answer."""
        if now - last_read < settings.ping_interval:
            self.unanswered = 0
        elif self.unanswered >= settings.max_pings:
            return True
        else:
            self.unanswered += 1
            self._sent_at = now
            self._transport.send(PING.line)
        return False

    def next_at(self, last_read: float, settings: NatsSettings) -> float:
        """When it is time again."""
        return max(last_read, self._sent_at) + settings.ping_interval
