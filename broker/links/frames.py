"""What goes over a link: a length, a kind, and a body. Numbers are of 64 bits, and everything else is packed."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trunkline.mqtt.packing import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Of what is said here. One end must understand the other.
FORMAT: Final = 1
#: Length of kind and body, and the kind.
HEAD: Final = Struct("!IB")
_NUMBER: Final = Struct("!Q")
#: Number, overhead, and whether it is kept.
_BURST: Final = Struct("!QQ?")
_BURST_HEAD: Final = Struct("!IBQQ?")


class FrameKind(IntEnum):
    HELLO = 1
    ROUTES = 2
    ROUTED = 3
    PUBLISH = 4
    ACK = 5
    CREDIT = 6
    BEAT = 7
    HOLD = 8
    RELEASE = 9
    SAID = 10
    ANSWERED = 11


class BadFrame(Exception):
    """The other side's mistake, in words."""


class LinkPlace(NamedTuple):
    """How far one end has come with what the other publishes."""

    #: Of the other end.
    term: int
    #: The last publication that came, and the last that is stored or need not be.
    received: int
    applied: int


NOWHERE: Final = LinkPlace(0, 0, 0)


class LinkHello(NamedTuple):
    """The first frame of either end. A shard has another term each time that it begins."""

    shard: int
    term: int
    #: What it takes before it says CREDIT, in bytes of memory.
    credit: int
    place: LinkPlace = NOWHERE


class LinkRoute(NamedTuple):
    """What sessions of a shard want of one topic filter, all together."""

    #: The highest QoS.
    qos: int
    #: Whether something of it is stored there.
    durable: bool = False
    #: Members of a shared group.
    online: int = 0
    offline: int = 0
    #: Whether a stream takes it, which may refuse some.
    in_stream: bool = False


class RouteChanges(NamedTuple):
    """Routes that were made, changed, or removed, which is None. All of them come in one or several frames, the first
    of which begins anew."""

    number: int
    begins: bool
    ends: bool
    changes: Mapping[str, LinkRoute | None]


class RoutesUsed(NamedTuple):
    """Up to this number, routes are in use."""

    number: int


class BurstFrame(NamedTuple):
    number: int
    #: Publications of one turn.
    burst: bytes | memoryview
    #: Bytes of memory that they take beyond these.
    overhead: int = 0
    #: Whether its sender keeps it until `BurstsStored` says that it is there.
    is_kept: bool = True

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return len(self.burst) + self.overhead


class BurstsStored(NamedTuple):
    """Up to this number, publications are stored, or need not be."""

    number: int


class LinkCredit(NamedTuple):
    """So many bytes of memory, of publications, have been worked off since the link is up."""

    total: int


class LinkBeat(NamedTuple):
    """Says that its sender is there."""


class HoldPublisher(NamedTuple):
    """A subscriber reads more slowly than this publisher sends: read no more from it. Nothing answers: a publisher that
    has waited enough goes on."""

    client_id: str
    #: The subscriber, by a number of its shard's own.
    holder: int
    #: It caught up the last time.
    is_trusted: bool


class ReleasePublisher(NamedTuple):
    """It has caught up, or waited in vain for so many seconds. What was held on a connection ends with it."""

    client_id: str
    holder: int
    in_vain: float


class Said(NamedTuple):
    """What a part of a shard has to say to the same part of the other. It is lost with the connection."""

    subject: str
    #: `ShardAnswer` with this number is to follow; 0: nothing is.
    request: int
    #: A plain value.
    content: Any


class ShardAnswer(NamedTuple):
    request: int
    #: A plain value; None where nobody knows an answer.
    content: Any


#: What is lost with a connection, and needs no credit: little, or seldom.
Word: TypeAlias = HoldPublisher | ReleasePublisher | Said | ShardAnswer
ControlFrame: TypeAlias = LinkHello | RouteChanges | RoutesUsed | BurstsStored | LinkCredit | LinkBeat | Word
LinkFrame: TypeAlias = ControlFrame | BurstFrame


def encode(frame: LinkFrame) -> tuple[bytes, bytes | memoryview]:
    """Head and body: a burst is long, and is not copied."""
    if isinstance(frame, BurstFrame):
        size = 1 + _BURST.size + len(frame.burst)
        return _BURST_HEAD.pack(size, FrameKind.PUBLISH, frame.number, frame.overhead, frame.is_kept), frame.burst
    kind, body = _written(frame)
    return HEAD.pack(len(body) + 1, kind), body


def _written(frame: ControlFrame) -> tuple[FrameKind, bytes]:
    match frame:
        case LinkHello():
            return FrameKind.HELLO, pack((FORMAT, *frame))
        case RouteChanges(number, begins, ends, changes):
            plain = [(filter, None if route is None else tuple(route)) for filter, route in changes.items()]
            return FrameKind.ROUTES, pack((number, begins, ends, plain))
        case LinkBeat():
            return FrameKind.BEAT, b""
        case RoutesUsed(number):
            return FrameKind.ROUTED, _NUMBER.pack(number)
        case BurstsStored(number):
            return FrameKind.ACK, _NUMBER.pack(number)
        case LinkCredit(total):
            return FrameKind.CREDIT, _NUMBER.pack(total)
        case HoldPublisher():
            return FrameKind.HOLD, pack(tuple(frame))
        case ReleasePublisher():
            return FrameKind.RELEASE, pack(tuple(frame))
        case Said():
            return FrameKind.SAID, pack(tuple(frame))
        case ShardAnswer():
            return FrameKind.ANSWERED, pack(tuple(frame))


def decode(kind: int, body: memoryview) -> LinkFrame:
    """
    Raises:
        BadFrame: it is none.
    """
    read = _READERS.get(kind)
    if read is None:
        raise BadFrame(f"no frame has the kind {kind}")
    try:
        return read(body)
    except BadFrame:
        raise
    except Exception as error:
        raise BadFrame(f"no {FrameKind(kind).name}: {bytes(body[:40])!r}") from error


def _hello(body: memoryview) -> LinkHello:
    spoken, *rest = unpack(body)
    if spoken != FORMAT:
        raise BadFrame(f"the other shard speaks the format {spoken!r:.40}, and this one {FORMAT}")
    shard, term, credit, place = rest
    return LinkHello(_natural(shard), _natural(term), _natural(credit), LinkPlace(*map(_natural, place)))


def _routes(body: memoryview) -> RouteChanges:
    number, begins, ends, plain = unpack(body)
    changes = {_text(filter): None if route is None else _route(route) for filter, route in plain}
    return RouteChanges(_natural(number), bool(begins), bool(ends), changes)


def _route(plain: Sequence[Any]) -> LinkRoute:
    qos, durable, online, offline, in_stream = plain
    if qos not in (0, 1, 2):
        raise BadFrame(f"no QoS: {qos!r:.40}")
    return LinkRoute(qos, bool(durable), _natural(online), _natural(offline), bool(in_stream))


def _published(body: memoryview) -> BurstFrame:
    number, overhead, is_kept = _BURST.unpack_from(body)
    return BurstFrame(number, body[_BURST.size :], overhead, is_kept)


def _beat(body: memoryview) -> LinkBeat:
    if body:
        raise BadFrame("a BEAT says nothing")
    return LinkBeat()


def _hold(body: memoryview) -> HoldPublisher:
    client_id, holder, is_trusted = unpack(body)
    return HoldPublisher(_text(client_id), _natural(holder), bool(is_trusted))


def _release(body: memoryview) -> ReleasePublisher:
    client_id, holder, in_vain = unpack(body)
    return ReleasePublisher(_text(client_id), _natural(holder), float(in_vain))


def _said(body: memoryview) -> Said:
    subject, request, content = unpack(body)
    return Said(_text(subject), _natural(request), content)


def _answered(body: memoryview) -> ShardAnswer:
    request, content = unpack(body)
    return ShardAnswer(_natural(request), content)


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise BadFrame(f"no number: {value!r:.40}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise BadFrame(f"no text: {value!r:.40}")
    return value


_READERS: Final[Mapping[int, Callable[[memoryview], LinkFrame]]] = {
    FrameKind.HELLO: _hello,
    FrameKind.ROUTES: _routes,
    FrameKind.ROUTED: lambda body: RoutesUsed(*_NUMBER.unpack(body)),
    FrameKind.PUBLISH: _published,
    FrameKind.ACK: lambda body: BurstsStored(*_NUMBER.unpack(body)),
    FrameKind.CREDIT: lambda body: LinkCredit(*_NUMBER.unpack(body)),
    FrameKind.BEAT: _beat,
    FrameKind.HOLD: _hold,
    FrameKind.RELEASE: _release,
    FrameKind.SAID: _said,
    FrameKind.ANSWERED: _answered,
}
