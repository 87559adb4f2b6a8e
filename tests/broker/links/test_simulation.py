"""Two ends of a link in a world in which a seed decides what happens next: connections are cut, bytes come in any
pieces, and either end is killed at any step, and goes on from what it has stored."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from trunkline.broker.links import route_table
from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import NOWHERE, LinkPlace, LinkRoute
from trunkline.broker.links.link import BurstCame, LinkEnd, LinkState, RoutesChanged

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS = 400
CREDIT = 60
FILTERS = "abcdef"


@dataclass
class Disk:
    """What outlives a process."""

    place: LinkPlace = NOWHERE
    messages: list[bytes] = field(default_factory=list[bytes])


class End:
    """A shard, as far as a link is concerned."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.term = 0
        self.disk = Disk()
        #: What its clients were told: the other end has it.
        self.acknowledged: list[bytes] = []
        self.start()

    def start(self) -> None:
        """A new process."""
        self.term += 1
        self.link = LinkEnd(self.number, self.term, 3 - self.number, self.disk.place, credit=CREDIT)
        #: What came and is not stored.
        self.unstored: deque[BurstCame] = deque()
        self.wanted: dict[str, LinkRoute] = {}
        self.there: dict[str, LinkRoute] = {}
        #: When the route of a filter was changed last.
        self.changed: dict[str, int] = {}
        self.changes = 0
        self.sent = 0
        self.to_work_off = 0

    def publish(self, *, kept: bool) -> None:
        self.sent += 1
        burst = b"%d.%d.%d.%s" % (self.number, self.term, self.sent, b"x" * self.world.random.randrange(30))
        stored = (lambda: self.acknowledged.append(burst)) if kept else None
        self.link.publish(burst, stored, overhead=self.world.random.randrange(20))

    def subscribe(self) -> None:
        filter = self.world.random.choice(FILTERS)
        route = self.world.random.choice((None, LinkRoute(0), LinkRoute(1, durable=True)))
        self.link.set_route(filter, route)
        self.changes += 1
        self.changed[filter] = version = self.changes
        self.wanted.pop(filter, None)
        if route is not None:
            self.wanted[filter] = route
            self.link.when_routed(lambda: self._routed(filter, route, version))

    def _routed(self, filter: str, route: LinkRoute, version: int) -> None:
        other = self.world.other(self)
        if self.link.state is LinkState.UP and self.changed[filter] == version:
            self.world.grants += 1
            assert other.there.get(filter) == route, "the client was told, and the other shard does not know"

    def receive(self, data: bytes) -> None:
        frames = self.decoder.feed(data)
        if self.decoder.error is not None:
            raise self.decoder.error
        events = self.link.receive(frames, self.world.now)
        assert self.link.error is None
        for event in events:
            match event:
                case BurstCame():
                    self.unstored.append(event)
                    self.to_work_off += event.weight
                case RoutesChanged(number, changes):
                    self._change(changes)
                    self.link.routed(number)
                case _:
                    pass
        assert self.to_work_off <= 2 * (CREDIT + 70), "more is on its way than may be"

    def _change(self, changes: Mapping[str, LinkRoute | None]) -> None:
        for filter, route in changes.items():
            assert self.there.get(filter) != route
            if route is None:
                del self.there[filter]
            else:
                self.there[filter] = route

    def commit(self) -> None:
        """What came is stored together with the place, and the other end is told afterwards."""
        if self.unstored:
            self.disk.messages += [bytes(burst.data) for burst in self.unstored]
            term, number, *_ = self.unstored[-1]
            self.disk.place = LinkPlace(term, number, number)
            self.unstored.clear()
            self.link.applied(term, number)

    def work_off(self) -> None:
        self.link.worked_off(self.to_work_off)
        self.to_work_off = 0


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.is_connected = False
        #: Bytes on their way to each end.
        self.pipes: dict[End, bytearray] = {}
        self.ends = [End(self, 1), End(self, 2)]
        #: Clients that were told that both ends know what they want.
        self.grants = 0
        self.refused = 0

    def other(self, end: End) -> End:
        return self.ends[2 - end.number]

    def connect(self) -> None:
        self.cut()
        self.is_connected = True
        for end in self.ends:
            self.pipes[end] = bytearray()
            end.decoder = FrameDecoder()
            end.link.connect(self.now)

    def cut(self) -> None:
        self.is_connected = False
        for end in self.ends:
            end.link.lose()
            end.to_work_off = 0  # of a connection that is over

    def kill(self, end: End) -> None:
        self.cut()
        end.start()

    def flow(self, end: End, size: int) -> None:
        """So many bytes reach an end."""
        pipe = self.pipes[end]
        data = bytes(pipe[:size])
        del pipe[:size]
        if data:
            end.receive(data)

    def write(self, end: End) -> None:
        data = end.link.take_output(self.now)
        if self.is_connected:
            self.pipes[self.other(end)] += data
        else:
            assert not data

    def step(self) -> None:
        random = self.random
        end = random.choice(self.ends)
        what = random.random()
        if what < 0.25:
            end.publish(kept=random.random() < 0.7)
        elif what < 0.33:
            end.subscribe()
        elif what < 0.5:
            self.write(end)
        elif what < 0.75 and self.is_connected:
            self.flow(end, random.randrange(1, 80))
        elif what < 0.85:
            end.commit()
        elif what < 0.93:
            end.work_off()
        elif what < 0.96:
            self.connect() if not self.is_connected or random.random() < 0.2 else None
        elif what < 0.98:
            self.cut()
        elif what < 0.99:
            self.now += random.random() * 2
        elif what < 0.994:
            self.kill(end)
        self.check()

    def settle(self) -> None:
        """No more trouble: everything comes where it belongs."""
        self.connect()
        for _ in range(400):
            for end in self.ends:
                self.write(end)
                self.flow(end, 1 << 20)
                end.commit()
                end.work_off()
            self.check()

    def check(self) -> None:
        for end in self.ends:
            stored = self.other(end).disk.messages
            assert len(set(stored)) == len(stored), "a message was stored twice"

    def check_end(self) -> None:
        for end in self.ends:
            other = self.other(end)
            stored = other.disk.messages
            assert set(end.acknowledged) <= set(stored), "acknowledged and not there"
            places = [tuple(map(int, burst.split(b".")[1:3])) for burst in stored]
            assert places == sorted(places), "out of order"
            assert end.link.weight == 0, "something is kept that nobody waits for"
            assert end.link.ahead < CREDIT // 4 + 70, "what is worked off is known but for less than a quarter"
            assert other.there == end.wanted
            assert end.link.state is LinkState.UP


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check_end()
    return world


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_nothing_is_lost_or_doubled(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "FILTERS_AT_ONCE", 2)
    for seed in range(first, first + 100):
        try:
            run(seed)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_simulation_does_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are acknowledged, lost with processes, and sent again."""
    monkeypatch.setattr(route_table, "FILTERS_AT_ONCE", 2)
    worlds = [run(seed) for seed in range(100)]
    ends = [end for world in worlds for end in world.ends]
    assert sum(len(end.acknowledged) for end in ends) > 2000
    assert sum(end.term > 1 for end in ends) > 50
    assert sum(world.grants for world in worlds) > 80
    assert sum(end.link.lost for end in ends) > 500
