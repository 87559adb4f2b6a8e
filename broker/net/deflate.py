"""Compression of WebSocket messages (permessage-deflate), safe against what a client may send.

wsproto's own forgets in the middle of a message that it is compressed when a control frame comes, and keeps all that
follows the end of a compressed stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason, RsvBits

if TYPE_CHECKING:
    from wsproto.frame_protocol import FrameDecoder, FrameProtocol, Opcode

#: Compressed bytes that are inflated at once: they can become a thousand times as many.
INFLATED_AT_ONCE: Final = 16
#: Bytes that may follow the end of a compressed stream within a message: one of its own, and those that are appended.
MAX_TRAILING: Final = 5


class Deflate(PerMessageDeflate):
    """Each message is compressed on its own: a connection keeps no window of 32 kB in either direction."""

    def __init__(self) -> None:
        super().__init__(client_no_context_takeover=True, server_no_context_takeover=True)

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        if opcode.iscontrol():
            return RsvBits(False, False, False)
        return super().frame_inbound_header(proto, opcode, rsv, payload_length)

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes | CloseReason:
        if _is_control(proto):
            return data
        inflated = super().frame_inbound_payload_data(proto, data)
        stream = self._decompressor
        if stream is not None and len(stream.unused_data) > MAX_TRAILING:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return inflated

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | CloseReason | None:
        return None if _is_control(proto) else super().frame_inbound_complete(proto, fin)


def _is_control(proto: FrameDecoder | FrameProtocol) -> bool:
    header = getattr(proto, "header", None)
    return header is not None and header.opcode.iscontrol()
