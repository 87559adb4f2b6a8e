"""A running broker, as tests that await see it, and what it has in common with the one for tests that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.testing.clock import BrokerClock
from trunkline.testing.expecting import ANY, Expected
from trunkline.testing.faults import Faults
from trunkline.testing.messages import Seeing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import trio

    from trunkline.broker.node import Node
    from trunkline.hooks.alarm import Alarm
    from trunkline.hooks.chain import Hooks
    from trunkline.management.views import ClientRow, RetainedRow, SubscriptionRow
    from trunkline.mqtt.properties import Properties
    from trunkline.plugins.declaring import Factory, Settings
    from trunkline.plugins.manager import PluginRow
    from trunkline.testing.inside import Inside
    from trunkline.testing.journal import Recording
    from trunkline.testing.messages import Mark, Published
    from trunkline.testing.reach import Calls, Reach


class Face(Seeing):
    """What a test sees of its broker without waiting: lists are as things stand when they are asked for."""

    def __init__(self, inside: Inside, calls: Calls) -> None:
        self._inside = inside
        self._calls = calls

    # Where it is

    @property
    def host(self) -> str:
        return self._calls.call(lambda: self._inside.node.listeners[0].address[0])

    @property
    def port(self) -> int:
        return self._calls.call(lambda: self._inside.node.listeners[0].address[1])

    @property
    def url(self) -> str:
        """`mqtt://HOST:PORT`"""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt://{host}:{self.port}"

    # What is in it

    @property
    def clients(self) -> list[ClientRow]:
        """Who is connected, by client id."""
        return self._calls.call(self._inside.clients)

    @property
    def sessions(self) -> list[ClientRow]:
        """Who has a session, connected or not, by client id."""
        return self._calls.call(self._inside.sessions)

    @property
    def subscriptions(self) -> list[SubscriptionRow]:
        """By topic filter and client id."""
        return self._calls.call(self._inside.subscriptions)

    @property
    def retained(self) -> list[RetainedRow]:
        """By topic."""
        return self._calls.call(self._inside.retained)

    @property
    def alarms(self) -> list[Alarm]:
        """The conditions that last, in the order in which they began."""
        return self._calls.call(lambda: self._inside.node.alarms.active)

    # What can be done with it

    @property
    def hooks(self) -> Hooks:
        """Register callbacks here; see docs/hooks.md. They run where the broker does."""
        return self._inside.node.hooks

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> int:
        """Publish in the broker's own name. Returns the number of sessions that it went to.

        Raises:
            ProtocolError: this is no topic name.
        """
        data = payload.encode() if isinstance(payload, str) else payload

        def publish() -> int:
            host = self._inside.node.host
            return host.publish(host.message(topic, data, qos, retain, properties, ""))

        return self._calls.call(publish)

    def record(self, path: Path | str) -> Recording:
        """Write all packets from now on into a journal, until `stop`, or to the end of a block: see docs/faults.md.

        Raises:
            OSError: the file cannot be written.
        """
        return self._calls.call(self._inside.record, path, self._calls)

    def kick(self, client_id: str) -> bool:
        """End the connection of a client; its session stays for as long as it was to stay. False: not connected."""
        return self._calls.call(lambda: self._inside.node.kick(client_id))


class Broker(Face):
    """A running broker, for code that awaits."""

    def __init__(self, inside: Inside, reach: Reach) -> None:
        super().__init__(inside, reach)
        self._reach = reach
        self.clock = BrokerClock(reach)
        self.faults = Faults(inside.links, inside.node.hooks, reach)
        self.plugins = BrokerPlugins(inside, reach)

    @property
    def node(self) -> Node:
        """The node itself, with all that it is made of. Only for code in the trio run in which the broker lives."""
        return self._inside.node

    def connect(self) -> trio.abc.Stream:
        """The client's end of a new connection, without a socket. Only for code in the trio run in which the broker
        lives."""
        return self._inside.node.connect()

    async def restart(self, *, keep_sessions: bool = True, keep_retained: bool = True, graceful: bool = False) -> None:
        """End as a process that is killed (or, if `graceful`, one that is told to stop) and come back on the same port.
        Hooks, faults and recordings stay.

        Raises:
            ListenError: somebody else has taken the port.
        """
        await self._reach.run(self._inside.restart, keep_sessions, keep_retained, graceful)

    async def metrics(self) -> dict[str, int]:
        """All counters and gauges, by the names of docs/metrics.md."""
        return await self._reach.run(lambda: self._inside.node.figures())

    async def wait_until(self, condition: Callable[[], object], timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as in ThreadBroker
        """Wait until a plain function says yes. It is asked again whenever something has happened in the broker, and now
        and then in any case; it may look at everything that needs no await: `lambda: broker.clients`. `timeout` in seconds
        of the broker's clock.

        Raises:
            TimeoutError: it did not come true. The message has what there was instead.
        """
        await self._reach.run(self._inside.wait_until, condition, timeout)

    async def wait_for(
        self,
        topic_filter: str = "#",
        predicate: Callable[[Published], object] | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109 - as in ThreadBroker
        *,
        payload: Any = ANY,
        qos: int | None = None,
        retain: bool | None = None,
        publisher: str | None = None,
        to: str | None = None,
        after: Published | Mark | None = None,
    ) -> Published:
        """The first message like this: one that was published already, or else the next one that is. So it does not
        matter whether the code under test was quicker; to wait for another one, say `after=` the last.

        As `assert_published`; `predicate` is asked again whenever something has become of the message, and with `to` it
        must have been delivered to that client. `timeout` in seconds of the broker's clock.

        Raises:
            TimeoutError: none came. The message has what came instead.
            ValueError: the topic filter is none.
        """
        expected = Expected(topic_filter, payload, qos, retain, publisher, to, predicate)
        return await self._reach.run(self._inside.history.wait_for, expected, timeout, after)


class BrokerPlugins:
    """The plugins of a running broker, for code that awaits."""

    def __init__(self, inside: Inside, reach: Reach) -> None:
        self._inside = inside
        self._reach = reach

    async def enable(self, name: str, settings: Settings | None = None, factory: Factory | None = None) -> None:
        """Start a plugin: an installed one, or whatever `factory` is. Its settings are the defaults if none are given.

        Raises:
            PluginError: it runs already, is not installed, or cannot start.
        """
        await self._reach.run(lambda: self._inside.node.plugins.enable(name, settings, factory))

    async def disable(self, name: str) -> None:
        """Stop a plugin.

        Raises:
            PluginError: none of this name was started.
        """
        await self._reach.run(lambda: self._inside.node.plugins.disable(name))

    async def reload(self, name: str, settings: Settings | None = None) -> None:
        """Stop a plugin, import its module anew and start it.

        Raises:
            PluginError: none of this name was started, or it cannot start again.
        """
        await self._reach.run(lambda: self._inside.node.plugins.reload(name, settings))

    def call(self, name: str, command: str, **arguments: object) -> object:
        """Run a command that a plugin offers.

        Raises:
            PluginError: it does not run.
            LookupError: it has no such command, or the command finds nothing.
            ValueError: the arguments are wrong.
        """
        return self._reach.call(lambda: self._inside.node.plugins.call(name, command, arguments))

    def rows(self) -> list[PluginRow]:
        """All that are installed or were started, by name."""
        return self._reach.call(lambda: self._inside.node.plugins.rows())
