"""A client's operations as they come, counted for the limits of rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.net.other_protocols import guess_beside_nats
from trunkline.nats.protocol.decoder import from_client
from trunkline.nats.protocol.operations import Publish

if TYPE_CHECKING:
    from trunkline.nats.errors import ProtocolError
    from trunkline.nats.protocol.operations import FromClient


class OperationDecoder:
    __slots__ = ("_decoder", "completed", "messages")

    def __init__(self, max_line: int, max_payload: int) -> None:
        self._decoder = from_client(max_line=max_line, max_payload=max_payload)
        #: Messages that were decoded.
        self.messages = 0
        #: Reads that completed something: what is held then is another operation than before.
        self.completed = 0

    def feed(self, data: bytes) -> list[FromClient]:
        """The operations that `data` completes. Never raises: see `error`."""
        found = self._decoder.feed(data)
        if found:
            self.completed += 1
            self.messages += sum([type(each) is Publish for each in found])
        return found

    def another_protocol(self, data: bytes) -> str:
        """What these bytes look like, in words for the log, if nothing came before them and they are no operation."""
        is_first = self.error is not None or self.buffered == len(data)
        return guess_beside_nats(data) if is_first else ""

    @property
    def error(self) -> ProtocolError | None:
        return self._decoder.error

    @property
    def buffered(self) -> int:
        """Bytes that are held of an operation."""
        return self._decoder.buffered

    @property
    def missing(self) -> int:
        """Bytes that the held operation lacks; 0 if there is none, or while its length is not known."""
        return self._decoder.missing
