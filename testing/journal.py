"""Recording: packets that clients send, and packets that reach them, are written into a journal."""

from __future__ import annotations

import logging
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import trio

from trunkline import __version__
from trunkline.management.journal_file import (
    BrokerEnding,
    Closed,
    JournalHeader,
    Opened,
    Passed,
    pack_entry,
    pack_header,
)
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Auth, Connect, PacketType
from trunkline.mqtt.versions import Version
from trunkline.testing.packets import FROM

if TYPE_CHECKING:
    from io import FileIO
    from pathlib import Path
    from typing import Self

    from trunkline.management.journal_file import Entry
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.fault_layer import FaultLayer, Network
    from trunkline.testing.packets import RawPacket
    from trunkline.testing.portal import Portal

_logger = logging.getLogger("trunkline.testing")

#: Replaces a secret in a journal.
MASK: Final = b"***"


class Recording:
    """A journal that is written from its creation until `stop`, or to the end of its block. Each entry is written at
    once, so that a crash does not lose earlier ones."""

    def __init__(self, path: Path | str, network: Network, wall: float, portal: Portal) -> None:
        """To be made where the broker lives. `wall` is its time in seconds since the epoch.

        Raises:
            OSError: the file cannot be written.
        """
        self._portal = portal
        self._network = network
        file = open(path, "wb", buffering=0)  # noqa: SIM115 - `stop` closes it
        try:
            file.write(pack_header(JournalHeader(wall, __version__)))
        except BaseException:
            file.close()
            raise
        self._file: FileIO | None = file
        self._began = trio.current_time()
        self._error: OSError | None = None
        for layer in filter(attrgetter("speaks_mqtt"), network):
            self._write(Opened(0.0, layer.number, layer.client_id, layer.version or 0, layer.peer, whole=False))
        network.recorders.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop writing. Harmless if it is stopped already.

        Raises:
            OSError: writing failed at some time, and later entries are missing.
        """
        self._portal.call(self.end)
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """As `stop`, where the broker lives, and without the error."""
        if self._file is not None:
            self._network.recorders.remove(self)
            self._file.close()
            self._file = None

    # Reports of layers

    def opened(self, layer: FaultLayer) -> None:
        self._write(Opened(self._now, layer.number, "", 0, layer.peer, whole=True))

    def passed(self, layer: FaultLayer, packet: RawPacket) -> None:
        data = packet.data
        if packet.direction == FROM and packet.type in (PacketType.CONNECT, PacketType.AUTH):
            data = without_secrets(packet, layer.version)
        self._write(Passed(self._now, layer.number, packet.direction == FROM, data, data != packet.data))

    def closed(self, layer: FaultLayer, by: str, error: str) -> None:
        self._write(Closed(self._now, layer.number, by, error))

    def ending(self, graceful: bool, keeps_sessions: bool, keeps_retained: bool) -> None:
        self._write(BrokerEnding(self._now, graceful, keeps_sessions, keeps_retained))

    @property
    def _now(self) -> float:
        return trio.current_time() - self._began

    def _write(self, entry: Entry) -> None:
        if self._file is None or self._error is not None:
            return
        try:
            self._file.write(pack_entry(entry))
        except OSError as error:  # the broker goes on; `stop` says so
            _logger.error("the journal %s ends here: %s", self._file.name, error)
            self._error = error


def without_secrets(packet: RawPacket, version: Version | None) -> bytes:
    """A CONNECT or AUTH with a mask for a password, and for the data of an authentication. Of one that cannot be
    decoded, nothing but its first byte and the length that follows: a secret may be anywhere in it."""
    decoded = packet.decoded
    if isinstance(decoded, Connect):
        masked = replace(decoded, properties=_masked(decoded.properties))
        if decoded.password is not None:
            masked.password = MASK
        return encode(masked, decoded.version) if masked != decoded else packet.data
    if isinstance(decoded, Auth):
        properties = _masked(decoded.properties)
        return encode(Auth(decoded.reason, properties), version or Version.V5) if properties else packet.data
    return packet.data[:2]


def _masked(properties: Properties) -> Properties:
    return {**properties, "authentication_data": MASK} if "authentication_data" in properties else properties
