"""Restarts of a broker: one node after the other, on the same port, with the kept state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from copy import copy
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import trio

from trunkline.actors.system import innermost
from trunkline.broker.alive_note import ALIVE, NODE
from trunkline.broker.committer import Committer
from trunkline.broker.node import Node, open_node
from trunkline.broker.session.durable import StoredQueue, make_durable
from trunkline.broker.session.recovery import Recovery
from trunkline.broker.session.stored_sessions import find
from trunkline.broker.session.stored_window import StoredAwaitingRel, StoredWindow
from trunkline.broker.stored_retained import RETAINED, retained_to_bytes
from trunkline.config.store_place import store_path
from trunkline.mqtt.packing import pack
from trunkline.plugins.store import PLUGINS
from trunkline.store import WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trunkline.broker.node import ControlSocket
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import Network


class Kept:
    """The state that outlives a node without a store: as a store would have it."""

    def __init__(self, node: Node, *, sessions: bool, retained: bool) -> None:
        #: It does not go back.
        self._clock = node.services.clock
        self._engine = MemoryEngine()
        if node.storing is None:
            batch = WriteBatch()
            if sessions:
                _write_sessions(node, batch)
                for key, value in node.plugin_stores.rows():
                    batch.put(PLUGINS, key, value)
            for each in node.retained if retained else ():
                batch.put(RETAINED, each.message.topic.encode(), retained_to_bytes(each, self._clock.epoch))
            self._engine.commit(batch)

    def bring_into(self, node: Node) -> None:
        """Before plugins start, and so before clients can connect."""
        services = node.services
        services.clock.follow(self._clock)
        node.plugin_stores.restore(rows(self._engine, PLUGINS))
        services.pubsub.restore_retained(rows(self._engine, RETAINED), self._clock.epoch)
        now = trio.current_time()
        self._recovery = Recovery(find(self._engine), node.sessions, node.router, self._clock.epoch, now)
        for _ in self._recovery.restore():
            pass

    def go_on(self, node: Node) -> None:
        """What the sessions have waited for may happen."""
        self._recovery.go_on(node.scheduler)


def _write_sessions(node: Node, batch: WriteBatch) -> None:
    clock = node.services.clock
    committer = Committer(_NoWriter(), node.scheduler, node.alarms, clock, inf, 0)
    committer.stop()  # the batch is all that is written
    for number, actor in enumerate(node.sessions, 1):
        session = copy(actor.session)
        window, awaiting_rel = StoredWindow(committer, number, maxsize, 0), StoredAwaitingRel(committer, number, 0, 0)
        queue = StoredQueue(committer, max_length=0)
        make_durable(session, committer, number, window, queue, awaiting_rel).changed()
    committer.write(batch)
    note = clock.note(trio.current_time())
    batch.put(NODE, ALIVE, pack((note.stored, committer.publications.number, note.calendar)))


class _NoWriter:
    """What is written goes into a batch of its own."""

    commit: Any = None
    read: Any = None


class Lives:
    """The nodes of one broker."""

    def __init__(
        self,
        config: Config,
        hooks: Hooks | None,
        grace: float,
        network: Network,
        prepare: Callable[[Node], None],
        nursery: trio.Nursery,
    ) -> None:
        """`prepare` is called with each node before clients can connect to it."""
        self._prepare = prepare
        self._config = config
        self._hooks = hooks
        self._grace = grace
        self._network = network
        self._nursery = nursery
        self._lock = trio.Lock()
        #: The running node, and the scope that ends it.
        self.node: Node
        self._over: trio.Event
        self._gone: trio.Event

    async def begin(self, kept: Kept | None = None) -> None:
        """
        Raises:
            ListenError: an address cannot be listened on.
            SecurityError: a password or access rule file cannot be used.
        """
        await self._nursery.start(self._live, kept)

    async def _live(self, kept: Kept | None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        def ready(node: Node) -> None:
            self._network.attach(node)
            self._prepare(node)
            if kept is not None:
                kept.go_on(node)

        over, gone = trio.Event(), trio.Event()
        try:
            async with open_node(
                self._config,
                self._hooks,
                self._grace,
                [self._network.layer],
                ready,
                open_control=_open_control,
                adopt=None if kept is None else kept.bring_into,
            ) as node:
                self.node, self._over, self._gone = node, over, gone
                self._hooks = node.hooks
                task_status.started()
                await over.wait()
        finally:
            gone.set()

    async def restart(
        self,
        *,
        keep_sessions: bool = True,
        keep_retained: bool = True,
        graceful: bool = False,
        power_cut: bool = False,
    ) -> None:
        """End the node like a killed process, and start a new one on the same port, with the same hooks and configured
        plugins.

        Sessions are kept as after an end of their connections: wills wait for their delay, and are published by the new
        node. `graceful` disconnects clients first (0x8B to 5.0 clients), publishes all wills, and calls the hooks of an
        end. `power_cut`: what the store does not have at this moment is lost.

        Raises:
            ListenError: another process has taken the port.
            SecurityError: a password or access rule file cannot be used any more.
            ValueError: the broker has a store, which keeps sessions and retained messages or neither; or a power cut
                without a store, or one that is graceful.
        """
        async with self._lock:
            if self.node.storing is not None and keep_sessions != keep_retained:
                raise ValueError("a broker with a store keeps sessions and retained messages, or neither")
            if power_cut and (self.node.storing is None or graceful):
                raise ValueError("a power cut is for a broker with a store, and has no grace")
            node, kept = self.node, list[Kept]()

            async def last_step() -> None:
                if node.storing is not None and power_cut:
                    node.storing.cut_power()
                self._network.freeze(graceful=graceful, keeps_sessions=keep_sessions, keeps_retained=keep_retained)
                if graceful:
                    await node.stop_accepting()
                else:
                    node.listeners.close()
                    await node.quiet()
                kept.append(Kept(node, sessions=keep_sessions, retained=keep_retained))
                if graceful:
                    await node.disconnect_clients()
                else:
                    if node.storing is not None and not power_cut:
                        await node.storing.finish()  # what is not stored by now is lost
                    vanish(node, self._network)

            node.last_step = last_step
            self._over.set()
            await self._gone.wait()
            if node.storing is not None and not keep_sessions:
                _delete_store(self._config)
            self._config = at_same_port(self._config, node)
            await self.begin(kept[0])


def _delete_store(config: Config) -> None:
    path = store_path(config.store, config.node)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def vanish(node: Node, network: Network) -> None:
    """All connections are reset, and no session is notified, as when a process is killed."""
    for actor in node.sessions:
        actor.forget_connection()
    network.cut()


def _at_port(settings: ListenerSettings, port: int) -> ListenerSettings:
    if settings.port or settings.address.scheme == "unix":
        return settings
    parts = urlsplit(settings.url)
    url = parts._replace(netloc=f"{parts.netloc.removesuffix(':0')}:{port}").geturl()
    return settings.model_copy(update={"url": url, "name": settings.label})


def at_same_port(config: Config, node: Node) -> Config:
    """Ports that the system chose become fixed."""
    fixed = [_at_port(listening.settings, listening.address[1]) for listening in node.listeners]
    return config.model_copy(update={"listeners": tuple(fixed)})


@asynccontextmanager
async def living(
    config: Config, hooks: Hooks | None, grace: float, network: Network, prepare: Callable[[Node], None]
) -> AsyncGenerator[Lives, None]:
    """Run a broker that can be restarted, for the length of a block. See `open_node`; `prepare` is called for each
    node."""
    try:
        async with trio.open_nursery() as nursery:
            lives = Lives(config, hooks, grace, network, prepare, nursery)
            await lives.begin()
            try:
                yield lives
            finally:
                network.end()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None


async def _open_control(node: Node, required: bool) -> ControlSocket | None:
    from trunkline.management.control import open_control  # few tests ask for one

    return await open_control(node, required)
