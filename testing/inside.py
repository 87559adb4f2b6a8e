"""What lives in the broker's own trio run. Its faces (`Broker`, `ThreadBroker`) reach it from wherever the test runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.config.config import Config
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import settings_model
from trunkline.testing.connections import Connections
from trunkline.testing.credentials import written
from trunkline.testing.history import HISTORY, History
from trunkline.testing.links import Links
from trunkline.testing.restarting import living

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from trunkline.actors import Ref
    from trunkline.broker.node import Node
    from trunkline.broker.views import ClientRow, RetainedRow, SubscriptionRow
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.properties import Properties
    from trunkline.testing.journal import Recording
    from trunkline.testing.published import Published
    from trunkline.testing.reach import Reach
    from trunkline.testing.restarting import Lives

#: Seconds that clients which a test left open have to close, at the end. What was sent to them waits in their sockets, and
#: in this process nothing is gained by waiting until they have read it.
GRACE: Final = 0.0
#: Errors of hooks that are kept.
_MOST_HOOK_ERRORS: Final = 100
#: Connections that a failure shows.
_SHOWN: Final = 8
#: Rows that are asked for at a time.
_PAGE: Final = 1000
#: Seconds after which a condition is asked for again although nothing has happened in the broker.
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.25


class Address(NamedTuple):
    """Where clients connect."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """`mqtt://HOST:PORT`"""
        return f"mqtt://[{self.host}]:{self.port}" if ":" in self.host else f"mqtt://{self.host}:{self.port}"


class Inside:
    def __init__(self, node: Node, links: Links, history: int) -> None:
        """Of messages as many are kept as `history` says."""
        #: The one that runs now.
        self.node = node
        self.links = links
        #: Set when it runs.
        self.lives: Lives
        #: What hooks have raised, and the test has not taken out.
        self.hook_errors: list[BaseException] = []
        node.hooks.on_crash = self._hook_failed
        self.history = History(node.hooks, lambda: self.node.host.wall, self.standing, history)
        links.on_loss = self.history.lost
        self.connections = Connections(node.hooks, lambda: self.node.host.wall)

    def _hook_failed(self, error: BaseException) -> None:
        if len(self.hook_errors) < _MOST_HOOK_ERRORS:
            self.hook_errors.append(error)

    def record(self, path: Path | str, reach: Reach) -> Recording:
        """
        Raises:
            OSError: the file cannot be written.
        """
        from trunkline.testing.journal import Recording  # few tests record

        return Recording(path, self.links, self.node.host.wall, reach)

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties) -> Published:
        """
        Raises:
            ProtocolError: this is no topic name.
        """
        message = self.node.host.message(topic, payload, qos, retain, properties, "")
        self.node.host.publish(message)
        return self.history.of(message)

    async def restart(self, keep_sessions: bool, keep_retained: bool, graceful: bool) -> None:
        await self.lives.restart(keep_sessions=keep_sessions, keep_retained=keep_retained, graceful=graceful)

    async def reset(self) -> None:
        await self.restart(keep_sessions=False, keep_retained=False, graceful=False)
        self.history.clear()
        self.connections.clear()
        self.hook_errors.clear()

    def listeners(self) -> dict[str, Address]:
        return {listener.settings.label: Address(*listener.address) for listener in self.node.listeners}

    # How they are listed is imported when somebody asks

    def sessions(self) -> list[ClientRow]:
        from trunkline.broker.views import client_row

        return [client_row(actor) for actor in self.node.sessions.page(limit=len(self.node.sessions))]

    def clients(self) -> list[ClientRow]:
        return [row for row in self.sessions() if row.connected]

    def subscriptions(self) -> list[SubscriptionRow]:
        from trunkline.broker.views import subscription_rows

        rows: list[SubscriptionRow] = []
        page = subscription_rows(self.node.router, limit=_PAGE)
        while page:
            rows += page
            page = subscription_rows(self.node.router, (page[-1].filter, page[-1].client_id), _PAGE)
        return rows

    def retained(self) -> list[RetainedRow]:
        from trunkline.broker.views import retained_rows

        rows: list[RetainedRow] = []
        after: str | None = ""
        while after is not None:
            page, after = retained_rows(self.node.retained, trio.current_time(), after, _PAGE)
            rows += page
        return rows

    def standing(self, client_id: str) -> str:
        """How a client stands, as a sentence goes on behind its id."""
        found = self.node.sessions.get(client_id)
        if found is None:
            return "has no session"
        filters = [repr(filter) for filter in found.session.subscriptions]
        return (
            f"is {'connected' if found.channel is not None else 'away'}, "
            f"and has subscribed to {', '.join(filters) or 'nothing'}"
        )

    def happenings(self, timeout: float) -> Happenings:
        return Happenings(self, timeout)

    def instead(self) -> str:
        """The lines of a failure that say what there was instead."""
        over = [f"  {row}" for row in self.connections.rows() if not row.open][-_SHOWN:]
        lines = [
            f"clients: {', '.join(row.client_id for row in self.clients()) or 'none'}",
            f"subscriptions: {', '.join(f'{row.client_id} to {row.filter}' for row in self.subscriptions()) or 'none'}",
        ]
        return "\n".join([*lines, *(["the last connections that are over:"] if over else []), *over])


class Happenings:
    """Waits for something to happen in the broker, or for a short while, again and again, until time is over."""

    def __init__(self, inside: Inside, timeout: float) -> None:
        self._inside = inside
        self._until = trio.current_time() + timeout
        self._pause = _FIRST_PAUSE
        self._happened = trio.Event()
        self._on = True
        #: It is no actor's.
        self.owner: Ref[Any] | None = None
        self._listen()

    def _listen(self) -> None:
        self._inside.node.scheduler.at_end(self)

    def end_turn(self) -> None:
        self._happened.set()
        if self._on:
            self._listen()

    async def next(self) -> bool:
        """False: the time was over already."""
        now = trio.current_time()
        if now >= self._until:
            return False
        with trio.move_on_at(min(self._until, now + self._pause)):
            await self._happened.wait()
        self._happened, self._pause = trio.Event(), min(2 * self._pause, _LONGEST_PAUSE)
        return True

    def close(self) -> None:
        """To be called from any thread, and when the broker is gone."""
        self._on = False


def configuration(settings: Mapping[str, Any]) -> Config:
    """Of a test's broker: it listens on a port of its own, and publishes no `$SYS` topics unless it is told to.

    Raises:
        ConfigError: with all that is wrong.
    """
    table = {"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}, **settings}
    return Config.from_mapping(table, settings_model)


@asynccontextmanager
async def opened(
    settings: Mapping[str, Any], hooks: Hooks | None, history: int = HISTORY
) -> AsyncGenerator[Inside, None]:
    """Run a broker in this trio run for the length of a block. Of messages as many are kept as `history` says.

    Raises:
        ConfigError: the settings are wrong.
        ListenError: an address cannot be listened on.
        SecurityError: a password or access rule file cannot be used.
        PluginError: a plugin among the settings cannot start.
        Exception: a hook has raised it, or a group of what several have, unless the test has taken it out of
            `hook_errors`.
    """
    found: list[Inside] = []
    links = Links()
    interrupted = False

    def prepare(node: Node) -> None:
        if found:
            found[0].node = node  # another one, after a restart
        else:
            found.append(Inside(node, links, history))

    try:
        with written(settings) as sections:
            async with living(configuration(sections), hooks, GRACE, links, prepare) as lives:
                found[0].lives = lives
                _check_plugins(lives.node)
                yield found[0]
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | GeneratorExit)
        raise
    finally:
        for recorder in list(links.recorders):
            recorder.end()
        for inside in found:
            inside.history.close()
            inside.connections.close()
            inside.node.hooks.on_crash = None
            if not interrupted:
                check_hooks(inside.hook_errors)


def check_hooks(errors: list[BaseException]) -> None:
    """Take out what hooks have raised, and raise it.

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
    failure = RuntimeError(f"a hook wanted to end the process: {error!r}")
    failure.__cause__ = error
    return failure


def _check_plugins(node: Node) -> None:
    """A broker of its own goes on without a plugin that cannot start. A test has asked for it."""
    if node.config.plugins:
        failed = [row for row in node.plugins.rows() if row.name in node.config.plugins and row.status == "failed"]
        if failed:
            raise PluginError([f"the plugin {row.name}: {row.problem}" for row in failed])
