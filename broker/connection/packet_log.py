"""Logs the packets of a connection in both directions: type, client and size, never payloads. A connection whose
packets are logged has another decoder, and one more layer on its transport. So other connections, nearly all, need no
check on a message's way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from trunkline.broker.net.transport import OutputLayer
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.describing import describe_without_content, shown_username
from trunkline.mqtt.explanations import shortened
from trunkline.mqtt.packets import Connect
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from socket import socket

    from trunkline.broker.connection.mountpoint import MountedDecoder
    from trunkline.broker.net.transport import Transport
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.packets import Packet
    from trunkline.mqtt.publication import Decoded

_logger = logging.getLogger("trunkline.packets")


def logs_all() -> bool:
    """Whether the packets of new connections are logged."""
    return _logger.isEnabledFor(logging.DEBUG)


class PacketLog:
    """The log of one connection."""

    __slots__ = ("_fields", "_level")

    def __init__(self, client: ClientInfo, level: int) -> None:
        self._fields = client.log_fields
        self._level = level

    def write(self, direction: str, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self._fields |= {"client": shortened(packet.client_id), "username": shown_username(packet.username)}
        if _logger.isEnabledFor(self._level):
            _logger.log(self._level, "%s %s", direction, describe_without_content(packet), extra=self._fields)


class LoggedDecoder:
    """A decoder whose packets are logged. It gathers none: each is a record of its own."""

    def __init__(self, decoder: Decoder | MountedDecoder, log: PacketLog) -> None:
        self.inner = decoder
        self._log = log
        decoder.gathers = False

    def feed(self, data: bytes) -> list[Decoded]:
        packets = self.inner.feed(data)
        for packet in packets:
            self._log.write("received", cast("Packet", packet))
        return packets

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class SentLog(OutputLayer):
    """Logs sent packets, decoded with the client's version."""

    __slots__ = ("_client", "_log")

    def __init__(self, below: Transport, decoder: Decoder | MountedDecoder, log: PacketLog) -> None:
        super().__init__(below)
        self._client = decoder
        self._log = log

    @property
    def bare(self) -> socket | None:
        return self.below.bare

    def send(self, data: bytes) -> None:
        client = self._client
        decoder = Decoder(
            server=False,
            version=client.version or Version.V311,
            max_levels=client.max_levels,
            strict_utf8=client.strict_utf8,
        )
        for packet in decoder.feed(data):
            self._log.write("sent", cast("Packet", packet))
        super().send(data)
