"""A test's broker in its own trio run. `Broker` and `ThreadBroker` get to it from wherever the test runs."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.config.reader import from_mapping
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import settings_model
from trunkline.testing.connections import ConnectionLog
from trunkline.testing.credentials import written
from trunkline.testing.fault_layer import Network
from trunkline.testing.history import HISTORY, History
from trunkline.testing.restarting import living
from trunkline.testing.shard_hooks import ShardHooks, hooks_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
    from pathlib import Path

    from trunkline.actors import Ref
    from trunkline.broker.node.admin import Admin
    from trunkline.config.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault import Fault
    from trunkline.testing.joined_shards import JoinedShards
    from trunkline.testing.restarting import Lives
    from trunkline.testing.whole import Whole

#: Seconds that clients which a test left open have to close, at the end. What was sent to them waits in their sockets,
#: and in this process nothing is gained by waiting until they have read it.
GRACE: Final = 0.0
#: Errors of hooks that are kept.
MAX_HOOK_ERRORS: Final = 100
#: Seconds after which a condition is checked again although nothing has happened in the broker.
_MIN_PAUSE: Final = 0.001
_MAX_PAUSE: Final = 0.25


#: Settings of every broker.
DEFAULTS: Final[dict[str, Any]] = {"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}}

#: How clients call the schemes of listeners; the others have one name.
_SCHEMES: Final = {"tcp": "mqtt", "tls": "mqtts", "nats+tls": "tls", "nats+ws": "ws", "nats+wss": "wss"}


class Address(NamedTuple):
    """Where clients connect."""

    host: str
    port: int
    #: Of the listener's URL.
    scheme: str = "tcp"
    #: Of a WebSocket listener.
    path: str = ""

    @property
    def url(self) -> str:
        """`mqtt://HOST:PORT`, `nats://HOST:PORT`, `ws://HOST:PORT/PATH` or `unix:///PATH`"""
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_SCHEMES.get(self.scheme, self.scheme)}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class Options:
    """How a broker is opened."""

    #: Sections of the configuration, and `users` and `rules`.
    settings: Mapping[str, Any]
    hooks: Hooks | None = None
    #: Messages that are kept.
    history: int = HISTORY
    #: Path of a journal.
    record: Path | str | None = None
    #: Whether the end of the block checks what a test must not pass over. The fixtures do so at the end of the test.
    checked: bool = True


class RunningBroker:
    """A test's broker in its own trio run, with all that is kept for the test."""

    def __init__(self, whole: Whole, chains: Sequence[Hooks], network: Network, history: int) -> None:
        """`chains` are the hooks of each shard; `history` is how many messages are kept."""
        #: The running shards.
        self.whole = whole
        self._chains = chains
        #: What is registered there, all of them have.
        self.hooks = chains[0] if len(chains) == 1 else ShardHooks(chains)
        self.network = network
        #: None for a broker of one.
        self.shards: JoinedShards | None = None
        #: Set when it runs.
        self.lives: Lives
        #: The faults that are not removed.
        self.faults: list[Fault[Any]] = []
        #: Exceptions of hooks that the test has not removed.
        self.hook_errors: list[BaseException] = []
        for hooks in chains:
            hooks.on_crash = self._hook_failed
        self.connections = ConnectionLog(self.hooks, self._wall)
        self.history = History(self.hooks, self._wall, history, self._may_know)
        network.on_loss = self.history.lost

    @property
    def node(self) -> Admin:
        """The first shard: most brokers have no other."""
        return self.whole.first

    def _wall(self) -> float:
        return self.node.wall()

    def close(self) -> None:
        self.faults.clear()
        self.history.close()
        self.connections.close()
        for hooks in self._chains:
            hooks.on_crash = None

    def _hook_failed(self, error: BaseException) -> None:
        if len(self.hook_errors) < MAX_HOOK_ERRORS:
            self.hook_errors.append(error)

    def _may_know(self, client_id: str) -> bool:
        return self.connections.may_know(client_id) or client_id in self.whole.home(client_id).clients

    async def reset(self) -> None:
        await self.lives.restart(keep_sessions=False, keep_retained=False)
        self.history.clear()
        self.connections.clear()
        self.hook_errors.clear()

    def standing(self, client_id: str) -> str:
        """The state of a client, as the rest of a sentence that begins with its id."""
        clients = self.whole.home(client_id).clients
        found = clients.get(client_id)
        if found is None:
            return "has no session"
        filters = [repr(filter) for filter in clients.subscriptions(client_id)]
        return (
            f"is {'connected' if found.connected else 'away'}, and has subscribed to {', '.join(filters) or 'nothing'}"
        )


class Activity:
    """Waits repeatedly for an event in the broker, or for a short time, until the timeout."""

    def __init__(self, running: RunningBroker, timeout: float) -> None:
        self._running = running
        self._until = trio.current_time() + timeout
        self._pause = _MIN_PAUSE
        self._happened = trio.Event()
        self._on = True
        for number in range(len(running.whole.shards)):
            _TurnEnds(self, number).listen()

    def listen(self, number: int, ends: _TurnEnds) -> None:
        """To the next end of a turn of this shard."""
        if self._on:
            self._running.whole.shards[number].at_end_of_turn(ends)

    def happened(self) -> None:
        self._happened.set()

    async def next(self) -> bool:
        """Returns False if the timeout has passed already."""
        now = trio.current_time()
        if now >= self._until:
            return False
        with trio.move_on_at(min(self._until, now + self._pause)):
            await self._happened.wait()
        self._happened, self._pause = trio.Event(), min(2 * self._pause, _MAX_PAUSE)
        return True

    def close(self) -> None:
        """To be called from any thread, and when the broker is gone."""
        self._on = False


class _TurnEnds:
    """Of one shard, again and again."""

    #: No actor owns it.
    owner: Ref[Any] | None = None

    def __init__(self, activity: Activity, number: int) -> None:
        self._activity = activity
        self._number = number

    def listen(self) -> None:
        self._activity.listen(self._number, self)

    def end_turn(self) -> None:
        self._activity.happened()
        self.listen()


def configuration(settings: Mapping[str, Any]) -> Config:
    """The configuration of a test's broker: it listens on a port of its own, and publishes no `$SYS` topics by default.
    `workers` is how many shards it has.

    Raises:
        ConfigError: with all that is wrong.
    """
    table = {**DEFAULTS, **settings}
    if "workers" in table:
        table["node"] = {**table.get("node", {}), "workers": table.pop("workers")}
    return from_mapping(table, settings_model)


@asynccontextmanager
async def opened(options: Options) -> AsyncGenerator[RunningBroker, None]:
    """Run a broker in this trio run for the length of a block.

    Raises:
        ConfigError: the settings are wrong.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used.
        PluginError: a plugin among the settings cannot start.
        Exception: a hook has raised it, or a group of what several have, unless the test has taken it out of
            `hook_errors`.
    """
    found: list[RunningBroker] = []
    network = Network()
    interrupted = False

    def prepare(whole: Whole) -> None:
        if found:
            found[0].whole = whole  # another one, after a restart
        else:
            found.append(RunningBroker(whole, chains, network, options.history))

    try:
        with written(options.settings) as sections:
            config = configuration(sections)
            chains = hooks_of(config.node.worker_count, options.hooks)
            with _shards_of(config) as shards:
                async with living(config, chains, GRACE, network, prepare, shards) as lives:
                    found[0].lives, found[0].shards = lives, shards
                    for shard in lives.whole.shards:
                        _check_plugins(shard)
                    yield found[0]
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | GeneratorExit)
        raise
    finally:
        for recorder in list(network.recorders):
            recorder.end()
        for running in found:
            running.close()
            if not interrupted:
                check_hooks(running.hook_errors)


@contextmanager
def _shards_of(config: Config) -> Generator[JoinedShards | None, None, None]:
    """None for a broker of one."""
    if config.node.worker_count == 1:
        yield None
        return
    from trunkline.testing.joined_shards import JoinedShards  # few tests ask for several

    shards = JoinedShards(config)
    try:
        yield shards
    finally:
        shards.close()


def check_hooks(errors: list[BaseException]) -> None:
    """Remove the exceptions of hooks, and raise them.

    Raises:
        Exception: what a hook has raised, or a group of what several have.
    """
    __tracebackhide__ = True
    taken = [error if isinstance(error, Exception) else _exit(error) for error in errors]
    errors.clear()
    if len(taken) > 1:
        raise ExceptionGroup("hooks failed", taken)
    if taken:
        raise taken[0]


def _exit(error: BaseException) -> Exception:
    """It must not end the test's process either."""
    failure = RuntimeError(f"a hook tried to end the process: {error!r}")
    failure.__cause__ = error
    return failure


def _check_plugins(node: Admin) -> None:
    """A standalone broker goes on without a plugin that cannot start, but a test needs it."""
    if node.config.plugins:
        failed = [row for row in node.plugins.rows() if row.name in node.config.plugins and row.status == "failed"]
        if failed:
            raise PluginError([f"the plugin {row.name}: {row.problem}" for row in failed])
