"""What a plugin is given: its settings, a logger, a nursery, and what it may do with the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator, Mapping

    import trio

    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.decisions import Deny, Withhold
    from trunkline.hooks.points import Action, Point
    from trunkline.hooks.registration import Callback
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.plugins.declaring import Settings
    from trunkline.plugins.running import Running
    from trunkline.router import Options

# Type checkers know that what is read out of a context is a plugin's own model.
S_co = TypeVar("S_co", bound="Settings", covariant=True)


class Client(Protocol):
    """A client that has a session, connected or not, as it is listed."""

    @property
    def client_id(self) -> str: ...
    @property
    def connected(self) -> bool: ...
    @property
    def username(self) -> str | None: ...
    @property
    def peer(self) -> str | None: ...
    @property
    def listener(self) -> str: ...
    @property
    def queued(self) -> int:
        """Messages that wait for it."""
        ...

    @property
    def inflight(self) -> int:
        """Messages sent to it and not acknowledged."""
        ...

    @property
    def created_at(self) -> float:
        """When the session began, in seconds since the epoch."""
        ...


class Host(Protocol):
    """The broker as a plugin's context sees it. The node implements it."""

    def publish(self, message: Message) -> int: ...
    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold: ...
    def message(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties, publisher: str
    ) -> Message: ...
    def subscribe(self, name: str, filter: str, qos: int, deliver: Callable[[Message], None]) -> Callable[[], None]: ...
    def subscribe_client(self, client_id: str, requests: list[SubscriptionRequest]) -> bool: ...
    def unsubscribe_client(self, client_id: str, filters: list[str]) -> bool: ...
    def kick(self, client_id: str, reason: Reason, text: str) -> bool: ...
    def client(self, client_id: str) -> Client | None: ...
    def clients(self, after: str, limit: int) -> list[Any]: ...
    def subscriptions(self, client_id: str) -> Mapping[str, Options]: ...
    def may(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> bool: ...
    def forget_decisions(self, client_id: str | None, *, subscriptions: bool = True) -> None: ...
    def raise_alarm(self, name: str, text: str) -> None: ...
    def clear_alarm(self, name: str) -> None: ...
    async def metrics(self) -> dict[str, int]: ...
    @property
    def now(self) -> float: ...
    @property
    def wall(self) -> float: ...
    @property
    def node_name(self) -> str: ...


@dataclass(slots=True, eq=False)
class Counter:
    """A number that only grows; in the metrics as `plugins.PLUGIN.NAME`."""

    name: str
    text: str
    value: int = 0

    def add(self, count: int = 1) -> None:
        self.value += count


class Gauge(NamedTuple):
    """How something stands, read when somebody asks."""

    name: str
    text: str
    read: Callable[[], int]


class PluginHooks:
    """The hooks of one plugin. What is registered here is gone at once when the plugin ends."""

    __slots__ = ("_running",)

    def __init__(self, running: Running) -> None:
        self._running = running

    def add(
        self,
        point: Point | str,
        callback: Callback,
        *,
        priority: int = 0,
        filter: Callback | None = None,
        args: tuple[object, ...] = (),
        burst: Callback | None = None,
    ) -> bool:
        """Register a callback, as `trunkline.hooks.Hooks.add`.

        Raises:
            PluginError: no such point.
            HookError: the callback cannot be called as the point calls it.
        """
        return self._running.add_hook(point, callback, priority, filter, args, burst)

    def on(
        self, point: Point | str, *, priority: int = 0, filter: Callback | None = None
    ) -> Callable[[Callback], Callback]:
        """The decorator form of `add`."""

        def register(callback: Callback) -> Callback:
            self.add(point, callback, priority=priority, filter=filter)
            return callback

        return register

    def remove(self, point: Point | str, callback: Callback) -> bool:
        """Take a callback out; False when it is not there."""
        return self._running.remove_hook(point, callback)


class Context(Generic[S_co]):
    """Everything that a plugin needs of the broker. It is good for one run of the plugin: a restart has a new one."""

    __slots__ = ("_running", "hooks", "logger", "name", "settings")

    def __init__(self, name: str, settings: S_co, logger: logging.Logger, running: Running) -> None:
        self.name = name
        self.settings = settings
        self.logger = logger
        self.hooks = PluginHooks(running)
        self._running = running

    @property
    def _host(self) -> Host:
        return self._running.host

    @property
    def nursery(self) -> trio.Nursery:
        """The plugin's own. Its tasks are cancelled and awaited when the plugin ends; one that raises ends the plugin."""
        return self._running.nursery

    @property
    def kept(self) -> dict[str, Any]:
        """What the plugin wants to find again after a crash, a reload, or when it is enabled again. It is empty when the
        broker starts. Keep the broker's types and plain values in it: a reload makes the plugin's own classes anew."""
        return self._running.kept

    # Time: with a test's clock, the test's

    @property
    def now(self) -> float:
        """The node's monotonic time, in seconds."""
        return self._host.now

    @property
    def wall(self) -> float:
        """The same moment in seconds since the epoch."""
        return self._host.wall

    @property
    def node(self) -> str:
        """Name of the node."""
        return self._host.node_name

    def after(self, seconds: float, callback: Callable[..., object], *args: object) -> Callable[[], None]:
        """Call back after so many seconds, unless the plugin has ended. Returns what cancels it. The callback is plain;
        if it raises, the plugin crashes."""
        return self._running.after(seconds, callback, args)

    # Messages

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        publisher: str = "",
    ) -> int:
        """Publish in the broker's own name, or in that of the client id `publisher`. Text goes out as UTF-8. Neither access
        rules nor hooks at `message.publish` are asked. Returns the number of sessions that it went to.

        Raises:
            ProtocolError: this is no topic name.
            TypeError, ValueError: the message cannot be sent.
        """
        data = payload.encode() if isinstance(payload, str) else payload
        return self._host.publish(self._host.message(topic, data, qos, retain, properties, publisher))

    def route(self, message: Message) -> int:
        """Route a message that a hook has held back, as it is. Returns the number of sessions that it went to."""
        return self._host.publish(message)

    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold:
        """Publish a message that a hook has TAKEN, as if its client published it now: under a new id, and through the hooks
        at `message.publish`. Access rules are not asked. Returns the number of sessions that it went to, or the answer of
        the hook that refused or took it."""
        return self._host.publish_as(client, message)

    def subscribe(self, filter: str, callback: Callable[[Message], None], *, qos: int = 2) -> Callable[[], None]:
        """Have the plugin itself called with each message that matches. Returns what ends the subscription.

        The callback is plain. If it raises, that is logged and counted, and the next message comes all the same.

        Raises:
            ProtocolError: this is no topic filter.
        """
        return self._running.subscribe(filter, callback, qos)

    # Clients

    def client(self, client_id: str) -> Client | None:
        """The client with this id, if it has a session."""
        return self._host.client(client_id)

    def clients(self, after: str = "", limit: int = 1000) -> list[Client]:
        """The next clients behind the client id `after`, in order of client id: a page, so that nobody waits for long."""
        return self._host.clients(after, limit)

    def all_clients(self) -> Iterator[Client]:
        """All clients, page by page. An async plugin lets others have their turn in between now and then."""
        page = self.clients()
        while page:
            yield from page
            page = self.clients(page[-1].client_id)

    def subscriptions(self, client_id: str) -> Mapping[str, Options]:
        """What a client's session has subscribed to, by topic filter, as it is now. Empty when it has no session."""
        return self._host.subscriptions(client_id)

    def subscribe_client(self, client_id: str, *requests: SubscriptionRequest) -> bool:
        """Subscribe a connected client on its behalf: it gets no SUBACK. Access rules at `subscribe` are not asked.
        False: it is not connected."""
        return self._host.subscribe_client(client_id, list(requests))

    def unsubscribe_client(self, client_id: str, *filters: str) -> bool:
        """End subscriptions of a client on its behalf. False: it has no session."""
        return self._host.unsubscribe_client(client_id, list(filters))

    def kick(self, client_id: str, reason: Reason = Reason.ADMINISTRATIVE_ACTION, text: str = "") -> bool:
        """End the connection of a client; its session stays for as long as it was to stay. False: not connected."""
        return self._host.kick(client_id, reason, text or f"disconnected by the plugin {self.name}")

    # Access

    def may(self, client: ClientInfo, action: Action, topic: str, qos: int = 0, retain: bool = False) -> bool:
        """What the access rules and hooks say, for a topic that the client did not name itself."""
        return self._host.may(client, action, topic, qos, retain)

    def forget_decisions(self, client_id: str | None = None, *, subscriptions: bool = True) -> None:
        """Access decisions remembered for this client, or for all, no longer hold. What is subscribed to is asked about
        again, and taken away where the answer is no; for one client `subscriptions=False` leaves it as it is."""
        self._host.forget_decisions(client_id, subscriptions=subscriptions)

    # What operators see

    async def metrics(self) -> dict[str, int]:
        """All metrics of the broker and of its plugins, by name, as they are now."""
        return await self._host.metrics()

    def counter(self, name: str, text: str) -> Counter:
        """A counter of the plugin's own. A restart goes on with the count."""
        return self._running.counter(name, text)

    def gauge(self, name: str, text: str, read: Callable[[], int]) -> None:
        """A figure that is read when somebody asks."""
        self._running.gauge(name, text, read)

    def command(self, name: str, handler: Callable[..., object]) -> None:
        """A command of the plugin's own: `trunkline ctl plugins call PLUGIN NAME KEY=VALUE …`. The handler is plain; it
        gets the arguments by name, as text, or as numbers where they are annotated `int`. It returns what JSON can hold: a
        list of flat dicts becomes a table. ValueError and LookupError are told to whoever called."""
        self._running.command(name, handler)

    def raise_alarm(self, name: str, text: str) -> None:
        """An operator should know of this, until `clear_alarm`. The name gets the plugin's own in front."""
        self._host.raise_alarm(f"{self.name}.{name}", text)

    def clear_alarm(self, name: str) -> None:
        self._host.clear_alarm(f"{self.name}.{name}")
