"""MQTT or NATS over WebSocket: a layer that turns frames into their bytes and back.

Frames may split and join packets any way [MQTT-6.0.0-2], so payload goes on as it comes, before its frame or
message is complete, and no more than a frame's header is kept. What is sent in a turn leaves in one frame.

A binary message of one frame, as nearly all are, is read here, in a tenth of the time. wsproto reads everything else:
fragments, compressed and control frames, and all that is wrong.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import h11
import trio
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.frame_protocol import CloseReason

from trunkline.broker.net.deflate import INFLATED_AT_ONCE, Deflate
from trunkline.broker.net.other_protocols import guess_unwrapped
from trunkline.broker.net.transport import WRITTEN_AT_ONCE, Ended, Failed, Layer
from trunkline.broker.net.upgrade import MQTT, UpgradeRefused, check
from trunkline.broker.net.whole_frames import (
    MIN_ALIKE,
    SHORT_HEADER,
    WHOLE_BINARY,
    apply_mask,
    framed,
    read_alike,
)

if TYPE_CHECKING:
    from wsproto.extensions import Extension

    from trunkline.actors import Actor, Ref, Scheduler, Timer
    from trunkline.broker.net.transport import Event, Receiver, Transport
    from trunkline.broker.net.upgrade import Spoken
    from trunkline.config.layer_settings import WebSocketSettings

#: The opcode of text.
_TEXT: Final = 1
#: What wsproto may read in a turn, so that other clients get theirs: inflated bytes, and for each frame or piece of one
#: what takes as long.
MAX_SLOW: Final = 16_384
SLOW_FRAME: Final = 32
#: Codes of a Close with which a client leaves in order; the last one stands for none.
_ORDERLY: Final = {CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD}


class _State(Enum):
    UPGRADING = "upgrading"
    OPEN = "open"
    #: Our Close was sent, and the client's is awaited.
    FINISHING = "finishing"
    OVER = "over"


class WebSocketLayer(Layer):
    __slots__ = (
        "_busy",
        "_extensions",
        "_fragmented",
        "_frames",
        "_held",
        "_http",
        "_mask",
        "_missing",
        "_outgoing",
        "_path",
        "_paused",
        "_ping",
        "_received",
        "_scheduler",
        "_settings",
        "_spoken",
        "_state",
        "_timer",
        "owner",
    )

    def __init__(self, below: Transport, path: str, settings: WebSocketSettings, spoken: Spoken = MQTT) -> None:
        super().__init__(below)
        self._spoken = spoken
        self._path = path
        self._settings = settings
        self._state = _State.UPGRADING
        #: Reads the request, and the bytes that it got; None when the request has come.
        self._http: h11.Connection | None = h11.Connection(
            h11.SERVER, max_incomplete_event_size=settings.max_header_size
        )
        self._received = 0
        #: Reads frames; None until one needs it.
        self._frames: Frames | None = None
        #: Compression, if it was agreed on.
        self._extensions: list[Extension] = []
        #: Bytes that were not looked at: the beginning of a frame's header, or the rest of a read that
        #: was too much for one turn.
        self._held = b""
        #: Whether the rest of a read is left for the next turn.
        self._busy = False
        #: Bytes of the current frame that are still to come, and the mask of the next ones; none if wsproto reads them.
        self._missing = 0
        self._mask = b""
        #: Whether a message of several frames is under way.
        self._fragmented = False
        #: A ping that is to be answered.
        self._ping: Ping | None = None
        self._outgoing = b""
        self._paused = False
        #: Set at the start.
        self.owner: Ref[Any] | None = None
        self._scheduler: Scheduler
        #: Limits the time of the upgrade; then it goes on with the rest of a read.
        self._timer: Timer

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.owner = owner.ref
        self._scheduler = owner.scheduler
        self._timer = owner.call_at(trio.current_time() + self._settings.upgrade_timeout, self._on_timer)
        super().start(receiver, owner)

    # From below

    def receive(self, event: Event) -> None:
        if not isinstance(event, bytes):
            self.above(event)
        elif self._state is _State.UPGRADING:
            self._upgrade(event)
        elif self._state is not _State.OVER:
            self._held += event
            if not self._busy:
                self._read()

    def _upgrade(self, data: bytes) -> None:
        http = self._http
        assert http is not None
        self._received += len(data)
        http.receive_data(data)
        try:
            request = _next_request(http, data, self._spoken)
            if request is None:
                return
            rest = http.trailing_data[0]
            if self._received - len(rest) > self._settings.max_header_size:
                raise _TOO_LARGE
            accepted = check(request, self._path, self._settings.origins, self._spoken)
        except UpgradeRefused as refusal:
            self._refuse(refusal)
            return
        response, self._extensions = accepted.accept([Deflate()] if self._settings.compression else [])
        self._http = None
        self._state = _State.OPEN
        self._timer.cancel()
        self.below.send(response)
        self.end_turn()
        self._held = rest
        self._read()

    def _refuse(self, refusal: UpgradeRefused) -> None:
        self.below.send(refusal.response)
        self._fail(refusal.advice, refusal.detail)

    def _read(self) -> None:
        """Pass on the payload of the frames in `_held`."""
        data, self._held = self._held, b""
        payloads: list[bytes] = []
        at = slow = 0
        while True:
            if not self._missing:
                at = self._read_whole(data, at, payloads)
            if not self._missing or at == len(data):
                break
            mask, size = self._mask, self._missing
            if not mask and self._extensions:
                size = min(size, INFLATED_AT_ONCE)
            piece = data[at : at + size]
            at += len(piece)
            self._missing -= len(piece)
            if mask:
                payloads.append(apply_mask(piece, mask))
                self._mask = (mask * 2)[len(piece) & 3 :][:4]
                continue
            size = self._take(piece, payloads)
            slow += SLOW_FRAME + (size if self._extensions else 0)
            if self._state is _State.OVER or slow >= MAX_SLOW:
                break
        if self._state is not _State.OVER:
            self._held = data[at:]
        self._go_on_later(slow >= MAX_SLOW and bool(self._held))
        self._pass_on(payloads)
        if self._ping is not None:
            self._answer_ping()

    def _read_whole(self, data: bytes, at: int, payloads: list[bytes]) -> int:
        """Read binary messages that have come as a whole, up to a frame of which that is not true: `_missing` and
        `_mask` are about that one, if its header has come. Returns its place."""
        end = len(data)
        whole = -1 if self._fragmented else WHOLE_BINARY
        is_first = True
        while end - at >= SHORT_HEADER:
            first, second = data[at], data[at + 1]
            if second < 254:
                body = at + SHORT_HEADER
                length = second & 0x7F
                valid = second > 127
            elif second == 254:
                body = at + 8
                length = data[at + 2] << 8 | data[at + 3]
                valid = length > 125
            else:
                body = at + 14
                length = int.from_bytes(data[at + 2 : at + 10], "big")
                valid = 65_535 < length < 1 << 63
            if body > end:
                break
            if first == whole and valid:
                after = body + length
                if is_first and end - after >= MIN_ALIKE * (after - at):
                    is_first = False
                    at = read_alike(data, at, body, after, payloads)
                    continue
                mask = data[body - 4 : body]
                if after <= end:
                    payloads.append(apply_mask(data[body:after], mask))
                    at = after
                    continue
                self._missing, self._mask = length, mask
                return body
            if first & 0x0F == _TEXT:  # [MQTT-6.0.0-1]
                self._pass_on(payloads)
                self._break(
                    CloseReason.UNSUPPORTED_DATA, f"{self._spoken.name} needs binary frames, and the client sent text"
                )
            else:
                self._missing, self._mask = body - at + length, b""
            break
        return at

    def _go_on_later(self, busy: bool) -> None:
        """Leave the rest of a read, if there is one, for the next turn, so that other clients get theirs."""
        if busy:
            self._timer.restart(0.0)
        if busy != self._busy:
            self._busy = busy
            if busy:
                self.below.pause()
            elif not self._paused:
                self.below.resume()

    def _take(self, piece: bytes, payloads: list[bytes]) -> int:
        """Have wsproto read a frame, or a piece of one. Returns the size of the payload that it had."""
        frames = self._started()
        frames.receive_data(piece)
        size = 0
        for event in frames.events():
            if isinstance(event, BytesMessage):
                self._fragmented = not event.message_finished
                size += len(event.data)
                payloads.append(bytes(event.data))
            elif isinstance(event, Ping):
                self._ping = event
            elif isinstance(event, CloseConnection):
                self._pass_on(payloads)
                if frames.state is ConnectionState.REMOTE_CLOSING or frames.state is ConnectionState.CLOSED:
                    self._closed(event, frames)
                else:
                    self._break(event.code, "a WebSocket frame is not valid", event.reason or "")
                break
        return size

    def _answer_ping(self) -> None:
        """Of several, the last one is answered [RFC 6455, 5.5.3]."""
        ping, self._ping = self._ping, None
        if ping is not None and self._state is _State.OPEN:
            self.end_turn()
            self.below.send(self._started().send(ping.response()))

    def _started(self) -> Frames:
        if self._frames is None:
            self._frames = Frames(ConnectionType.SERVER, self._extensions)
        return self._frames

    def _pass_on(self, payloads: list[bytes]) -> None:
        if payloads:
            payload = b"".join(payloads)
            payloads.clear()
            if payload:
                self.above(payload)

    def _closed(self, close: CloseConnection, frames: Frames) -> None:
        if self._state is _State.OPEN:
            self.end_turn()
            self.below.send(frames.send(close.response()))
        self._state = _State.OVER
        text = f"it closed the WebSocket with code {close.code}"
        if close.reason:
            text += f", {close.reason}"
        self.above(Ended("" if close.code in _ORDERLY else text))

    def _break(self, code: int, problem: str, detail: str = "") -> None:
        if self._state is _State.OPEN:
            self._send_close(code, problem)
        self._fail(problem, detail)

    def _fail(self, problem: str, detail: str) -> None:
        self._state = _State.OVER
        self._outgoing = b""  # what was to follow a response
        self._timer.cancel()
        self.above(Failed(problem, detail))

    def _on_timer(self) -> None:
        if self._state is _State.UPGRADING:
            self._refuse(UpgradeRefused(408, "The request to open a WebSocket did not come in time."))
        elif self._paused:
            pass
        elif self._scheduler.ready:  # with what was passed on before, say: more would keep the poller from reading
            self._timer.restart(0.0)
        else:
            self._read()

    # From above

    def send(self, data: bytes) -> None:
        if self._outgoing:
            self._outgoing += data
        elif self._state is _State.UPGRADING:
            self._outgoing = data  # it leaves behind the response
        elif self._state is _State.OPEN:
            self._outgoing = data
            if len(data) < WRITTEN_AT_ONCE:
                self._scheduler.at_end(self)
            else:
                self.end_turn()

    def send_now(self, data: bytes) -> None:
        self.send(data)
        self.end_turn()

    def end_turn(self) -> None:
        """Send the output of this turn."""
        data = self._outgoing
        if not data or self._state is _State.UPGRADING:
            return
        self._outgoing = b""
        self.below.send_now(self._started().send(BytesMessage(data)) if self._extensions else framed(data))

    def _send_close(self, code: int, reason: str = "") -> None:
        self.end_turn()
        self.below.send(self._started().send(CloseConnection(code, reason)))

    @property
    def pending(self) -> int:
        return self.below.pending + len(self._outgoing)

    def pause(self) -> None:
        self._paused = True
        self.below.pause()

    def resume(self) -> None:
        self._paused = False
        if self._busy:
            self._timer.restart(0.0)
        else:
            self.below.resume()

    def read_now(self) -> None:
        if not self._busy:
            self.below.read_now()

    def finish(self) -> None:
        if self._state is _State.OPEN:
            self._send_close(CloseReason.NORMAL_CLOSURE)
            self._state = _State.FINISHING
        self.below.finish()

    def reset(self) -> None:
        self.end_turn()
        self.below.reset()

    def close(self) -> None:
        self.end_turn()
        self._state = _State.OVER
        self._held = b""
        self._timer.discard()
        super().close()


_TOO_LARGE: Final = UpgradeRefused(431, "The request to open a WebSocket is too large.")


def _next_request(http: h11.Connection, data: bytes, spoken: Spoken) -> h11.Request | None:
    """
    Raises:
        UpgradeRefused: this is not HTTP.
    """
    try:
        event = http.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == 431:
            raise _TOO_LARGE from None
        advice = f"This address is for {spoken.name} over WebSocket, and the request is not valid HTTP."
        other = guess_unwrapped(data) if data[0] < 0x20 else ""
        raise UpgradeRefused(400, advice, other or str(error)) from None
    return event if isinstance(event, h11.Request) else None
