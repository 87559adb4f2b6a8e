"""Connections between shards, with all that becomes of connections: they are slow, stall, and are cut, which one end
notices before the other."""

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Protocol

from tests.broker.shards.agenda import Agenda
from trunkline.broker.shards.peer import Peer
from trunkline.broker.shards.place import OwnShard

#: Seconds that bytes are on their way at most, and until the end of a connection is noticed.
LATENCY = 0.03
NOTICE = 0.5


class LinkedShard(Protocol):
    number: int
    is_alive: bool
    own: OwnShard


class SimulatedCable:
    """Bytes arrive in order, in any pieces."""

    def __init__(
        self,
        dialer: LinkedShard,
        acceptor: LinkedShard,
        agenda: Agenda,
        random: Random,
        redial: Callable[[], None],
    ) -> None:
        """`redial` is called when the dialer knows that it is over."""
        self._agenda = agenda
        self._random = random
        self._dialer, self._acceptor = dialer, acceptor
        self._redial = redial
        self.is_cut = False
        #: What is on its way is lost, too.
        self._is_dropping = False
        #: Ends that know of it, and those that know that it is over.
        self._opened = set[int]()
        self._over = set[int]()
        #: By the end that it goes to: when the last bytes arrive, and until when nothing does.
        self._last = {dialer.number: 0.0, acceptor.number: 0.0}
        self._stalled = {dialer.number: 0.0, acceptor.number: 0.0}
        self._slow_until = 0.0
        #: Since when it does all that a connection should.
        self.healthy_since = inf
        accepted_at = agenda.now + random.random() * LATENCY
        self._last[acceptor.number] = accepted_at  # what comes before waits in its socket
        self._open(dialer)
        agenda.at(accepted_at, self._accept)

    def __repr__(self) -> str:
        return f"{self._dialer.number}-{self._acceptor.number}"

    def _accept(self) -> None:
        if not self.is_cut and self._acceptor.is_alive:
            self._open(self._acceptor)
            self.healthy_since = max(self._agenda.now, self._slow_until, *self._stalled.values())

    def _open(self, end: LinkedShard) -> None:
        self._opened.add(end.number)
        self._tell(end, lambda peer: peer.connected(partial(self._send, end), partial(self._closed, end)))

    def _tell(self, end: LinkedShard, what: Callable[[Peer], None]) -> None:
        with end.own.net.scheduler.turn:
            what(end.own.peers[self._other(end).number])

    def _other(self, end: LinkedShard) -> LinkedShard:
        return self._acceptor if end is self._dialer else self._dialer

    def _send(self, end: LinkedShard, data: bytes) -> None:
        if self.is_cut:
            return
        far = self._other(end).number
        now, latency = self._agenda.now, self._random.random() * LATENCY
        latency *= 30 if now < self._slow_until else 1
        cuts = sorted([self._random.randrange(len(data) + 1) for _ in range(self._random.randrange(3))])
        for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if first < last:
                arrival = max(now + latency, self._stalled[far], self._last[far] + 1e-6)
                self._last[far] = arrival
                self._agenda.at(arrival, partial(self._arrive, self._other(end), data[first:last]))

    def _arrive(self, far: LinkedShard, data: bytes) -> None:
        if far.is_alive and far.number in self._opened and far.number not in self._over and not self._is_dropping:
            self._tell(far, lambda peer: peer.received(data))

    def _closed(self, end: LinkedShard) -> None:
        """The end has closed it itself."""
        self._over.add(end.number)
        if end is self._dialer:
            self._redial()
        self.cut(dropping=self._random.random() < 0.5)

    def cut(self, *, dropping: bool) -> None:
        if self.is_cut:
            return
        self.is_cut, self._is_dropping = True, dropping
        self.healthy_since = inf
        for end in (self._dialer, self._acceptor):
            at = self._agenda.now + self._random.random() * NOTICE
            self._agenda.at(max(at, 0.0 if dropping else self._last[end.number] + 1e-6), partial(self._notice, end))

    def _notice(self, end: LinkedShard) -> None:
        if end.number in self._over:
            return
        self._over.add(end.number)
        if end.is_alive and end.number in self._opened:
            self._tell(end, lambda peer: peer.lost())
        if end is self._dialer:
            self._redial()

    def stall(self, seconds: float, *, both: bool) -> None:
        until = self._agenda.now + seconds
        for end in (self._dialer, self._acceptor)[: 1 + both]:
            self._stalled[end.number] = max(until, self._stalled[end.number])
        self._ail(until)

    def slow(self, seconds: float) -> None:
        self._slow_until = self._agenda.now + seconds
        self._ail(self._slow_until + 30 * LATENCY)

    def _ail(self, until: float) -> None:
        if self.healthy_since < inf:
            self.healthy_since = max(self.healthy_since, until)

    def heal(self) -> None:
        """From now on it does what it should."""
        self._stalled = dict.fromkeys(self._stalled, 0.0)
        self._slow_until = 0.0
