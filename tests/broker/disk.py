"""A disk that outlives brokers, and the end of a broker that a power cut is: at a commit, before it or after it."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import trio
from trio.testing import MockClock, memory_stream_pair

from tests.broker.inside import inside
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.committer import MAX_RETRY, CommitState
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.opening import open_node
from trunkline.broker.shards.place import ShardPlace
from trunkline.config.reader import from_mapping
from trunkline.hooks import Hooks
from trunkline.store import Engine, StoreFull, StoreUnavailable, WriteBatch
from trunkline.store.memory import MemoryEngine


class Disk:
    def __init__(self, make: Callable[[], Engine] = MemoryEngine) -> None:
        self.engine = make()

    @asynccontextmanager
    async def broker(
        self,
        cut_at: int | None = None,
        *,
        applied: bool = False,
        hooks: Hooks | None = None,
        standalone: bool = False,
        stops: bool = False,
        place: ShardPlace | None = None,
        **settings: Any,
    ) -> AsyncIterator["Life"]:
        """A broker on this disk. The power fails at its commit number `cut_at`, counted from 0, before it is `applied`
        or after; at the end of the block if there is no number, unless the broker `stops` in order. It may have a
        `place` among shards. A `standalone` one asks the system's clock."""
        face = _Face(self.engine, cut_at, applied)
        config = from_mapping({"listeners": [], "sys": {"interval": 0}, **settings})
        try:
            read = (lambda: config) if standalone else None
            open_store = None if config.durability(standalone=True) == "memory" else lambda: face
            async with open_node(config, hooks, grace=0, read=read, open_store=open_store, place=place) as admin:
                life = Life(admin, face)
                try:
                    yield life
                finally:
                    if not stops:
                        life.cut()
                    for wire in life.wires:
                        await wire.abort()
        finally:
            face.over.set()


class Life:
    """One broker."""

    def __init__(self, admin: Admin, face: "_Face") -> None:
        self.admin = admin
        self.node = inside(admin)
        self.wires: list[Wire] = []
        self._face = face
        #: Is set when the power fails.
        self.cut_off = face.cut_off

    @property
    def commits(self) -> int:
        """So far."""
        return self._face.commits

    def cut(self) -> None:
        """The power fails."""
        self._face.is_cut = True
        self._face.over.set()

    def cut_in(self, commits: int, *, applied: bool) -> None:
        """The power fails at a later commit, before so many others."""
        self._face.cut_at, self._face.applied = self._face.commits + commits, applied

    def fill(self, room: float = 0) -> None:
        """The disk takes no more than so many bytes."""
        self._face.room = room

    def free(self) -> None:
        """The disk has room again."""
        self._face.room = inf

    @asynccontextmanager
    async def full(self, clock: MockClock) -> AsyncIterator[None]:
        """The disk takes nothing until the end of the block, and all that waited for it then."""
        self.fill()
        yield
        await self.make_room(clock)

    async def make_room(self, clock: MockClock) -> None:
        """The disk has room again, and what it has refused is tried again."""
        await self.rests()
        self.free()
        clock.jump(MAX_RETRY)

    async def rests(self) -> None:
        """No commit runs: whoever jumps while one does jumps too early, as its thread knows of no clock."""
        committer = self.node.services.committer
        assert committer is not None
        while committer.state is CommitState.RUNNING:
            await trio.lowlevel.checkpoint()

    async def wire(self, version: int = 5) -> Wire:
        here, there = memory_stream_pair()
        self.admin.serve(there)
        wire = Wire(here, version=version, patience=10)
        self.wires.append(wire)
        return wire

    async def stay(self, client_id: str, expiry: int = 1000, **settings: Any) -> tuple[Wire, bool]:
        """A client with a durable session, and whether it was there."""
        wire = await self.wire()
        connack = await wire.connect(client_id, clean=False, properties=raw.session_expiry(expiry), **settings)
        return wire, connack.session_present


class _Face:
    """What a broker has of the engine until the power fails."""

    def __init__(self, engine: Engine, cut_at: int | None, applied: bool) -> None:
        self._engine = engine
        self.cut_at = cut_at
        self.applied = applied
        self.is_cut = False
        self.room = inf
        self.cut_off = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self.over = threading.Event()
        self.commits = 0

    def commit(self, batch: WriteBatch) -> None:
        if self.commits == self.cut_at and not self.is_cut:
            if self.applied:
                self._engine.commit(batch)
            self.is_cut = True
            self._token.run_sync_soon(self.cut_off.set)
            self.over.wait()  # nobody hears of it
        if self.is_cut:
            raise StoreUnavailable("the power has failed")
        batch.weigh()
        if batch.weight > self.room:
            raise StoreFull("the disk is full")
        self._engine.commit(batch)
        self.room -= batch.weight
        self.commits += 1

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
