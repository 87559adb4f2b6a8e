"""Restarts of a broker: one node after the other, on the same port, with the kept state."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from trunkline.actors.system import innermost
from trunkline.broker.node import Node, open_node
from trunkline.broker.session.export import export_session, restore_session
from trunkline.broker.stored_retained import retained_to_row
from trunkline.config.store_place import store_path
from trunkline.hooks.client import client_from_plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from trunkline.broker.node import ControlSocket
    from trunkline.broker.routes import Subscriber
    from trunkline.config.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.router import Target
    from trunkline.store import Row
    from trunkline.testing.fault_layer import Network


class Kept(NamedTuple):
    """The state that outlives a node, as plain values without references to the old node."""

    #: The moment, in node time.
    at: float
    #: Of the broker's clock, so that it does not go back.
    epoch: float
    sessions: list[dict[str, Any]]
    routes: list[dict[str, object]]
    retained: list[Row]
    of_plugins: list[Row]

    @classmethod
    def of(cls, node: Node, *, sessions: bool, retained: bool) -> Kept:
        """What a store has is found there."""
        now, epoch = trio.current_time(), node.services.epoch
        if node.storing is not None:
            return cls(now, epoch, [], [], [], [])
        return cls(
            now,
            epoch,
            [export_session(actor.session, now, now + epoch) for actor in node.sessions] if sessions else [],
            list(node.router.export()) if sessions else [],
            [retained_to_row(each, epoch) for each in node.retained] if retained else [],
            list(node.plugin_stores.rows()) if sessions else [],
        )

    def bring_into(self, node: Node) -> None:
        """Before plugins start, and so before clients can connect."""
        services = node.services
        services.epoch = self.epoch
        node.plugin_stores.restore(self.of_plugins)
        services.pubsub.restore_retained(self.retained, self.epoch)
        actors = [node.sessions.add(client_from_plain(values["client"])) for values in self.sessions]
        subscribers = {actor.session.client_id: actor.subscriber for actor in actors}
        node.router.load(self.routes, subscribers.get)
        now, wall = trio.current_time(), self.at + self.epoch
        for actor, values in zip(actors, self.sessions, strict=True):
            member = partial(_member, node, actor.subscriber)
            restore_session(values, actor.session, actor.subscriber, member, now, wall)

    def go_on(self, node: Node) -> None:
        """What the sessions have waited for may happen."""
        for values in self.sessions:
            actor = node.sessions.get(values["client"]["client_id"])
            assert actor is not None
            actor.go_on_away()


def _member(node: Node, subscriber: Subscriber, filter: str) -> Target[Subscriber] | None:
    group = node.router.group(filter)
    return None if group is None else group.member(subscriber)


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

    async def restart(self, *, keep_sessions: bool = True, keep_retained: bool = True, graceful: bool = False) -> None:
        """End the node like a killed process, and start a new one on the same port, with the same hooks and configured
        plugins.

        Sessions are kept as after an end of their connections: wills wait for their delay, and are published by the new
        node. `graceful` disconnects clients first (0x8B to 5.0 clients), publishes all wills, and calls the hooks of an
        end.

        Raises:
            ListenError: another process has taken the port.
            SecurityError: a password or access rule file cannot be used any more.
            ValueError: the broker has a store, which keeps sessions and retained messages or neither.
        """
        async with self._lock:
            if self.node.storing is not None and keep_sessions != keep_retained:
                raise ValueError("a broker with a store keeps sessions and retained messages, or neither")
            node, kept = self.node, list[Kept]()

            async def last_step() -> None:
                self._network.freeze(graceful=graceful, keeps_sessions=keep_sessions, keeps_retained=keep_retained)
                if graceful:
                    await node.stop_accepting()
                else:
                    for listener in node.listeners:
                        listener.close()
                    await node.quiet()
                kept.append(Kept.of(node, sessions=keep_sessions, retained=keep_retained))
                if graceful:
                    await node.disconnect_clients()
                else:
                    if node.storing is not None:
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


def at_same_port(config: Config, node: Node) -> Config:
    """Ports that the system chose become fixed."""
    fixed = [
        listening.settings
        if listening.settings.port
        else listening.settings.model_copy(
            update={
                "url": f"{listening.settings.url.removesuffix(':0')}:{listening.address[1]}",
                "name": listening.settings.label,
            }
        )
        for listening in node.listeners
    ]
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
