"""All listeners of a node, and the connections that came through them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, overload

from trunkline.broker.metrics import LimitKind
from trunkline.broker.net.acceptor import Acceptor
from trunkline.broker.net.admission import Admission
from trunkline.broker.net.listener import Listener, State
from trunkline.broker.net.pipeline import layers_of
from trunkline.broker.node_use import CONNECTIONS
from trunkline.broker.rate_limits import RateLimit, limit_of
from trunkline.config.addresses import ANY_HOST
from trunkline.config.errors import SecurityError
from trunkline.hooks.client import IN_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.protocol import LayerFactory, ListenerProtocol, ProtocolActor, ProtocolFactory
    from trunkline.broker.net.services import NetServices
    from trunkline.broker.net.tls_listeners import TlsListeners
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings

#: How the log calls what listeners of a scheme speak.
_PROTOCOLS: Final = {
    "tls": " (TLS)",
    "ws": " (WebSocket)",
    "wss": " (WebSocket over TLS)",
    "nats": " (NATS)",
    "nats+tls": " (NATS over TLS)",
    "nats+ws": " (NATS over WebSocket)",
    "nats+wss": " (NATS over WebSocket over TLS)",
}

_logger = logging.getLogger("trunkline.node")


class Listeners(Sequence[Listener]):
    """The listeners, in the order in which they were opened."""

    def __init__(
        self,
        services: NetServices,
        config: Config,
        protocols: Mapping[str, ProtocolFactory],
        inside: ProtocolFactory,
    ) -> None:
        """`protocols` says by the scheme of a listener's URL what is spoken there, `inside` what connections without a
        socket speak."""
        self._services = services
        self._config = config
        self._protocols = protocols
        self._opened: list[Listener] = []
        self._acceptors: list[Acceptor] = []
        #: Of all listeners together.
        self._rate = self._node_rate(config)
        #: For connections without a socket.
        self.inside = self._acceptor(inside(config, None))
        #: The names of those that could not be opened at a reload; the next one tries again.
        self._unopened: set[str] = set()

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

    def _admitted(self) -> int:
        return sum(acceptor.admitted for acceptor in self._acceptors)

    def _admitted_at_all(self) -> int:
        return self._admitted() + self._services.use.elsewhere(CONNECTIONS)

    def _acceptor(
        self, protocol: ListenerProtocol, layers: Sequence[LayerFactory] = (), admission: Admission | None = None
    ) -> Acceptor:
        def counted() -> None:
            self._services.use.has(CONNECTIONS, self._admitted(), self._config.limits.max_connections)
            if admission is not None:
                admission.count(acceptor.admitted)

        acceptor = Acceptor(protocol, layers, self._services, admission, counted)
        self._acceptors.append(acceptor)
        return acceptor

    def _node_rate(self, config: Config) -> RateLimit | None:
        return limit_of(LimitKind.NODE_CONNECTIONS, config.rate, self._services.use)

    def _rates(self, settings: ListenerSettings) -> list[RateLimit]:
        """The limits of new connections at a listener."""
        own = limit_of(LimitKind.LISTENER_CONNECTIONS, settings.rate, self._services.use, settings.label)
        return [limit for limit in (self._rate, own) if limit is not None]

    @cached_property
    def _tls(self) -> TlsListeners:
        """Made for the first TLS listener."""
        from trunkline.broker.net.tls_listeners import TlsListeners

        services = self._services
        return TlsListeners(services.scheduler, services.metrics, services.alarms, services.wall)

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
            former, self._config = self._config, config
            if config.rate.connections != former.rate.connections:  # otherwise what has been drawn stays drawn
                self._rate = self._node_rate(config)
            self.inside.protocol.configure(config, None)
            for listener, settings in stay:
                self._renew(listener, settings)
            for connection in self.connections:
                connection.follow_settings()

        return use

    def _renew(self, listener: Listener, settings: ListenerSettings) -> None:
        listener.settings = settings
        listener.admission.configure(settings, self._config.limits.max_connections)
        listener.acceptor.protocol.configure(self._config, settings)
        listener.rates = self._rates(settings)
        tls = None if settings.tls is None else self._tls.of(settings.tls)
        listener.acceptor.use(layers_of(settings, listener.admission, tls))

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
        config, metrics = self._config, self._services.metrics
        tls = None if settings.tls is None else self._tls.open(settings.tls, settings.label)
        most, use = config.limits.max_connections, self._services.use
        admission = Admission(settings, most, self._admitted_at_all, metrics.limited, use)
        protocol = self._protocols[settings.address.scheme](config, settings)
        acceptor = self._acceptor(protocol, layers_of(settings, admission, tls), admission)
        listener = Listener(settings, acceptor, admission, self._services, self._rates(settings))
        try:
            await self.listen(listener)
        except BaseException:
            self._acceptors.remove(acceptor)
            self._close_tls(settings)
            raise
        self._opened.append(listener)
        return listener

    async def listen(self, listener: Listener) -> None:
        """Open the sockets of a listener.

        Raises:
            ListenError: its address cannot be listened on.
        """
        settings = listener.settings
        try:
            await listener.open()
        except OSError as error:
            raise ListenError(f"cannot listen on {settings.url}: {error.strerror or error}") from error
        if not listener.has_sockets:
            return
        anonymous = self._config.allows_anonymous(settings)
        who = "any client may connect" if anonymous else "clients need credentials"
        reach = ", from this machine only" if settings.loopback else ""
        host, port = listener.address
        if settings.host == ANY_HOST and not settings.systemd_socket:
            host = "all addresses"
        place = f"{host} port {port}" if port else host
        _logger.info("listening on %s%s: %s%s", place, _PROTOCOLS.get(settings.address.scheme, ""), who, reach)

    def take(self, passed: PassedConnection) -> None:
        """Serve a connection that another shard of the node has accepted. It is closed where its listener is not open,
        as is one that cannot be served."""
        try:
            for listener in self:
                if listener.settings.label == passed.listener and listener.state is not State.CLOSED:
                    listener.take(passed)
                    return
            if passed.listener == IN_PROCESS:
                self.inside.take(passed)
                return
        except Exception as error:  # noqa: BLE001 - whoever has passed it on cannot be told
            self._services.scheduler.blame(None, self.take, error)
        passed.close()

    def remove(self, listener: Listener) -> None:
        """Close it, and disconnect its clients."""

        async def end() -> None:
            await listener.disconnect_clients(0)
            await listener.acceptor.wait_empty()
            self._acceptors.remove(listener.acceptor)

        self._opened.remove(listener)
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


def _place(settings: ListenerSettings) -> tuple[object, ...]:
    """What cannot change while a listening socket is open."""
    tls = settings.tls is not None
    return settings.url, settings.backlog, settings.reuse_port, settings.systemd_socket, settings.socket_mode, tls


class ListenError(Exception):
    """An address cannot be listened on."""
