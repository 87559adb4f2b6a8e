"""The TLS of all listeners of a node: read at the start and at each reload, and watched for certificates that end."""

from __future__ import annotations

from math import inf
from time import gmtime, strftime
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.alarms import CERTIFICATE_EXPIRES
from trunkline.broker.net.tls import TlsServer
from trunkline.broker.net.tls_context import TlsContext
from trunkline.config.errors import SecurityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.actors import Scheduler
    from trunkline.broker.alarms import Alarms
    from trunkline.broker.metrics import Metrics
    from trunkline.config.tls_settings import TlsSettings

#: Seconds between two looks at the ends of certificates.
CHECKED_EVERY: Final = 3600.0


class TlsListeners:
    def __init__(self, scheduler: Scheduler, metrics: Metrics, alarms: Alarms, wall: Callable[[], float]) -> None:
        """`wall` gives seconds since the epoch."""
        self._scheduler = scheduler
        self._metrics = metrics
        self._alarms = alarms
        self._wall = wall
        self._servers: list[TlsServer] = []
        self._timer = scheduler.call_at(inf, self.check_expiry)

    def open(self, settings: TlsSettings, listener: str) -> TlsServer:
        """`listener` is the name of the listener, for messages.

        Raises:
            SecurityError: its files cannot be used.
        """
        server = TlsServer(TlsContext(settings, listener), self._scheduler, self._metrics)
        self._servers.append(server)
        self.check_expiry()
        return server

    def of(self, settings: TlsSettings) -> TlsServer:
        """The one of the listener with these settings."""
        return next(server for server in self._servers if server.context.settings is settings)

    def close(self, settings: TlsSettings) -> None:
        """The listener with these settings is closed for good."""
        self._servers = [server for server in self._servers if server.context.settings is not settings]
        self.check_expiry()

    def read(self, changed: Mapping[str, TlsSettings]) -> Callable[[], None]:
        """Read all files again, of some listeners by other settings. The returned function lets new connections use
        what was read; others go on as they are.

        Raises:
            SecurityError: with all problems.
        """
        contexts: list[TlsContext] = []
        problems: list[str] = []
        for server in self._servers:
            try:
                listener = server.context.listener
                contexts.append(TlsContext(changed.get(listener, server.context.settings), listener))
            except SecurityError as error:
                problems += error.problems
        if problems:
            raise SecurityError(list(dict.fromkeys(problems)))

        def use() -> None:
            for server, context in zip(self._servers, contexts, strict=True):
                server.context = context
            self.check_expiry()

        return use

    def check_expiry(self) -> None:
        now = self._wall()
        contexts = [server.context for server in self._servers]
        ends = sorted(
            expiry
            for context in contexts
            for expiry in context.expiries
            if expiry.at <= now + context.settings.expiry_warning
        )
        if ends:
            at, file = ends[0]
            verb = "expires" if at > now else "has expired"
            text = f"the certificate in {file} {verb}: {strftime('%Y-%m-%d %H:%M UTC', gmtime(at))}"
            self._alarms.activate(CERTIFICATE_EXPIRES, text)
        else:
            self._alarms.deactivate(CERTIFICATE_EXPIRES)
        if contexts:
            self._timer.restart_at(trio.current_time() + CHECKED_EVERY)
        else:
            self._timer.cancel()
