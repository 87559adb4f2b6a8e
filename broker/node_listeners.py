"""All listeners of a node, and the connections that came through them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, overload

from trunkline.broker.connection.acceptor import Acceptor
from trunkline.broker.connection.admission import Admission
from trunkline.broker.connection.connection import Connection
from trunkline.broker.connection.handshake import MqttListener
from trunkline.broker.connection.pipeline import layers_of
from trunkline.broker.listeners import Listener
from trunkline.broker.rate_limits import NodeLimits, RateLimits
from trunkline.broker.security import SecurityError
from trunkline.config.addresses import ANY_HOST
from trunkline.hooks.client import IN_PROCESS
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from trunkline.actors import Scheduler, Supervisor
    from trunkline.broker.connection.acceptor import LayerFactory, ProtocolActor
    from trunkline.broker.connection.poller import Poller
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.broker.tls_listeners import TlsListeners
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings

#: How the log calls what listeners of a scheme speak.
_PROTOCOLS: Final = {"tls": " (TLS)", "ws": " (WebSocket)", "wss": " (WebSocket over TLS)"}

_logger = logging.getLogger("trunkline.node")


class NodeListeners(Sequence[Listener]):
    """The listeners, in the order in which they were opened."""

    def __init__(
        self,
        services: Services,
        sessions: Directory,
        scheduler: Scheduler,
        poller: Poller | None,
        supervisor: Supervisor,
        layers: Sequence[LayerFactory],
        start_background: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]],
        wall: Callable[[], float],
    ) -> None:
        """`supervisor` is that of all connections. `layers` are put on the transport of each connection, above those of
        its listener. `start_background` runs a task by name, and again when it crashes. `wall` gives seconds since the
        epoch."""
        self._services = services
        self._sessions = sessions
        self._scheduler = scheduler
        self._poller = poller
        self._supervisor = supervisor
        self._layers = layers
        self._start_background = start_background
        self._wall = wall
        self._opened: list[Listener] = []
        self._acceptors: list[Acceptor] = []
        self._limits = NodeLimits(services.config.rate)
        #: For connections without a socket.
        self._inside = MqttListener(
            IN_PROCESS,
            services.config.allows_anonymous(),
            frozenset(Version),
            durable=True,
            services=services,
            config=services.config,
            directory=sessions,
            limits=RateLimits(self._limits),
        )
        self.inside = self._acceptor(self._inside)
        #: The names of those that could not be opened at a reload; the next one tries again.
        self._unopened: set[str] = set()
        #: What the connections of each listener share.
        self._mqtt: dict[Listener, MqttListener] = {}

    @overload
    def __getitem__(self, index: int) -> Listener: ...
    @overload
    def __getitem__(self, index: slice) -> list[Listener]: ...
    def __getitem__(self, index: int | slice) -> Listener | list[Listener]:
        return self._opened[index]

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def connections(self) -> Iterator[ProtocolActor[Any]]:
        """All open connections, during or after the handshake."""
        return chain.from_iterable(acceptor.connections for acceptor in self._acceptors)

    def _count_connections(self) -> int:
        return sum(len(acceptor.connections) for acceptor in self._acceptors)

    def _acceptor(
        self, mqtt: MqttListener, layers: Sequence[LayerFactory] = (), admission: Admission | None = None
    ) -> Acceptor:
        acceptor = Acceptor(
            partial(Connection, mqtt),
            [*layers, *self._layers],
            self._supervisor,
            self._scheduler,
            self._poller,
            self._services.metrics,
            admission,
        )
        self._acceptors.append(acceptor)
        return acceptor

    @cached_property
    def _tls(self) -> TlsListeners:
        """Made for the first TLS listener."""
        from trunkline.broker.tls_listeners import TlsListeners

        return TlsListeners(self._scheduler, self._services.metrics, self._services.alarms, self._wall)

    def read(self, config: Config) -> Callable[[], None]:
        """Read all files of TLS again, as this configuration names them. The returned function applies them and the
        configuration to the listeners that are open and keep their places. Other listeners are for `change`.

        Raises:
            SecurityError: a file cannot be used.
        """
        wanted = {settings.label: settings for settings in config.listeners}
        stay: list[tuple[Listener, ListenerSettings]] = []
        for listener in self:
            settings = wanted.get(listener.settings.label, listener.settings)
            stay.append((listener, settings if _place(settings) == _place(listener.settings) else listener.settings))
        tls = {settings.label: settings.tls for _, settings in stay if settings.tls is not None}
        use_tls = self._tls.read(tls) if tls else lambda: None

        def use() -> None:
            use_tls()
            if config.rate != self._limits.rates:  # otherwise what has been drawn stays drawn
                self._limits = NodeLimits(config.rate)
            for listener, settings in stay:
                self._renew(listener, settings, config)
            inside, self._inside.config = self._inside, config
            inside.allow_anonymous = config.allows_anonymous()
            inside.limits = RateLimits(self._limits, zone=config.rate)
            for connection in self.connections:
                connection.follow_settings()

        return use

    def _renew(self, listener: Listener, settings: ListenerSettings, config: Config) -> None:
        at, mqtt = config.at(settings), self._mqtt[listener]
        listener.settings = settings
        listener.admission.configure(settings, at.limits.max_connections)
        mqtt.config, mqtt.limits = at, RateLimits(self._limits, settings.rate, at.rate)
        mqtt.allow_anonymous = at.allows_anonymous(settings)
        mqtt.versions, mqtt.durable = _versions(settings), settings.durability != "memory"
        mqtt.authenticators, mqtt.mountpoint = settings.authenticators, settings.mountpoint
        listener.rates = mqtt.limits.connections
        tls = None if settings.tls is None else self._tls.of(settings.tls)
        listener.acceptor.layers = [*layers_of(settings, listener.admission, tls), *self._layers]

    async def change(self, former: Config, config: Config) -> list[str]:
        """Open the listeners that this configuration has and the former had not, or at another place, and remove those
        that it has no more. Returns what could not be done."""
        problems: list[str] = []
        wanted = {settings.label: settings for settings in config.listeners}
        # one that an operator has removed stays away
        before = {settings.label for settings in former.listeners} - self._unopened
        self._unopened.clear()
        for listener in self._opened[:]:
            settings = wanted.pop(listener.settings.label, None)
            if settings is None:
                if listener.settings.label in before:
                    self.remove(listener)
            elif _place(settings) != _place(listener.settings):
                listener.close()  # the new one may have the same address
                try:
                    await self.open(settings)
                except (ListenError, SecurityError) as error:
                    problems.append(str(error))
                    await self.listen(listener)
                else:
                    self.remove(listener)
        for label in wanted.keys() - before:
            try:
                await self.open(wanted[label])
            except (ListenError, SecurityError) as error:
                problems.append(str(error))
                self._unopened.add(label)
        return problems

    async def open(self, settings: ListenerSettings) -> Listener:
        """
        Raises:
            ListenError: its address cannot be listened on.
            SecurityError: its certificates or keys cannot be used.
        """
        config = self._services.config.at(settings)
        tls = None if settings.tls is None else self._tls.open(settings.tls, settings.label)
        limited = self._services.metrics.limited
        admission = Admission(settings, config.limits.max_connections, self._count_connections, limited)
        limits = RateLimits(self._limits, settings.rate, config.rate)
        mqtt = MqttListener(
            settings.label,
            config.allows_anonymous(settings),
            _versions(settings),
            durable=settings.durability != "memory",
            services=self._services,
            config=config,
            directory=self._sessions,
            limits=limits,
            authenticators=settings.authenticators,
            mountpoint=settings.mountpoint,
        )
        acceptor = self._acceptor(mqtt, layers_of(settings, admission, tls), admission)
        listener = Listener(
            settings, acceptor, admission, self._services, self._poller, self._scheduler, limits.connections
        )
        try:
            await self.listen(listener)
        except BaseException:
            self._acceptors.remove(acceptor)
            self._close_tls(settings)
            raise
        self._opened.append(listener)
        self._mqtt[listener] = mqtt
        return listener

    async def listen(self, listener: Listener) -> None:
        """Open the sockets of a listener.

        Raises:
            ListenError: its address cannot be listened on.
        """
        settings = listener.settings
        try:
            await listener.open(self._start_background)
        except OSError as error:
            raise ListenError(f"cannot listen on {settings.url}: {error.strerror or error}") from error
        anonymous = self._services.config.allows_anonymous(settings)
        who = "any client may connect" if anonymous else "clients need credentials"
        reach = ", from this machine only" if settings.loopback else ""
        host, port = listener.address
        if settings.host == ANY_HOST and not settings.systemd_socket:
            host = "all addresses"
        place = f"{host} port {port}" if port else host
        _logger.info("listening on %s%s: %s%s", place, _PROTOCOLS.get(settings.address.scheme, ""), who, reach)

    def remove(self, listener: Listener) -> None:
        """Close it, and disconnect its clients."""

        async def end() -> None:
            await listener.disconnect_clients(0)
            await listener.acceptor.wait_empty()
            self._acceptors.remove(listener.acceptor)

        self._opened.remove(listener)
        del self._mqtt[listener]
        listener.close()
        self._close_tls(listener.settings)
        self._services.start_task(end)

    def _close_tls(self, settings: ListenerSettings) -> None:
        if settings.tls is not None:
            self._tls.close(settings.tls)

    def close(self) -> None:
        """Accept no new connections."""
        for listener in self:
            listener.close()

    def close_handshakes(self) -> None:
        """Close the connections whose client has not been accepted yet."""
        for acceptor in self._acceptors:
            acceptor.close_handshakes()

    async def wait_empty(self) -> None:
        """Wait until the last connection is gone."""
        for acceptor in self._acceptors:
            await acceptor.wait_empty()


def _versions(settings: ListenerSettings) -> frozenset[Version]:
    return frozenset(version for version in Version if str(version) in settings.versions)


def _place(settings: ListenerSettings) -> tuple[object, ...]:
    """What cannot change while a listening socket is open."""
    tls = settings.tls is not None
    return settings.url, settings.backlog, settings.reuse_port, settings.systemd_socket, settings.socket_mode, tls


class ListenError(Exception):
    """An address cannot be listened on."""
