"""A running broker, for tests that await and for those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.testing.clock import Clock
from trunkline.testing.expecting import call_plain
from trunkline.testing.fault import nobody
from trunkline.testing.faults import Faults
from trunkline.testing.messages import Messages
from trunkline.testing.portal import AsyncPortal, LocalPortal, Portal, Proxy, in_broker, maybe_async, waiting_in_broker
from trunkline.testing.running import Activity, Address, check_hooks
from trunkline.testing.source_text import written_as

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import trio

    from trunkline.broker.node.admin import Admin
    from trunkline.broker.views import RetainedRow, SubscriptionRow
    from trunkline.client.settings import ConnectionSettings
    from trunkline.hooks.alarm import Alarm
    from trunkline.hooks.chain import Hooks
    from trunkline.mqtt.properties import Properties
    from trunkline.plugins.context import Client
    from trunkline.plugins.declaring import Factory, Settings
    from trunkline.plugins.manager import PluginRow
    from trunkline.streams.interface import Streams
    from trunkline.testing.certificates import Certificates
    from trunkline.testing.connections import ConnectionRow
    from trunkline.testing.journal import Recording
    from trunkline.testing.published import Published
    from trunkline.testing.running import RunningBroker

P = TypeVar("P", bound=Portal)
T = TypeVar("T")

#: Connections that a failure shows.
_MAX_SHOWN: Final = 8


class BrokerProxy(Messages[P]):
    """A running broker. Lists show the current state."""

    def __init__(self, running: RunningBroker, portal: P) -> None:
        super().__init__(running, portal)
        self.clock = Clock(portal)
        self.faults = Faults(running, portal)
        self.plugins = Plugins(running, portal)

    # Addresses

    @property
    @in_broker
    def listeners(self) -> dict[str, Address]:
        """Where clients connect, by the name of the listener, or its URL in the settings if it has none. Each has
        `host`, `port` and `url`."""
        found: dict[str, Address] = {}
        for listener in self._running.node.listeners:
            about = listener.settings.address
            found[listener.name] = Address(*listener.address, about.scheme, about.path)
        return found

    @property
    def host(self) -> str:
        """The host of the first listener; `port` and `url` are its too."""
        return self._first.host

    @property
    def port(self) -> int:
        return self._first.port

    @property
    def url(self) -> str:
        """`mqtt://HOST:PORT`, or `ws://HOST:PORT/PATH`; over TLS `mqtts://` and `wss://`"""
        return self._first.url

    def client_context(self, certificate: str | None = None) -> ssl.SSLContext:
        """For clients of a TLS listener: it trusts the broker's certificate if the kit has made that, and has a
        client's certificate with this common name, if one is given.

        Raises:
            ImportError: trustme is not installed, which makes certificates.
            ValueError: the name is none of a file.
        """
        return self.certificates.context(certificate)

    @property
    def certificates(self) -> Certificates:
        """The files behind that, which all brokers of the process share: `certificates.authority`, and
        `certificate, key = certificates.client("device-1")`."""
        from trunkline.testing.certificates import certificates

        return certificates()

    @property
    def _first(self) -> Address:
        for address in self.listeners.values():
            return address
        raise RuntimeError("this broker has no listeners: clients cannot connect to it by an address")

    # State

    @property
    def clients(self) -> list[Client]:
        """The clients that are connected, by client id."""
        return [row for row in self.sessions if row.connected]

    @property
    @in_broker
    def sessions(self) -> list[Client]:
        """All sessions, of clients that are connected and of those that are away, by client id."""
        return self._running.whole.sessions()

    @property
    @in_broker
    def connections(self) -> list[ConnectionRow]:
        """The last 1,000 connections that were answered, in order: accepted, refused or ended, and why."""
        return self._running.connections.rows()

    @property
    @in_broker
    def subscriptions(self) -> list[SubscriptionRow]:
        """By topic filter and client id."""
        return self._running.whole.subscriptions()

    @property
    @in_broker
    def retained(self) -> list[RetainedRow]:
        """By topic."""
        return self._running.whole.retained()

    @property
    @in_broker
    def alarms(self) -> list[Alarm]:
        """The active alarms, in the order in which they began."""
        return self._running.whole.alarms()

    @waiting_in_broker
    async def metrics(self) -> dict[str, int]:
        """All counters and gauges, by the names of docs/metrics.md."""
        return await self._running.whole.figures()

    @property
    def workers(self) -> int:
        """How many shards it has: one, unless it was opened with `workers=`."""
        return len(self._running.whole.shards)

    def home_of(self, client_id: str) -> int:
        """The number of the shard, from 0 on, where a client with this id has its session."""
        shards = self._running.shards
        return 0 if shards is None else shards.home_of(client_id)

    # Operations

    @property
    def hooks(self) -> Hooks:
        """Register callbacks here; see docs/hooks.md. They run where the broker does."""
        return self._portal.hooks(self._running.hooks)

    @property
    def hook_errors(self) -> list[BaseException]:
        """Exceptions of hooks so far. Those still in the list at the end are raised there, and fail the test: a test
        that expects an error removes it. `broker.wait_until(lambda: broker.hook_errors)`, then `assert
        isinstance(broker.hook_errors.pop(), ValueError)`."""
        return self._running.hook_errors

    @in_broker
    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> Published:
        """Publish as the broker itself. Returns the message with its outcome (not with `history=0`).

        Raises:
            ValueError: this is not a topic name.
        """
        data, messages = payload.encode() if isinstance(payload, str) else payload, self._running.node.messages
        try:
            message = messages.message(topic, data, qos, retain, properties)
        except ProtocolError as error:
            raise ValueError(f"this is no topic name: {error}") from None
        messages.route(message)
        return self._running.history.of(message)

    @in_broker
    def record(self, path: Path | str) -> Recording:
        """Write all packets from now on into a journal, until `stop`, or to the end of a block: see docs/faults.md.

        Raises:
            OSError: the file cannot be written.
        """
        from trunkline.testing.journal import Recording  # few tests record

        return Recording(path, self._running.network, self._running.node.wall(), self._portal)

    @in_broker
    def kick(self, client_id: str) -> None:
        """End the connection of a client; its session stays until it expires.

        Raises:
            LookupError: the client is not connected.
        """
        if not self._running.whole.home(client_id).clients.kick(client_id):
            raise nobody(client_id, [row.client_id for row in self.clients])

    def check(self) -> None:
        """What a test must not pass over. The end of the test does it, and that of the block.

        Raises:
            Exception: what a hook has raised, or a group of what several have.
            AssertionError: a method that waits was called, and not awaited.
            LookupError: a fault has never happened.
        """
        __tracebackhide__ = True
        check_hooks(self._running.hook_errors)
        self.faults.check()

    @waiting_in_broker
    async def restart(
        self,
        *,
        keep_sessions: bool = True,
        keep_retained: bool = True,
        graceful: bool = False,
        power_cut: bool = False,
    ) -> None:
        """Restart on the same port: end like a killed process, or in order if `graceful`. `power_cut` is for a broker
        with a store: what that does not have at this moment is lost. Hooks, faults and recordings stay.

        Raises:
            ListenError: another process has taken the port.
            ValueError: there is no store to be cut off.
        """
        await self._running.lives.restart(
            keep_sessions=keep_sessions, keep_retained=keep_retained, graceful=graceful, power_cut=power_cut
        )

    @waiting_in_broker
    async def reset(self) -> None:
        """Begin anew, for the next test of a broker that several share: `restart` without anything that is kept. Faults
        are removed; messages, connections and errors of hooks forgotten. Hooks and recordings stay.

        Raises:
            ListenError: another process has taken the port.
        """
        self.faults.clear()
        await self._running.reset()

    @maybe_async
    async def wait_until(self, condition: Callable[[], object], timeout: float = 5.0) -> None:  # noqa: ASYNC109 - as elsewhere here
        """Wait until a plain function returns something true. It is called where the caller is: again whenever
        something has happened in the broker, now and then in any case, for `timeout` seconds of the broker's clock, and
        once more then.

        Raises:
            TimeoutError: it did not become true. The message shows the state instead.
            TypeError: the condition is async.
        """
        __tracebackhide__ = True
        late = f"this did not come true within {timeout:g} s"
        await self._until(condition, timeout, lambda: f"{late}: {written_as(condition)}")

    @maybe_async
    async def wait_for_client(self, client_id: str | None = None, timeout: float = 5.0) -> Client:  # noqa: ASYNC109 - as elsewhere here
        """Wait until a client is connected: this one, or any.

        Raises:
            TimeoutError: it is not. The message lists the clients that are, and those that were refused.
        """
        __tracebackhide__ = True
        missing = "no client connected" if client_id is None else f"the client {client_id!r} did not connect"

        def found() -> list[Client]:
            return [row for row in self.clients if client_id in (None, row.client_id)]

        return (await self._until(found, timeout, lambda: f"{missing} within {timeout:g} s"))[0]

    @maybe_async
    async def wait_for_subscription(
        self,
        topic_filter: str | None = None,
        client_id: str | None = None,
        timeout: float = 5.0,  # noqa: ASYNC109 - as elsewhere here
    ) -> SubscriptionRow:
        """Wait until a client, or this one, has subscribed to exactly this filter, or to any.

        Raises:
            TimeoutError: none has. The message lists the subscriptions.
        """
        __tracebackhide__ = True
        missing = "no client has" if client_id is None else f"the client {client_id!r} has not"
        what = "" if topic_filter is None else f" to {topic_filter!r}"

        def found() -> list[SubscriptionRow]:
            rows = self.subscriptions
            return [row for row in rows if topic_filter in (None, row.filter) and client_id in (None, row.client_id)]

        return (await self._until(found, timeout, lambda: f"{missing} subscribed{what} within {timeout:g} s"))[0]

    async def _until(self, condition: Callable[[], T], timeout: float, failure: Callable[[], str]) -> T:  # noqa: ASYNC109 - as elsewhere here
        """Wait until a condition is true, and return its answer."""
        __tracebackhide__ = True
        activity = self._portal.call(Activity, self._running, timeout)
        try:
            while not (answer := call_plain(condition)):
                if not await self._portal.run(activity.next):
                    raise TimeoutError(f"{failure()}\n{self._instead()}")
            return answer
        finally:
            activity.close()

    @in_broker
    def _instead(self) -> str:
        """The lines of a failure that show the state instead."""
        over = [f"  {row}" for row in self.connections if not row.open][-_MAX_SHOWN:]
        lines = [
            f"clients: {', '.join(row.client_id for row in self.clients) or 'none'}",
            f"subscriptions: {', '.join(f'{row.client_id} to {row.filter}' for row in self.subscriptions) or 'none'}",
        ]
        return "\n".join([*lines, *(["the last connections that are over:"] if over else []), *over])


class Broker(BrokerProxy[AsyncPortal]):
    """A running broker, for code that awaits."""

    def check(self) -> None:
        __tracebackhide__ = True
        self._portal.calls.check()
        super().check()

    @property
    def node(self) -> Admin:
        """The node itself, or the first shard of several. Only for code in the broker's trio run."""
        return self._running.node

    @property
    def streams(self) -> Streams:
        """The broker's streams. Only for code in the broker's trio run."""
        return self._running.node.streams

    def connect(self, settings: ConnectionSettings | None = None) -> trio.abc.Stream:
        """The client's end of a new connection, without a socket. `Client(open_stream=broker.connect)` connects so;
        there is nothing in the settings that it depends on.

        Raises:
            RuntimeError: the broker lives in another trio run.
        """
        if type(self._portal) is not LocalPortal:
            raise RuntimeError("this broker lives in a thread of its own: connect to `host` and `port`")
        from trio.testing import memory_stream_pair  # brings pytest with it where that is installed

        ours, theirs = memory_stream_pair()
        self._running.node.serve(ours)
        return theirs


class Plugins(Proxy[P]):
    """The plugins of a running broker."""

    def __init__(self, running: RunningBroker, portal: P) -> None:
        super().__init__(portal)
        self._running = running

    @waiting_in_broker
    async def enable(
        self, name: str, settings: Settings | Mapping[str, object] | None = None, factory: Factory | None = None
    ) -> None:
        """Start a plugin: an installed one, or the one that `factory` makes. Its settings may be given by key, as in
        the configuration; without them, the defaults apply.

        Raises:
            PluginError: it runs already, is not installed, or cannot start.
        """
        for shard in self._running.whole.shards:
            await shard.plugins.enable(name, settings, factory)

    @waiting_in_broker
    async def disable(self, name: str) -> None:
        """Stop a plugin.

        Raises:
            PluginError: no plugin with this name was started.
        """
        for shard in self._running.whole.shards:
            await shard.plugins.disable(name)

    @waiting_in_broker
    async def reload(self, name: str, settings: Settings | None = None) -> None:
        """Stop a plugin, import its module anew and start it.

        Raises:
            PluginError: none of this name was started, or it cannot start again.
        """
        for shard in self._running.whole.shards:
            await shard.plugins.reload(name, settings)
            await shard.settled()

    @in_broker
    def call(self, name: str, command: str, /, **arguments: object) -> object:
        """Run a command that a plugin offers: in a broker with several shards, that of the first.

        Raises:
            PluginError: it does not run.
            LookupError: the plugin does not have the command, or the command raised it.
            ValueError: the arguments are wrong.
        """
        return self._running.node.plugins.call(name, command, arguments)

    @in_broker
    def rows(self) -> list[PluginRow]:
        """All plugins that are installed or were started, by name."""
        return self._running.node.plugins.rows()
