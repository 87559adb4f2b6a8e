"""One end of a link, without I/O.

A publication that is kept comes to the other end exactly once, in order, whatever becomes of connections: each end
remembers how far it has come with the other, and says so at the beginning of the next connection. A shard that begins
anew has a higher term. What is not kept comes once at most.
"""

from __future__ import annotations

from enum import Enum
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from trunkline.broker.links.frames import (
    NOWHERE,
    BadFrame,
    BurstFrame,
    BurstsStored,
    LinkBeat,
    LinkCredit,
    LinkHello,
    LinkPlace,
    LinkRoute,
    RouteChanges,
    RoutesUsed,
    Word,
    encode,
)
from trunkline.broker.links.outgoing import OutgoingBursts
from trunkline.broker.links.route_table import KnownRoutes, ToldRoutes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trunkline.broker.links.frames import LinkFrame

#: Bytes of memory, of publications, that are taken before they are worked off, and that wait before publishers are
#: slowed. Less than the queue of one session may hold: what is under way comes there, too, when it asks publishers to
#: wait.
CREDIT: Final = 1 << 21
#: Seconds after which an end that has nothing to say says so, and after how many of these it is given up.
BEAT: Final = 1.0
BEATS: Final = 3


class LinkState(Enum):
    DOWN = "down"
    #: HELLO is sent, and that of the other end has not come.
    GREETING = "greeting"
    UP = "up"


class LinkUp(NamedTuple):
    """The ends know each other. `is_new`: it is another process of the other shard."""

    is_new: bool


class RoutesChanged(NamedTuple):
    """`LinkEnd.routed` with the number is to follow when they are in use."""

    number: int
    changes: Mapping[str, LinkRoute | None]
    #: Whether all that the other end wants is known now.
    is_whole: bool


class BurstCame(NamedTuple):
    """`LinkEnd.applied` is to follow with the term and the number when it is stored, or if it need not be; and
    `LinkEnd.worked_off` if it was on the connection that there is."""

    #: In which the other end has sent it.
    term: int
    number: int
    data: bytes | memoryview
    #: Bytes of memory.
    weight: int


#: What is to be done.
Event: TypeAlias = LinkUp | RoutesChanged | BurstCame | Word


class LinkEnd:
    def __init__(
        self,
        shard: int,
        term: int,
        peer: int,
        place: LinkPlace = NOWHERE,
        *,
        credit: int = CREDIT,
        beat: float = BEAT,
    ) -> None:
        """Of `shard` in its `term`, to the shard `peer`. `place` is what is stored of how far it has come with that."""
        self.shard = shard
        self.term = term
        self.peer = peer
        self.state = LinkState.DOWN
        #: What this end takes, and keeps back, before publishers are slowed.
        self.credit = credit
        self._beat = beat
        self._place = place._replace(received=place.applied)
        self._outgoing = OutgoingBursts()
        self._told = ToldRoutes()
        self._known = KnownRoutes()
        #: Control frames that wait.
        self._frames: list[LinkFrame] = []
        #: What the other end grants.
        self._granted = 0
        #: What was worked off of this connection, and what the other end knows of.
        self._worked_off = self._told_worked_off = 0
        #: The last burst that the other end keeps, and up to which number it knows that they are stored.
        self._kept = self._acked = 0
        self._heard_at = self._said_at = -inf
        #: What came on this connection and may not come: it is to be closed.
        self.error: BadFrame | None = None

    # What the shard wants of it

    @property
    def place(self) -> LinkPlace:
        """How far it has come with the other end."""
        return self._place

    @property
    def weight(self) -> int:
        """Bytes of memory that bursts take here."""
        return self._outgoing.weight

    @property
    def ahead(self) -> int:
        """Bytes of memory that the other end has still to work off."""
        return self._outgoing.ahead

    @property
    def lost(self) -> int:
        """Bursts that were not kept, and are lost."""
        return self._outgoing.lost

    def publish(self, burst: bytes, stored: Callable[[], None] | None = None, *, overhead: int = 0) -> None:
        """With `stored` it is kept until the other end has it, and then this is called. `overhead` is what its
        publications take in memory beyond these bytes."""
        if stored is None and self.state is not LinkState.UP:
            self._outgoing.lose()
        else:
            self._outgoing.add(burst, stored, overhead)

    def say(self, word: Word) -> None:
        """It is lost with the connection."""
        if self.state is LinkState.UP:
            self._frames.append(word)

    def set_route(self, filter: str, route: LinkRoute | None) -> None:
        """What sessions of this shard want of a filter; None: nothing any more."""
        self._told.set(filter, route)

    def when_routed(self, action: Callable[[], None]) -> None:
        """Call it when the other end uses the routes as they are now; at once, if there is none."""
        self._told.when_used(action)

    def routed(self, number: int) -> None:
        """The routes that came with this number are in use."""
        if self.state is LinkState.UP:
            self._frames.append(RoutesUsed(number))

    def applied(self, term: int, number: int) -> None:
        """Publications up to this one are stored, or need not be."""
        if term == self._place.term and number > self._place.applied:
            self._place = self._place._replace(applied=number)

    def worked_off(self, weight: int) -> None:
        """Of bursts of this connection."""
        self._worked_off += weight

    # Its connections

    def connect(self, now: float) -> None:
        """There is a connection. The one before, if there was one, is lost."""
        self.lose()
        self.state = LinkState.GREETING
        self.error = None
        self._heard_at = now
        self._frames.append(LinkHello(self.shard, self.term, self.credit, self._place))
        self._acked = self._place.applied

    def lose(self) -> None:
        """The connection is lost."""
        self.state = LinkState.DOWN
        self._frames.clear()
        self._worked_off = self._told_worked_off = 0
        self._outgoing.end()
        self._told.end()

    def receive(self, frames: Iterable[LinkFrame], now: float) -> list[Event]:
        """Never raises: see `error`. What came before that has come."""
        self._heard_at = now
        events: list[Event] = []
        try:
            for frame in frames:
                if self.state is LinkState.GREETING:
                    if not isinstance(frame, LinkHello):
                        raise BadFrame("the first frame is no HELLO")
                    events.append(self._greeted(frame))
                elif self.state is LinkState.UP:
                    self._take(frame, events)
        except BadFrame as error:
            self.error = error.with_traceback(None)
        return events

    def _greeted(self, hello: LinkHello) -> LinkUp:
        if hello.shard != self.peer:
            raise BadFrame(f"this is the shard {hello.shard}, and not {self.peer}")
        known = self._place.term
        if hello.term < known:
            raise BadFrame(f"the shard {self.peer} is in its term {hello.term}, and was in {known} already")
        if hello.term > known:
            self._place = LinkPlace(hello.term, 0, 0)
            self._kept = self._acked = 0
        theirs = hello.place
        if theirs.term > self.term:
            raise BadFrame(f"the shard {self.peer} knows the term {theirs.term} of this one, which is in {self.term}")
        if max(theirs.received, theirs.applied) > self._outgoing.number and theirs.term == self.term:
            raise BadFrame(f"the shard {self.peer} has more than was sent")
        self.state = LinkState.UP
        self._granted = hello.credit
        self._outgoing.begin(theirs if theirs.term == self.term else NOWHERE, hello.credit)
        self._told.begin()
        return LinkUp(hello.term > known)

    def _take(self, frame: LinkFrame, events: list[Event]) -> None:
        match frame:
            case BurstFrame(number, burst, _, is_kept):
                if is_kept:
                    self._kept = number
                if number > self._place.received:
                    self._place = self._place._replace(received=number)
                    events.append(BurstCame(self._place.term, number, burst, frame.weight))
                else:  # it came on the connection before
                    self.worked_off(frame.weight)
            case RouteChanges():
                changes = self._known.take(frame)
                events.append(RoutesChanged(frame.number, changes, self._known.is_whole))
            case BurstsStored(number):
                self._outgoing.acked(number)
            case LinkCredit(total):
                self._outgoing.worked_off(total, self._granted)
            case RoutesUsed(number):
                self._told.used(number)
            case LinkHello():
                raise BadFrame("a second HELLO")
            case LinkBeat():
                pass
            case _:
                events.append(frame)

    # What leaves

    def take_output(self, now: float) -> bytes:
        """All that may leave now, at the end of a turn."""
        frames, self._frames = self._frames, []
        if self.state is LinkState.UP:
            if self._acked < min(self._kept, self._place.applied):
                self._acked = self._place.applied
                frames.append(BurstsStored(self._acked))
            if self._worked_off - self._told_worked_off >= max(1, self.credit // 4):
                self._told_worked_off = self._worked_off
                frames.append(LinkCredit(self._worked_off))
            routes = self._told.take()
            if routes is not None:
                frames.append(routes)
            frames += self._outgoing.take()
        if not frames and self.state is not LinkState.DOWN and now >= self._said_at + self._beat:
            frames.append(LinkBeat())
        if frames:
            self._said_at = now
        return b"".join(chain.from_iterable(map(encode, frames)))

    @property
    def has_more(self) -> bool:
        """Whether there are routes left for another turn."""
        return self._told.has_more

    @property
    def next_due(self) -> float:
        """When something is to be said, or the other end to be given up."""
        return (
            inf
            if self.state is LinkState.DOWN
            else min(self._said_at + self._beat, self._heard_at + BEATS * self._beat)
        )

    def is_silent(self, now: float) -> bool:
        """Whether the other end is to be given up."""
        return self.state is not LinkState.DOWN and now >= self._heard_at + BEATS * self._beat
