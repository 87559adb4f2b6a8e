"""A plugin's context: its settings, a logger, a nursery, and its interface to the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from trunkline.hooks.registration import HookError, check_call, describe, is_async
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.mqtt.reasons import Reason
from trunkline.plugins.errors import PluginError
from trunkline.plugins.figures import Counter, Gauge
from trunkline.plugins.workers import OtherWorkers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.config.config import Config
    from trunkline.hooks.alarm import Alarm
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.decisions import Deny, Withhold
    from trunkline.hooks.points import Action
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.plugins.declaring import Settings
    from trunkline.plugins.figures import PluginFigures
    from trunkline.plugins.registered import PluginHooks
    from trunkline.plugins.running import Running
    from trunkline.plugins.store import PluginStore, PluginStores
    from trunkline.plugins.workers import HostWords
    from trunkline.router import Options
    from trunkline.store.clock import StoreClock
    from trunkline.streams.interface import Streams

# Covariant, so that type checkers know the plugin's own settings model.
S_co = TypeVar("S_co", bound="Settings", covariant=True)


@dataclass(frozen=True, slots=True)
class Client:
    """A client that has a session, connected or not."""

    client_id: str
    connected: bool
    username: str | None
    #: Address and port; None for an in-process connection.
    peer: str | None
    listener: str
    #: "3.1", "3.1.1" or "5.0".
    version: str
    #: Seconds; 0 means none.
    keep_alive: int
    clean_start: bool
    #: Seconds since the epoch: of the last connection, and of the session.
    connected_at: float
    created_at: float
    #: Seconds that the session outlives the connection; None means for ever.
    expiry_interval: float | None
    subscriptions: int
    #: Messages that wait, and their bytes.
    queued: int
    queued_bytes: int
    #: Messages sent and not acknowledged, and QoS 2 messages received whose PUBREL is missing.
    inflight: int
    awaiting_rel: int
    superuser: bool
    #: As "TLSv1.3" and "TLS_AES_256_GCM_SHA384"; empty without TLS, and while the client is away.
    tls_version: str = ""
    cipher: str = ""
    #: How many messages may wait for it, of each priority, and how many may be on their way; None is no limit.
    queue_limit: int | None = None
    inflight_limit: int | None = None
    #: The common name of the client's verified certificate, and the name of the server that it asked for (SNI). A load
    #: balancer may tell them without TLS.
    common_name: str = ""
    server_name: str = ""


class HostClients(Protocol):
    def get(self, client_id: str) -> Client | None: ...
    def page(self, after: str, limit: int) -> list[Client]: ...
    def subscriptions(self, client_id: str) -> Mapping[str, Options]: ...
    def subscribe(self, client_id: str, requests: list[SubscriptionRequest]) -> bool: ...
    def unsubscribe(self, client_id: str, filters: list[str]) -> bool: ...
    def kick(self, client_id: str, reason: Reason, text: str) -> bool: ...
    def may(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> bool: ...
    def forget_decisions(self, client_id: str | None, *, subscriptions: bool = True) -> None: ...


class HostMessages(Protocol):
    def message(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties, publisher: str
    ) -> Message: ...
    def route(self, message: Message) -> int: ...
    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold: ...
    def subscribe(
        self,
        name: str,
        filter: str,
        qos: int,
        deliver: Callable[[Message], None],
        answered: Callable[[Reason | None], None],
    ) -> Callable[[], None]: ...


class HostAlarms(Protocol):
    @property
    def active(self) -> list[Alarm]: ...
    def activate(self, name: str, text: str) -> None: ...
    def deactivate(self, name: str) -> None: ...


class Host(Protocol):
    """The broker as its plugins need it. A node is this by its parts, as they are."""

    @property
    def clients(self) -> HostClients: ...
    @property
    def messages(self) -> HostMessages: ...
    @property
    def alarms(self) -> HostAlarms: ...
    @property
    def streams(self) -> Streams: ...
    @property
    def plugin_stores(self) -> PluginStores: ...
    @property
    def config(self) -> Config: ...
    @property
    def clock(self) -> StoreClock: ...
    @property
    def process_name(self) -> str: ...
    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of its node, or the only one."""
        ...

    def wall(self) -> float: ...
    async def figures(self) -> dict[str, int]: ...
    async def node_figures(self) -> dict[str, int]: ...
    @property
    def words(self) -> HostWords | None: ...


class TimerDue(NamedTuple):
    """A timer of a plugin has run out."""

    callback: Callable[..., object]
    args: tuple[object, ...]


class Delivery(NamedTuple):
    """A message for one of a plugin's own subscriptions."""

    callback: Callable[[Message], None]
    message: Message


class SubscriptionRefused(NamedTuple):
    """One of a plugin's own subscriptions cannot be made."""

    text: str


class Context(Generic[S_co]):
    """Everything that a plugin needs from the broker. It is valid for one run of the plugin: a restart or a reload gets
    a new one."""

    __slots__ = ("_figures", "_running", "hooks", "logger", "name", "settings")

    def __init__(self, running: Running, settings: S_co, hooks: PluginHooks, figures: PluginFigures) -> None:
        self.name = running.name
        self.settings = settings
        self.logger = running.logger
        self.hooks = hooks
        self._figures = figures
        self._running = running

    @property
    def _host(self) -> Host:
        return self._running.host

    @property
    def nursery(self) -> trio.Nursery:
        """The plugin's own nursery. Its tasks are cancelled and awaited when the plugin ends; a task that raises ends
        the plugin."""
        return self._running.nursery

    @property
    def kept(self) -> dict[str, Any]:
        """State that the plugin keeps over a crash, a reload, or until it is enabled again. It is empty when the broker
        starts. Keep the broker's types and plain values in it: a reload makes the plugin's own classes anew."""
        return self._figures.kept

    @property
    def replaces(self) -> bool:
        """Whether this run takes the place of one that works, as at a reload."""
        return self._running.replaces

    @property
    def replaced(self) -> bool:
        """Whether a later run has taken the place of this one. It gets no more calls, and is about to end."""
        return self._running.replaced

    @property
    def store(self) -> PluginStore:
        """What the plugin keeps for good, by key: it outlives the broker's process, unless the broker keeps nothing
        (`store.durability`)."""
        return self._host.plugin_stores.of(self.name)

    @property
    def streams(self) -> Streams:
        """The broker's streams: named logs of messages, and their consumers."""
        return self._host.streams

    # Time: with a test's clock, the test's

    @property
    def now(self) -> float:
        """The node's monotonic time, in seconds."""
        return trio.current_time()

    @property
    def wall(self) -> float:
        """The same moment in seconds since the epoch, by the system's clock as it was when the node started."""
        return self._host.wall()

    @property
    def clock_correction(self) -> float:
        """Seconds by which the system's clock was put forward since then; negative if it was put back."""
        return self._host.clock.correction

    @property
    def node(self) -> str:
        """Name of the node."""
        return self._host.config.node.name

    @property
    def process_name(self) -> str:
        """The same, and `NAME.0`, `NAME.1` and so on in the processes of a node that has several: for what cannot be
        shared by two."""
        return self._host.process_name

    @property
    def workers(self) -> OtherWorkers:
        """The same plugin in the other workers of a node that has several."""
        running = self._running

        def hears() -> bool:  # of two runs, the later one
            return running.ref.alive and not running.replaced

        return OtherWorkers(self._host.words, self.name, hears, running.subscriptions)

    def after(self, seconds: float, callback: Callable[..., object], *args: object) -> Callable[[], None]:
        """Call back after `delay` seconds, unless the plugin has ended. Returns a function that cancels the call. The
        callback is plain; if it raises, the plugin crashes."""
        self._running.check_alive()
        self._check_callback(callback, "a timer", *args)
        return self._running.send_after(seconds, TimerDue(callback, args)).cancel

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
        """Publish as the broker itself, or as the client id `publisher`. Text is sent as UTF-8. Access rules and hooks
        at `message.publish` do not apply. Returns the number of sessions that it went to.

        Raises:
            ProtocolError: this is not a topic name.
            TypeError, ValueError: the message cannot be sent.
        """
        data = payload.encode() if isinstance(payload, str) else payload
        messages = self._host.messages
        return messages.route(messages.message(topic, data, qos, retain, properties, publisher))

    def route(self, message: Message) -> int:
        """Route a message that a hook has held back, unchanged. Returns the number of sessions that it went to."""
        return self._host.messages.route(message)

    def publish_as(self, client: ClientInfo, message: Message) -> int | Deny | Withhold:
        """Publish a message that a hook has TAKEN, as if its client published it now: with a new id, and through the
        hooks at `message.publish`. Access rules do not apply. Returns the number of sessions that it went to, or the
        answer of the hook that refused or took it."""
        return self._host.messages.publish_as(client, message)

    def subscribe(self, filter: str, callback: Callable[[Message], None], *, qos: int = 2) -> Callable[[], None]:
        """Subscribe the plugin itself: it is called with each message that matches. Returns a function that ends the
        subscription.

        The callback is plain. If it raises, that is logged and counted, and the next message comes all the same. A
        plugin whose subscription the broker refuses crashes; during its start, it cannot start.

        Raises:
            ProtocolError: this is not a topic filter.
        """
        self._running.check_alive()
        self._check_callback(callback, f"a subscription to {filter!r}", "message")
        running = self._running

        def deliver(message: Message) -> None:
            if running.is_current:
                running.ref.cast(Delivery(callback, message))

        cancel = self._host.messages.subscribe(self.name, filter, qos, deliver, running.expect_answer(filter))
        running.subscriptions.append(cancel)
        return cancel

    # Clients

    def client(self, client_id: str) -> Client | None:
        """The client with this id, if it has a session."""
        return self._host.clients.get(client_id)

    def clients(self, after: str = "", limit: int = 1000) -> list[Client]:
        """The next clients behind the client id `after`, in order of client id. It is a short page, so that other work
        does not wait long."""
        return self._host.clients.page(after, limit)

    def all_clients(self) -> Iterator[Client]:
        """All clients, page by page. An async plugin should give other tasks a turn from time to time."""
        page = self.clients()
        while page:
            yield from page
            page = self.clients(page[-1].client_id)

    def subscriptions(self, client_id: str) -> Mapping[str, Options]:
        """The current subscriptions of a client's session, by topic filter. Empty if it has no session."""
        return self._host.clients.subscriptions(client_id)

    def subscribe_client(self, client_id: str, *requests: SubscriptionRequest) -> bool:
        """Subscribe on behalf of a connected client: it gets no SUBACK. Access rules for `subscribe` do not apply.
        Returns False if it is not connected."""
        return self._host.clients.subscribe(client_id, list(requests))

    def unsubscribe_client(self, client_id: str, *filters: str) -> bool:
        """End subscriptions on behalf of a client. Returns False if it has no session."""
        return self._host.clients.unsubscribe(client_id, list(filters))

    def kick(self, client_id: str, reason: Reason = Reason.ADMINISTRATIVE_ACTION, text: str = "") -> bool:
        """End the connection of a client; its session stays until it expires. Returns False if the client is not
        connected."""
        return self._host.clients.kick(client_id, reason, text or f"disconnected by the plugin {self.name}")

    # Access

    def may(self, client: ClientInfo, action: Action, topic: str, qos: int = 0, retain: bool = False) -> bool:
        """The decision of access rules and hooks about a topic that the client did not name itself."""
        return self._host.clients.may(client, action, topic, qos, retain)

    def forget_decisions(self, client_id: str | None = None, *, subscriptions: bool = True) -> None:
        """Forget the cached access decisions of this client, or of all clients. Subscriptions are checked again, and
        removed where they are denied; for one client, `subscriptions=False` leaves them unchanged."""
        self._host.clients.forget_decisions(client_id, subscriptions=subscriptions)

    # For operators

    async def metrics(self) -> dict[str, int]:
        """All current metrics of the broker and its plugins, by name. Those of a node with several workers are the
        node's."""
        return await self._host.node_figures()

    async def process_metrics(self) -> dict[str, int]:
        """The same, of this process alone."""
        return await self._host.figures()

    def counter(self, name: str, text: str) -> Counter:
        """A counter of the plugin. A restart continues the count."""
        return self._figures.counters.setdefault(name, Counter(name, text))

    def gauge(self, name: str, text: str, read: Callable[[], int]) -> None:
        """A gauge whose value is read on request."""
        self._running.gauges[name] = Gauge(name, text, read)

    def command(self, name: str, handler: Callable[..., object]) -> None:
        """A command of the plugin: `trunkline ctl plugins call PLUGIN NAME KEY=VALUE …`. The handler is plain; it gets
        the arguments by name, as text, or as numbers where they are annotated `int`. Its result must be representable
        in JSON: a list of flat dicts becomes a table. Its ValueError and LookupError become the answer to the
        caller."""
        self._check_plain(handler, "a command", "")
        self._running.commands[name] = handler

    def alarms(self) -> list[Alarm]:
        """All active alarms, the oldest first."""
        return self._host.alarms.active

    def limits(self) -> dict[str, int]:
        """The node's limits by the keys of its configuration, such as `session.max_queue_length`; those of a zone begin
        with `zones.NAME`."""
        return self._host.config.all_limits()

    def raise_alarm(self, name: str, text: str) -> None:
        """Raise an alarm, which lasts until `clear_alarm`. The plugin's name is put in front of its name."""
        self._running.raise_alarm(name, text)

    def clear_alarm(self, name: str) -> None:
        self._running.clear_alarm(name)

    def _check_plain(self, callback: Callable[..., object], what: str, hint: str) -> None:
        if is_async(callback):
            raise PluginError([f"{self.name}: {describe(callback)} is async; {what} needs a plain function{hint}"])

    def _check_callback(self, callback: Callable[..., object], what: str, *arguments: object) -> None:
        """Raises PluginError if it cannot be called with these arguments. So a mistake shows at the start, not at the
        first call."""
        self._check_plain(callback, what, ", which may start a task: context.nursery.start_soon(…)")
        count = f"{len(arguments)} argument" + ("" if len(arguments) == 1 else "s")
        try:
            check_call(callback, f"{what} calls back with {count}", arguments)
        except HookError as error:
            raise PluginError([f"{self.name}: {error}"]) from None
