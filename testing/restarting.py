"""Restarts of a broker: one node after the other, on the same port, with the kept state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from trunkline.actors.exits import innermost
from trunkline.broker.node.opening import open_node
from trunkline.config.store_place import store_path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trunkline.broker.node.admin import Admin, ControlSocket, Kept
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import Network


class Lives:
    """The nodes of one broker."""

    def __init__(
        self,
        config: Config,
        hooks: Hooks | None,
        grace: float,
        network: Network,
        prepare: Callable[[Admin], None],
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
        self.node: Admin
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
        def ready(node: Admin) -> None:
            self._network.attach(node)
            self._prepare(node)

        over, gone = trio.Event(), trio.Event()
        try:
            async with open_node(
                self._config,
                self._hooks,
                self._grace,
                [self._network.layer],
                ready,
                open_control=_open_control,
                adopt=kept,
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
            if self.node.has_store and keep_sessions != keep_retained:
                raise ValueError("a broker with a store keeps sessions and retained messages, or neither")
            if power_cut and (graceful or not self.node.has_store):
                raise ValueError("a power cut is for a broker with a store, and has no grace")
            node, ending = self.node, self.node.ending
            kept: list[Kept] = []

            async def last_step() -> None:
                if power_cut:
                    ending.cut_power()
                self._network.freeze(graceful=graceful, keeps_sessions=keep_sessions, keeps_retained=keep_retained)
                await (ending.stop_accepting() if graceful else ending.stop_at_once())
                kept.append(node.kept(sessions=keep_sessions, retained=keep_retained))
                if graceful:
                    await ending.disconnect_clients()
                else:
                    if not power_cut:
                        await ending.store_all()
                    ending.vanish()
                    self._network.cut()

            ending.steps = last_step
            self._over.set()
            await self._gone.wait()
            if node.has_store and not keep_sessions:
                _delete_store(self._config)
            self._config = at_same_port(self._config, node)
            await self.begin(kept[0])


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
    config: Config, hooks: Hooks | None, grace: float, network: Network, prepare: Callable[[Admin], None]
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


async def _open_control(node: Admin, required: bool) -> ControlSocket | None:
    from trunkline.management.control import open_control  # few tests ask for one

    return await open_control(node, required)
