"""A node starts, serves until it is cancelled, and ends: clients are told, wills published, and all is stored, while
everything still works."""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.actors import TooManyRestarts
from trunkline.broker.session import mail
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trunkline.broker.node.kept import Kept
    from trunkline.broker.node.parts import Node

_logger = logging.getLogger("trunkline.node")

#: Seconds that clients have to read their last packet and close when the node stops.
GRACE: Final = 1.0
#: Seconds for which actors may go on with their work when the node stops.
MAX_BUSY: Final = 10.0


class ControlSocket(Protocol):
    """The node's interface to its control plane, which is a layer above it."""

    @property
    def path(self) -> Path: ...

    connections: int

    async def run(self) -> None: ...
    def close(self) -> None: ...


class NodeFailed(Exception):
    """A part that everything else needs has failed: the run queue, the poller, or a central actor that crashed too
    often."""


class NodeLife:
    def __init__(self, node: Node, grace: float, adopt: Kept | None) -> None:
        """At the end, clients have `grace` seconds to close. `adopt` is what another node has left."""
        self._node = node
        self.ending = Ending(node, grace)
        #: Is opened at the start, where it is wanted.
        self.control: ControlSocket | None = None
        self._adopt = adopt
        #: Whether everything is up and not yet stopping.
        self._serving = False

    async def run(
        self, ready: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled, then disconnect all clients and end. `ready` is called when everything works, before
        any client can connect.

        Raises:
            ListenError: an address cannot be listened on.
            DeclaredStreamError: the store has other streams than the configuration declares.
            StoreError: the store cannot be read.
            NodeFailed: a part that everything else depends on has failed.
        """
        node, serving = self._node, trio.CancelScope()
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await nursery.start(self._serve, serving, ready)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    if self._serving:
                        with trio.CancelScope(shield=True):
                            await self.ending.steps()
                    serving.cancel()
        finally:
            if node.storing is not None:
                await node.storing.close()
            node.security.unload()  # the hooks may belong to another node later
            node.plugins.release_hooks()

    async def _serve(
        self,
        scope: trio.CancelScope,
        ready: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Everything that runs. It is shielded once it runs, because the last packets need all of it; `run` ends it."""
        node = self._node
        with scope:
            async with trio.open_nursery() as scheduling:
                stepping = trio.CancelScope()
                await scheduling.start(self._vital, "the run queue", self._step, stepping)
                stepping.shield = True  # not before: a start that is cancelled waits for it to end
                try:
                    async with trio.open_nursery() as nursery:
                        await nursery.start(self._vital, "the supervisor", node.supervisors.root.run, node.scheduler)
                        if node.poller is not None:
                            await nursery.start(self._vital, "the poller", node.poller.run)
                        await self._start(ready)
                        task_status.started()
                        await trio.lowlevel.checkpoint_if_cancelled()  # while it started
                        scope.shield = self._serving = True
                finally:
                    node.listeners.close()
                    if node.poller is not None:
                        node.poller.close()
                    if self.control is not None:
                        self.control.close()
                    if node.has_trace:
                        node.trace.stop()
                    stepping.cancel()
                    scope.shield = self._serving = False  # if it failed, no packet can be sent any more

    async def _start(self, ready: Callable[[], Awaitable[None]]) -> None:
        """In order: clients can connect at the end."""
        node = self._node
        config, storing = node.config, node.storing
        if config.trace.on:
            node.trace.start(clients=config.trace.clients, topics=config.trace.topics)
        await node.periodic.follow("watchdog")
        if self._adopt is not None:
            self._adopt.bring_into(node)
        if storing is not None:
            await storing.restore(node.services, node.sessions, node.plugin_stores, node.stream_keeper)
        if storing is not None or config.streams:
            declared = config.streams if node.is_first else ()
            node.stream_keeper.open([settings.declared for settings in declared], self._is_subscribed)
        await node.supervisors.start_background("streams", self._work_on_streams)
        if node.place is not None and node.shards is not None:
            node.shards.begin()
            await node.supervisors.start_background("streams elsewhere", node.shards.feeds.run)
            await node.supervisors.start_background("links", partial(node.place.join, node.shards))
            await node.shards.known()
        await node.plugins.start(config.plugins)
        if storing is not None:
            await storing.go_on(node.services)
            await node.supervisors.start_background("backlogs", storing.backlogs.collect)
        await ready()
        if self._adopt is not None:
            self._adopt.go_on(node)
        for settings in config.listeners:
            await node.listeners.open(settings)
        if node.shards is not None:
            node.shards.serve()
        await node.periodic.follow()

    def _is_subscribed(self, client_id: str, filter: str) -> bool:
        """A session of another shard says later what it has."""
        place = self._node.place
        if place is not None and place.hand_over is not None and place.hand_over.home_of(client_id) != place.number:
            return True
        session = self._node.sessions.get(client_id)
        return session is not None and filter in session.session.subscriptions

    async def _work_on_streams(self) -> None:
        await self._node.has_streams.wait()
        await self._node.stream_keeper.run()

    async def open_control(self, open_control: Callable[[bool], Awaitable[ControlSocket | None]]) -> None:
        """Where the configuration asks for it: the flag says whether it is required."""
        node, settings = self._node, self._node.config.control
        asked = settings.enabled or settings.path is not None
        if settings.enabled is False or not (asked or node.standalone):
            return
        self.control = await open_control(asked)
        if self.control is not None:
            await node.supervisors.start_background("control", self.control.run)

    async def _vital(
        self,
        what: str,
        run: Callable[..., Awaitable[object]],
        *args: object,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run a part that everything else depends on. Errors of single clients do not get here; an error that does ends
        the node."""
        try:
            await run(*args, task_status=task_status)
        except Exception as error:
            logged = isinstance(error, TooManyRestarts)
            _logger.critical("%s has failed, and the node ends: %s", what, error, exc_info=None if logged else error)
            raise NodeFailed(f"{what} has failed: {error}") from error

    async def _step(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        """The run queue outlives everything else: actors that stop still send messages to each other."""
        with scope:
            await self._node.scheduler.run(task_status=task_status)


class Ending:
    """The steps of an end. A test takes others."""

    def __init__(self, node: Node, grace: float) -> None:
        self._node = node
        self._grace = grace
        #: What the end takes, last of all.
        self.steps: Callable[[], Awaitable[None]] = self.disconnect_clients

    async def stop_accepting(self) -> None:
        """Accept no new clients; publish wills while there are subscribers connected."""
        listeners, tasks = self._node.listeners, self._node.supervisors.tasks
        listeners.close()
        for session in self._node.sessions:
            session.ref.cast(mail.PublishWill())
        listeners.close_handshakes()
        await self.quiet()
        with trio.move_on_after(self._grace):
            while tasks.count:  # wills that wait for an access decision
                await next(iter(tasks)).join()
        await self.quiet()

    async def stop_at_once(self) -> None:
        """Accept no new clients, and tell nobody."""
        self._node.listeners.close()
        await self.quiet()

    async def disconnect_clients(self) -> None:
        """Stop accepting, then end all sessions."""
        await self.stop_accepting()
        node = self._node
        if node.place is not None and node.shards is not None:  # wills are for subscribers of other shards, too
            await node.shards.drained()
            await node.place.all_quiet()
            node.shards.end()
            await self.quiet()
        await self.store_all()
        for session in node.sessions:
            session.ref.cast(mail.End(Reason.SERVER_SHUTTING_DOWN, "shutdown"))
        await self.quiet()
        with trio.move_on_after(min(node.config.mqtt.linger, self._grace)):
            await node.listeners.wait_empty()
        for report in (node.services.drops, node.services.refusals, node.failures, node.services.limit_report):
            report.flush()

    async def quiet(self) -> None:
        """Wait until the actors have handled their messages; with a time limit, because a plugin may keep them busy for
        ever."""
        over = perf_counter() + MAX_BUSY  # real time: a test's clock stands still meanwhile
        while self._node.scheduler.step() and perf_counter() < over:
            await trio.lowlevel.checkpoint()

    # As if the process were killed

    def cut_power(self) -> None:
        """Store nothing more."""
        if self._node.storing is not None:
            self._node.storing.cut_power()

    async def store_all(self) -> None:
        """What happens after that is not stored."""
        if self._node.storing is not None:
            await self._node.storing.finish()

    def vanish(self) -> None:
        """No session is told that its connection is gone."""
        for session in self._node.sessions:
            session.forget_connection()
