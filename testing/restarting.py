"""Restarts of a broker: one life after the other, on the same port, with the kept state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from trunkline.actors.exits import innermost
from trunkline.broker.node.opening import open_node
from trunkline.config.store_place import store_path
from trunkline.testing.meeting import Meeting
from trunkline.testing.whole import Whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from trunkline.broker.node.admin import Admin, ControlSocket, Kept
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import Network
    from trunkline.testing.joined_shards import JoinedShards


class _Life:
    """Of all shards, from their start to their end."""

    def __init__(self, shards: int, ready: Callable[[Whole], None], kept: dict[int, Kept]) -> None:
        """`ready` is called when all shards are there, before clients can connect."""
        self._count = shards
        self._ready = ready
        #: What the shards of the life before have left.
        self.kept = kept
        self._found: dict[int, Admin] = {}
        self.whole: Whole
        #: All but the first serve clients.
        self.others_serve = trio.Event()
        self._waited_for = shards - 1
        self.over = trio.Event()
        self.gone = trio.Event()
        self._left = shards
        self.meeting = Meeting(shards)

    def found(self, number: int, shard: Admin) -> None:
        self._found[number] = shard
        if len(self._found) == self._count:
            self.whole = Whole([self._found[each] for each in range(self._count)])
            self._ready(self.whole)

    def serves(self, number: int) -> None:
        if number:
            self._waited_for -= 1
        if not self._waited_for:
            self.others_serve.set()

    def has_ended(self) -> None:
        self.meeting.leave()
        self._left -= 1
        if not self._left:
            self.gone.set()


class Lives:
    """The lives of one broker."""

    def __init__(
        self,
        config: Config,
        hooks: Sequence[Hooks],
        grace: float,
        network: Network,
        prepare: Callable[[Whole], None],
        nursery: trio.Nursery,
        shards: JoinedShards | None,
    ) -> None:
        """`hooks` are those of each shard. `prepare` is called in each life before clients can connect. `shards` is
        None for a broker of one."""
        self._prepare = prepare
        self._config = config
        self._hooks = hooks
        self._grace = grace
        self._network = network
        self._nursery = nursery
        self._shards = shards
        self._lock = trio.Lock()
        self._life: _Life

    @property
    def whole(self) -> Whole:
        return self._life.whole

    async def begin(self, kept: dict[int, Kept] | None = None) -> None:
        """
        Raises:
            ListenError: an address cannot be listened on.
            SecurityError: a password or access rule file cannot be used.
        """
        self._life = life = _Life(len(self._hooks), self._ready, kept or {})
        if self._shards is None:
            await self._nursery.start(self._live, life, 0)
            return
        async with trio.open_nursery() as beginning:  # at once: each waits for what the others want
            for number in range(self._shards.count):
                beginning.start_soon(self._nursery.start, self._live, life, number)

    def _ready(self, whole: Whole) -> None:
        self._network.attach(whole)
        self._prepare(whole)

    async def _live(
        self, life: _Life, number: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        config, place = self._config, None
        try:
            if self._shards is not None:
                config = self._shards.configured(config, number)
                place = self._shards.place(number, life.others_serve, life.meeting.wait)
            async with open_node(
                config,
                self._hooks[number],
                self._grace,
                [self._network.layer],
                partial(life.found, number),
                open_control=_open_control,
                adopt=life.kept.get(number),
                place=place,
            ) as shard:
                if self._shards is not None:
                    shard.ending.steps = partial(self._end_together, life, shard)
                life.serves(number)
                task_status.started()
                await life.over.wait()
        finally:
            life.has_ended()

    async def restart(
        self,
        *,
        keep_sessions: bool = True,
        keep_retained: bool = True,
        graceful: bool = False,
        power_cut: bool = False,
    ) -> None:
        """End the broker like a killed process, and start a new one on the same port, with the same hooks and
        configured plugins.

        Sessions are kept as after an end of their connections: wills wait for their delay, and are published by the new
        one. `graceful` disconnects clients first (0x8B to 5.0 clients), publishes all wills, and calls the hooks of an
        end. `power_cut`: what the store does not have at this moment is lost.

        Raises:
            ListenError: another process has taken the port.
            SecurityError: a password or access rule file cannot be used any more.
            ValueError: the broker has a store, which keeps sessions and retained messages or neither; or a power cut
                without a store, or one that is graceful.
        """
        async with self._lock:
            life = self._life
            first = life.whole.first
            if first.has_store and keep_sessions != keep_retained:
                raise ValueError("a broker with a store keeps sessions and retained messages, or neither")
            if power_cut and (graceful or not first.has_store):
                raise ValueError("a power cut is for a broker with a store, and has no grace")
            kept: dict[int, Kept] = {}

            async def last_step(number: int, shard: Admin) -> None:
                ending = shard.ending
                if power_cut:
                    ending.cut_power()
                if shard is first:
                    self._network.freeze(graceful=graceful, keeps_sessions=keep_sessions, keeps_retained=keep_retained)
                await (ending.stop_accepting() if graceful else ending.stop_at_once())
                await life.meeting.wait()
                kept[number] = shard.kept(sessions=keep_sessions, retained=keep_retained)
                if graceful:
                    await self._end_together(life, shard)
                    return
                if not power_cut:
                    await ending.store_all()
                ending.vanish()
                await life.meeting.wait()
                self._part()
                if shard is first:
                    self._network.cut()

            for number, shard in enumerate(life.whole.shards):
                shard.ending.steps = partial(last_step, number, shard)
            life.over.set()
            await life.gone.wait()
            if first.has_store and not keep_sessions:
                for shard in life.whole.shards:
                    _delete_store(shard.config)
            self._config = at_same_port(self._config, first)
            await self.begin(kept)

    async def _end_together(self, life: _Life, shard: Admin) -> None:
        """What the others still say to clients goes through the first, which has their connections."""
        await shard.ending.disconnect_clients()
        await life.meeting.wait()
        self._part()

    def _part(self) -> None:
        if self._shards is not None:
            self._shards.links.part_silently()


def _delete_store(config: Config) -> None:
    path = store_path(config.store, config.node)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _at_port(settings: ListenerSettings, port: int) -> ListenerSettings:
    if settings.port or settings.address.scheme == "unix":
        return settings
    parts = urlsplit(settings.url)
    url = parts._replace(netloc=f"{parts.netloc.removesuffix(':0')}:{port}").geturl()
    return settings.model_copy(update={"url": url, "name": settings.label})


def at_same_port(config: Config, node: Admin) -> Config:
    """Ports that the system chose become fixed."""
    fixed = [_at_port(listening.settings, listening.address[1]) for listening in node.listeners]
    return config.model_copy(update={"listeners": tuple(fixed)})


@asynccontextmanager
async def living(
    config: Config,
    hooks: Sequence[Hooks],
    grace: float,
    network: Network,
    prepare: Callable[[Whole], None],
    shards: JoinedShards | None = None,
) -> AsyncGenerator[Lives, None]:
    """Run a broker that can be restarted, for the length of a block. See `open_node` and `Lives`."""
    try:
        async with trio.open_nursery() as nursery:
            lives = Lives(config, hooks, grace, network, prepare, nursery, shards)
            await lives.begin()
            try:
                yield lives
            finally:
                network.end()
                if shards is not None:
                    shards.links.mend_all()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None


async def _open_control(node: Admin, required: bool) -> ControlSocket | None:
    from trunkline.management.control import open_control  # few tests ask for one

    return await open_control(node, required)
