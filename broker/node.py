"""A node: all parts of the broker put together, started and stopped in order."""

from __future__ import annotations

import logging
import os
import random
from contextlib import asynccontextmanager
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from trunkline.actors import Child, Restart, Scheduler, Supervisor, TaskActor, TooManyRestarts
from trunkline.actors.system import innermost
from trunkline.broker.alarms import Alarms
from trunkline.broker.background import BackgroundTask
from trunkline.broker.connection.mqtt import Mqtt
from trunkline.broker.drop_log import say_dropped, say_refused
from trunkline.broker.guid import Guids, node_number
from trunkline.broker.host import NodeHost
from trunkline.broker.limit_report import LimitReport
from trunkline.broker.log_throttle import LogThrottle
from trunkline.broker.message_trace import MessageTrace
from trunkline.broker.metrics import Metrics
from trunkline.broker.net import poller as polling
from trunkline.broker.net.failure_log import FailureLog
from trunkline.broker.net.listeners import Listeners
from trunkline.broker.net.services import NetServices
from trunkline.broker.password_check import GuessReport
from trunkline.broker.periodic_tasks import PeriodicTasks, or_default
from trunkline.broker.pubsub import PubSub
from trunkline.broker.security import Security
from trunkline.broker.session import mail
from trunkline.broker.session.access import Access
from trunkline.broker.session.directory import Directory
from trunkline.broker.session.services import Services
from trunkline.broker.statistics import Statistics
from trunkline.broker.storing import Storing, store_opener
from trunkline.broker.system_clock import EmbeddedClock, MachineClock
from trunkline.config.addresses import PORTS
from trunkline.config.config import Config, reloaded
from trunkline.hooks.chain import Hooks
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.manager import Plugins
from trunkline.plugins.store import PluginStores
from trunkline.router import RetainedStore, Router
from trunkline.store.clock import StoreClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from trunkline.broker.net.protocol import LayerFactory, ProtocolActor
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.stream_keeper import StreamKeeper
    from trunkline.hooks.client import ClientInfo
    from trunkline.store import Engine
    from trunkline.streams.interface import Streams

    #: Opens the control socket of a node; the flag says whether the node requires it.
    OpenControl = Callable[["Node", bool], Awaitable["ControlSocket | None"]]

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


class Node:
    """One broker in this process. Made by `open_node`."""

    def __init__(
        self,
        config: Config,
        hooks: Hooks | None = None,
        grace: float = GRACE,
        layers: Sequence[LayerFactory] = (),
        prepare: Callable[[Node], None] | None = None,
        read: Callable[[], Config] | None = None,
        open_control: OpenControl | None = None,
        adopt: Callable[[Node], None] | None = None,
        open_store: Callable[[], Engine] | None = None,
    ) -> None:
        self.config = config
        #: Reads the configuration anew; None if the broker runs inside another process.
        self.read = read
        self._prepare = prepare
        #: Steps that `run` takes last, while everything still works.
        self.last_step: Callable[[], Awaitable[None]] = self.disconnect_clients
        self._grace = grace
        self.hooks = hooks if hooks is not None else Hooks()
        self.metrics = Metrics()
        self.scheduler = Scheduler()
        self.retained = RetainedStore()
        self.router: Router[Subscriber] = Router()
        self._clock = StoreClock(EmbeddedClock() if read is None else MachineClock(), trio.current_time())
        self.alarms = Alarms(self.hooks, self._wall)
        self._security = Security(config, self.hooks, GuessReport(self.alarms, self.scheduler.call_at))
        #: The supervisor above all actors.
        self.supervisor = Supervisor(
            Child("routes", lambda: self.services.pubsub.new_writer()),
            Child("tasks", lambda: self._tasks),
            Child("sessions", lambda: self._sessions),
            Child("connections", lambda: self._connections),
            Child("plugins", lambda: self.plugins.supervisor),
            intensity=5,
            period=10.0,
            name="node",
        )
        self._connections = Supervisor(name="connections")
        self._sessions = Supervisor(name="sessions")
        #: Tasks that outlive the session that started them, and must end before the node does.
        self._tasks = Supervisor(name="tasks")
        self._poller = (
            polling.Poller(self.scheduler, self.metrics, busy_poll=self._busy_poll) if polling.available() else None
        )
        self.services = Services(
            config=config,
            hooks=self.hooks,
            metrics=self.metrics,
            drops=LogThrottle(self.scheduler.call_at, say_dropped),
            refusals=LogThrottle(self.scheduler.call_at, say_refused),
            limit_report=LimitReport(self.metrics, self.scheduler.call_at),
            alarms=self.alarms,
            access=Access(self.hooks, self.metrics, config),
            pubsub=PubSub(self.router, self.retained, self.metrics, self.alarms, self.hooks, config),
            guids=Guids(node_number(config.node.name), random.getrandbits(32)),
            clock=self._clock,
            open_session=lambda channel: self.sessions.open(channel),
            hold_publisher=lambda client_id, holder, trusted: self.sessions.hold_publisher(client_id, holder, trusted),
            release_publisher=lambda client_id, holder, waited: self.sessions.release_publisher(
                client_id, holder, waited
            ),
            start_task=self._start_task,
            client_of=self._client_of,
            streams=lambda: self.stream_keeper,
        )
        self.sessions = Directory(self.services, self._sessions)
        #: Connections that their layers ended.
        self._failures = FailureLog(self.metrics, self.scheduler.call_at)
        mqtt = Mqtt(self.services, self.sessions, self._failures)
        self.listeners = Listeners(
            NetServices(
                self.scheduler,
                self._poller,
                self._connections,
                self.metrics,
                self.alarms,
                self.services.limit_report,
                self.start_background,
                self._start_task,
                self._wall,
                layers,
            ),
            config,
            dict.fromkeys(PORTS, mqtt.at),
            mqtt.at,
        )
        self.started_at = trio.current_time()
        self.control: ControlSocket | None = None
        self._control_opener = open_control
        self._store_opener = open_store or store_opener(config, standalone=read is not None)
        #: None where everything ends with the process.
        self.storing: Storing | None = None
        #: Is held by a reload: one is applied whole before the next is read.
        self.reloading = trio.Lock()
        #: The trace of messages, if it is on.
        self.trace = MessageTrace(self.hooks, self._wall, config.trace)
        #: What plugins keep.
        self.plugin_stores = PluginStores(config.store.max_plugin_bytes, self._stored_now)
        self._adopt = adopt
        #: There is a keeper of streams.
        self._has_streams = trio.Event()
        #: The broker's interface for plugins and other code in this process.
        self.host = NodeHost(self.services, self.sessions, self.figures, self.plugin_stores, lambda: self.streams)
        self.plugins = Plugins(self.hooks, self.host)
        self._statistics = Statistics(
            self.services,
            self.sessions,
            self.scheduler,
            lambda: self.connections,
            self.plugins.figures,
            lambda: 0 if self.storing is None else self.storing.size,
        )
        self.rates = self._statistics.rates
        self._periodic = PeriodicTasks(
            self.supervisor,
            self.services,
            self.sessions,
            self.scheduler,
            self._statistics,
            lambda: self.connections,
            self.plugins.plugin_of,
            partial(self.publish, retain=True),
            self.start_background,
            standalone=read is not None,
        )
        #: Whether everything is up and not yet stopping.
        self._serving = False

    def _wall(self) -> float:
        """The time in seconds since the epoch."""
        return trio.current_time() + self._clock.calendar

    def _stored_now(self) -> float:
        return trio.current_time() + self._clock.kept_epoch

    def _client_of(self, client_id: str) -> ClientInfo | None:
        session = self.sessions.get(client_id)
        return None if session is None else session.client

    def _is_subscribed(self, client_id: str, filter: str) -> bool:
        session = self.sessions.get(client_id)
        return session is not None and filter in session.session.subscriptions

    @property
    def connections(self) -> Iterator[ProtocolActor[Any]]:
        """All open connections, during or after the handshake."""
        return self.listeners.connections

    # Operations for other code in this process

    @property
    def streams(self) -> Streams:
        """Named logs of messages, and their consumers."""
        return self.stream_keeper.streams

    @cached_property
    def stream_keeper(self) -> StreamKeeper:
        """Made for the first stream, where no store holds some: few brokers in tests have streams."""
        from trunkline.broker.stream_keeper import StreamKeeper

        self._has_streams.set()
        return StreamKeeper(self.services)

    async def _work_on_streams(self) -> None:
        await self._has_streams.wait()
        await self.stream_keeper.run()

    def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection without a socket: its client holds the other end of the stream."""
        self.listeners.inside.accept_stream(stream)

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False) -> int:
        """Publish a message as the broker itself. Returns the number of sessions that it went to.

        Raises:
            ProtocolError: this is not a topic name.
        """
        return self.host.publish(self.host.message(topic, payload, qos, retain, NO_PROPERTIES, ""))

    def reload(self, config: Config | None = None) -> None:
        """Read the files of passwords, access rules and TLS again, perhaps as another configuration names them, which
        holds from now on: for clients that are connected too, but for what their CONNACK said. Decisions made under
        the old rules are forgotten; connections stay.

        Raises:
            SecurityError: a file cannot be used; nothing has changed.
        """
        former, config = self.config, config or self.config
        use = self.listeners.read(config)
        self._security.load(config)
        self.config = self.services.config = config
        self.services.access.configure(config)
        self.services.pubsub.configure(config)
        self.sessions.configure()
        self.plugin_stores.max_bytes = config.store.max_plugin_bytes
        self.trace.configure(config.trace)
        if self.storing is not None:
            self.storing.configure(former, config)
        if self._poller is not None:
            self._poller.busy_poll = self._busy_poll
        use()
        self.host.forget_decisions(None)

    async def reconfigure(self, new: Config) -> list[str]:
        """Apply what can be applied of another configuration, but for the plugins and the log. Returns what went wrong
        with single listeners.

        Raises:
            SecurityError: a file cannot be used; nothing has changed.
        """
        former = self.config
        self.reload(reloaded(former, new))
        await self._periodic.follow()
        return await self.listeners.change(former, self.config)

    # Its life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then disconnect all clients and end.

        Raises:
            ListenError: an address cannot be listened on.
            SecurityError: a password or access rule file cannot be used.
            DeclaredStreamError: the store has other streams than the configuration declares.
            NodeFailed: a part that everything else depends on has failed.
        """
        self._security.load(self.config)
        serving = trio.CancelScope()
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await nursery.start(self._serve, serving)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    if self._serving:
                        with trio.CancelScope(shield=True):
                            await self.last_step()
                    serving.cancel()
        finally:  # the hooks may belong to another node later
            self._security.unload()
            self.plugins.release_hooks()

    async def _serve(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        """Everything that runs. It is shielded once it runs, because the last packets need all of it; `run` ends it."""
        if self.config.trace.on:
            self.trace.start(clients=self.config.trace.clients, topics=self.config.trace.topics)
        with scope:
            async with trio.open_nursery() as scheduling:
                stepping = trio.CancelScope()
                await scheduling.start(self._vital, "the run queue", self._step, stepping)
                stepping.shield = True  # not before: a start that is cancelled waits for it to end
                try:
                    async with trio.open_nursery() as nursery:
                        await nursery.start(self._vital, "the supervisor", self.supervisor.run, self.scheduler)
                        if self._poller is not None:
                            await nursery.start(self._vital, "the poller", self._poller.run)
                        await self._periodic.follow("watchdog")
                        if self._adopt is not None:
                            self._adopt(self)
                        open_engine, self._store_opener = self._store_opener, None
                        if open_engine is not None:
                            self.storing = await Storing.begin(
                                open_engine,
                                self.services,
                                self.scheduler,
                                self.sessions,
                                self.plugin_stores,
                                self.stream_keeper,
                            )
                        if self.storing is not None or self.config.streams:
                            declared = [settings.declared for settings in self.config.streams]
                            self.stream_keeper.open(declared, self._is_subscribed)
                        await self.start_background("streams", self._work_on_streams)
                        await self.plugins.start(self.config.plugins)
                        if self.storing is not None:
                            await self.storing.go_on(self.services)
                            await self.start_background("backlogs", self.storing.backlogs.collect)
                        if self._prepare is not None:
                            self._prepare(self)
                        await self._open_control()
                        for settings in self.config.listeners:
                            await self.listeners.open(settings)
                        await self._periodic.follow()
                        task_status.started()
                        await trio.lowlevel.checkpoint_if_cancelled()  # while it started
                        scope.shield = self._serving = True
                finally:
                    self.listeners.close()
                    if self._poller is not None:
                        self._poller.close()
                    if self.control is not None:
                        self.control.close()
                    self.trace.stop()
                    if self.storing is not None:
                        await self.storing.close()
                    stepping.cancel()
                    scope.shield = self._serving = False  # if it failed, no packet can be sent any more

    def _start_task(self, async_fn: Callable[..., Awaitable[object]], *args: object) -> None:
        self._tasks.start(TaskActor(async_fn, *args), name=async_fn.__qualname__)

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
            await self.scheduler.run(task_status=task_status)

    async def start_background(
        self, name: str, async_fn: Callable[[], Awaitable[object]], stay_off: Callable[[], None] | None = None
    ) -> None:
        """Run a task that the node can run without, under a supervisor of its own. `stay_off` is called if it crashes
        too often."""
        await self.supervisor.start_child(
            Child(name, lambda: BackgroundTask(name, async_fn, self.alarms, stay_off), Restart.TEMPORARY)
        )

    @property
    def _busy_poll(self) -> float:
        is_useful = self.read is not None and (os.cpu_count() or 1) > 1
        return or_default(self.config.node.busy_poll, polling.BUSY_POLL, is_useful)

    async def _open_control(self) -> None:
        settings = self.config.control
        asked = settings.enabled or settings.path is not None
        wanted = asked or self.read is not None
        if self._control_opener is None or settings.enabled is False or not wanted:
            return
        self.control = await self._control_opener(self, asked)
        if self.control is not None:
            await self.start_background("control", self.control.run)

    async def stop_accepting(self) -> None:
        """Accept no new clients; publish wills while there are subscribers connected."""
        self.listeners.close()
        for session in self.sessions:
            session.ref.cast(mail.PublishWill())
        self.listeners.close_handshakes()
        await self.quiet()
        with trio.move_on_after(self._grace):
            while self._tasks.count:  # wills that wait for an access decision
                await next(iter(self._tasks)).join()
        await self.quiet()

    async def disconnect_clients(self) -> None:
        """Stop accepting, then end all sessions."""
        await self.stop_accepting()
        if self.storing is not None:
            await self.storing.finish()
        for session in self.sessions:
            session.ref.cast(mail.End(Reason.SERVER_SHUTTING_DOWN, "shutdown"))
        await self.quiet()
        with trio.move_on_after(min(self.config.mqtt.linger, self._grace)):
            await self.listeners.wait_empty()
        self.services.drops.flush()
        self.services.refusals.flush()
        self._failures.flush()
        self.services.limit_report.flush()

    async def quiet(self) -> None:
        """Wait until the actors have handled their messages; with a time limit, because a plugin may keep them busy for
        ever."""
        over = perf_counter() + MAX_BUSY  # real time: a test's clock stands still meanwhile
        while self.scheduler.step() and perf_counter() < over:
            await trio.lowlevel.checkpoint()

    # Figures

    async def figures(self) -> dict[str, int]:
        """All counters and gauges."""
        return await self._statistics.take()


class NodeFailed(Exception):
    """A part that everything else needs has failed: the run queue, the poller, or a central actor that crashed too
    often."""


@asynccontextmanager
async def open_node(
    config: Config | None = None,
    hooks: Hooks | None = None,
    grace: float = GRACE,
    layers: Sequence[LayerFactory] = (),
    prepare: Callable[[Node], None] | None = None,
    read: Callable[[], Config] | None = None,
    open_control: OpenControl | None = None,
    adopt: Callable[[Node], None] | None = None,
    open_store: Callable[[], Engine] | None = None,
) -> AsyncGenerator[Node, None]:
    """Run a broker for the length of a block. At its end clients have `grace` seconds to close. `layers` are put on the
    transport of each connection, the first one at the bottom. `prepare` is called when everything works, before any
    client can connect. `read` reads the configuration anew, for a broker with a process of its own. `open_control`
    opens the control socket, where the configuration asks for one, `open_store` another store than the configuration's.
    `adopt` is called before plugins start, and takes over what another node of this process has left.

    Raises:
        ControlSocketError: the control socket is required and cannot be opened.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used.
        DeclaredStreamError: the store has other streams than the configuration declares.
        StoreError: the store cannot be opened or read.
        NodeFailed: what everything else rests on has failed; the block was cancelled.
    """
    node = Node(
        config if config is not None else Config(),
        hooks,
        grace,
        layers,
        prepare,
        read,
        open_control,
        adopt,
        open_store,
    )
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            yield node
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = innermost(group)
        raise error from error.__cause__
