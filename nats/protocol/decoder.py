"""Bytes to operations, from a server or from a client; the bytes may come in any pieces.

An operation that is not complete is held: its line up to a limit, its payload as long as its line says, which was
compared with a limit before. What follows a mistake is not looked at.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

from trunkline.nats.errors import LineTooLong, PayloadTooLarge, ProtocolError
from trunkline.nats.protocol.operations import (
    OK,
    PING,
    PONG,
    Connect,
    Deliver,
    Error,
    FromClient,
    FromServer,
    Info,
    Publish,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A line of a client, as servers have it by default. In INFO stand the addresses of a whole cluster.
MAX_LINE: Final = 4096
MAX_INFO: Final = 1 << 18
#: A message with its headers. Servers have 1 MiB by default, and 64 MiB at most.
MAX_PAYLOAD: Final = 1 << 20
MOST_PAYLOAD: Final = 1 << 26

#: Digits of a size: more cannot be allowed.
_MOST_DIGITS: Final = 9
_END: Final = b"\r\n"

T = TypeVar("T")


#: An operation, and where the next one begins. A plain tuple, because one is made for each.
Found: TypeAlias = tuple[Any, int]
#: Takes the words of a line, all bytes, and where the line ends. Returns None while a payload is not complete.
_Parse: TypeAlias = "Callable[[Decoder[Any], list[bytes], bytes, int], Found | None]"


class Decoder(Generic[T]):
    """The operations that one peer sends. `from_server` and `from_client` make one."""

    __slots__ = ("_held", "_is_loose", "_needed", "_parsers", "error", "max_line", "max_payload")

    def __init__(self, parsers: Mapping[bytes, _Parse], max_line: int, max_payload: int, *, is_loose: bool) -> None:
        """`is_loose`: words may have tabs between them, or several spaces."""
        self._parsers = parsers
        self._is_loose = is_loose
        self.max_line = max_line
        self.max_payload = max_payload
        #: The other side's mistake. Nothing is decoded after it.
        self.error: ProtocolError | None = None
        #: An operation that is not complete, and how many bytes it has at least.
        self._held = bytearray()
        self._needed = 0

    @property
    def buffered(self) -> int:
        """Bytes that are held of an operation."""
        return len(self._held)

    @property
    def missing(self) -> int:
        """Bytes that it lacks; 0 if nothing is held, or while its length is not known."""
        return max(0, self._needed - len(self._held))

    def feed(self, data: bytes) -> list[T]:
        """The operations that `data` completes, in order. Never raises: see `error`."""
        found: list[T] = []
        if self.error is not None:
            return found
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return found
            data = bytes(self._held)
            self._held.clear()
        self._needed = 0
        try:
            at = self._decode(data, found)
        except ProtocolError as error:
            # without its traceback, whose frames refer to this decoder: only the garbage collector could free them
            self.error = error.with_traceback(None)
        else:
            self._held += data[at:]
        return found

    def _decode(self, data: bytes, found: list[T]) -> int:
        """Decode what is complete. Returns where the rest begins."""
        at, limit, parsers = 0, self.max_line, self._parsers
        while True:
            end = data.find(b"\n", at)
            if (end if end >= 0 else len(data)) - at > limit:
                raise LineTooLong(f"a line of more than {limit} bytes")
            if end < 0:
                return at
            line = data[at : end - (data[end - 1 : end] == b"\r")] if end > at else b""
            words = line.split(b" ")
            parse = parsers.get(words[0])
            if parse is None or (self._is_loose and (b"" in words or b"\t" in line)):
                first, *rest = line.replace(b"\t", b" ").split(b" ")
                words = [first.upper(), *filter(None, rest)]
                parse = parsers.get(words[0])
                if parse is None:
                    raise ProtocolError(f"{line[:32]!r} is no operation of this side")
            one = parse(self, words, data, end + 1)
            if one is None:
                self._needed -= at
                return at
            operation, after = one
            found.append(operation)
            if data.startswith(data[at : end + 1], after) and isinstance(operation, Publish | Deliver):
                after = _repeated(operation, data, at, end + 1, after, found)
            at = after

    def size(self, word: bytes) -> int:
        """The size of a payload, as a line has it."""
        if not word.isdigit() or len(word) > _MOST_DIGITS:
            raise ProtocolError(f"{word[:32]!r} is no size")
        size = int(word)
        if size > self.max_payload:
            raise PayloadTooLarge(f"a message of {size} bytes, {self.max_payload} are allowed")
        return size

    def is_whole(self, data: bytes, end: int) -> bool:
        """Whether all of a payload is there that ends there, and the line break behind it."""
        if len(data) < end + 2:
            self._needed = end + 2
            return False
        if data[end : end + 2] != _END:
            raise ProtocolError(f"{data[end : end + 2]!r} behind a payload, where its line ends")
        return True


def _repeated(operation: Publish | Deliver, data: bytes, at: int, body: int, after: int, found: list[Any]) -> int:
    """Messages in a row that differ in their payload only, and so are of the same length: their lines, from `at` to
    `body` in the first one, are not read once more. Returns where the next operation begins."""
    if operation.block:
        return after
    line, step, skip = data[at:body], after - at, body - at
    while data.startswith(line, after):
        end = after + step
        if data[end - 2 : end] != _END:
            break
        found.append(operation.with_payload(data[after + skip : end - 2]))
        after = end
    return after


def from_server(*, max_payload: int = MOST_PAYLOAD) -> Decoder[FromServer]:
    """For a client. A server writes one space between two words; older ones let a tab get into a subject."""
    return Decoder(_FROM_SERVER, MAX_INFO, max_payload, is_loose=False)


def from_client(*, max_line: int = MAX_LINE, max_payload: int = MAX_PAYLOAD) -> Decoder[FromClient]:
    """For a server."""
    return Decoder(_FROM_CLIENT, max_line, max_payload, is_loose=True)


def _wrong(words: list[bytes]) -> ProtocolError:
    return ProtocolError(f"{b' '.join(words)[:64]!r} has {len(words)} words")


def _deliver(decoder: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found | None:
    if len(words) == 5:
        _, subject, sid, reply, size = words
    elif len(words) == 4:
        _, subject, sid, size = words
        reply = b""
    else:
        raise _wrong(words)
    end = begin + decoder.size(size)
    if not decoder.is_whole(data, end):
        return None
    return Deliver(subject, sid, reply, b"", data[begin:end]), end + 2


def _deliver_with_headers(decoder: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found | None:
    if len(words) == 6:
        _, subject, sid, reply, block, size = words
    elif len(words) == 5:
        _, subject, sid, block, size = words
        reply = b""
    else:
        raise _wrong(words)
    body, end = _parts(decoder, begin, block, size)
    if not decoder.is_whole(data, end):
        return None
    return Deliver(subject, sid, reply, data[begin:body], data[body:end]), end + 2


def _publish(decoder: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found | None:
    if len(words) == 3:
        _, subject, size = words
        reply = b""
    elif len(words) == 4:
        _, subject, reply, size = words
    else:
        raise _wrong(words)
    end = begin + decoder.size(size)
    if not decoder.is_whole(data, end):
        return None
    return Publish(subject, reply, b"", data[begin:end]), end + 2


def _publish_with_headers(decoder: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found | None:
    if len(words) == 4:
        _, subject, block, size = words
        reply = b""
    elif len(words) == 5:
        _, subject, reply, block, size = words
    else:
        raise _wrong(words)
    body, end = _parts(decoder, begin, block, size)
    if not decoder.is_whole(data, end):
        return None
    return Publish(subject, reply, data[begin:body], data[body:end]), end + 2


def _parts(decoder: Decoder[Any], begin: int, block: bytes, size: bytes) -> tuple[int, int]:
    """Where the payload behind headers begins, and where it ends."""
    end = begin + decoder.size(size)
    body = begin + decoder.size(block)
    if body > end:
        raise ProtocolError(f"headers of {int(block)} bytes in a message of {int(size)}")
    return body, end


def _subscribe(_: Decoder[Any], words: list[bytes], __: bytes, begin: int) -> Found:
    if len(words) == 3:
        return Subscribe(words[1], b"", words[2]), begin
    if len(words) == 4:
        return Subscribe(words[1], words[2], words[3]), begin
    raise _wrong(words)


def _unsubscribe(_: Decoder[Any], words: list[bytes], __: bytes, begin: int) -> Found:
    if len(words) == 2:
        return Unsubscribe(words[1], 0), begin
    if len(words) == 3:  # what is no number is none, as servers take it
        is_number = words[2].isdigit() and len(words[2]) <= _MOST_DIGITS
        return Unsubscribe(words[1], int(words[2]) if is_number else 0), begin
    raise _wrong(words)


def _connect(_: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found:
    return Connect(_json(words, data, begin)), begin


def _info(_: Decoder[Any], words: list[bytes], data: bytes, begin: int) -> Found:
    return Info(_json(words, data, begin)), begin


def _json(words: list[bytes], data: bytes, begin: int) -> dict[str, Any]:
    """The object that stands behind the first word of the line that ends before `begin`."""
    line = _line(data, begin)
    try:
        found = json.loads(line[len(words[0]) :])
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{words[0].decode()}: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"{words[0].decode()}: no object")
    return cast("dict[str, Any]", found)


def _error(_: Decoder[Any], __: list[bytes], data: bytes, begin: int) -> Found:
    text = _line(data, begin)[len(b"-ERR") :]
    said = text.decode("utf-8", "replace").strip().strip("'")
    # it ends up in the terminals of others
    return Error("".join([sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in said])), begin


def _line(data: bytes, begin: int) -> bytes:
    return data[data.rfind(b"\n", 0, begin - 1) + 1 : begin]


def _signal(_: Decoder[Any], words: list[bytes], __: bytes, begin: int) -> Found:
    return _SIGNALS[words[0]], begin


_SIGNALS: Final = {b"PING": PING, b"PONG": PONG, b"+OK": OK}
#: A server takes from a client, and ignores, what only servers have to say.
_BOTH: Final[dict[bytes, _Parse]] = {b"PING": _signal, b"PONG": _signal, b"+OK": _signal, b"INFO": _info}
_FROM_SERVER: Final[dict[bytes, _Parse]] = {
    b"MSG": _deliver,
    b"HMSG": _deliver_with_headers,
    b"-ERR": _error,
    **_BOTH,
}
_FROM_CLIENT: Final[dict[bytes, _Parse]] = {
    b"PUB": _publish,
    b"HPUB": _publish_with_headers,
    b"SUB": _subscribe,
    b"UNSUB": _unsubscribe,
    b"CONNECT": _connect,
    **_BOTH,
}
