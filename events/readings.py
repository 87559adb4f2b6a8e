"""What the broker is like, besides what happens in it: its limits and what was there when recording begins, and the
figures of node and sessions.

A figure is recorded when it has changed, and all of them now and then, so that a reading holds until the next one.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.events.schema import Flag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from trunkline.events.watching import Wanted
    from trunkline.plugins import Context
    from trunkline.plugins.context import Client

#: Seconds after which all figures are recorded again.
ALL: Final = 600.0
#: Clients that are read in one turn.
_AT_ONCE: Final = 1000
#: Metrics that change although nothing happens: alone, they are not worth a row.
_RESTLESS: Final = ("process.", "loop.", "plugins.events.", "store.commits", "packets.ping", "bytes.")
_RESTLESS_NAMES: Final = ("packets.received", "packets.sent")
#: The setting that limits a metric; 0 is no limit.
_LIMITED_BY: Final = {
    "connections.count": "limits.max_connections",
    "sessions.count": "limits.max_sessions",
    "subscriptions.count": "limits.max_subscriptions",
    "retained.count": "retained.max_messages",
    "retained.bytes": "retained.max_bytes",
    "store.bytes": "store.max_size",
}


class Readings:
    def __init__(self, context: Context[Any], record: Callable[..., None], wanted: Wanted, max_sessions: int) -> None:
        """`record` takes the kind of a row, and its columns by name. `max_sessions` have the longest queues and are
        recorded."""
        self._context = context
        self._record = record
        self._wanted = wanted
        self._limits: Final = context.limits()
        self._max_sessions: Final = max_sessions
        self._metrics: Mapping[str, int] = {}
        #: Queue and messages in flight, by client id.
        self._sessions: dict[str, tuple[int, int]] = {}
        self._all_due = 0.0

    async def begin(self) -> None:
        """What readers must know of the time before."""
        for name, value in self._limits.items():
            self._record("node.limit", name=name, value=float(value))
        for alarm in self._context.alarms():
            self._record("alarm.active", name=alarm.name, **({"reason": alarm.text} if self._wanted.texts else {}))
        async for client in self._clients():
            for filter, options in self._context.subscriptions(client.client_id).items():
                flags = Flag.NO_LOCAL * options.no_local | Flag.RETAIN_AS_PUBLISHED * options.retain_as_published
                self._record(
                    "session.subscription",
                    client_id=client.client_id,
                    username=client.username,
                    filter=filter,
                    qos=options.qos,
                    flags=int(flags),
                )

    async def take(self) -> None:
        metrics = await self._context.metrics()
        everything = self._context.now >= self._all_due
        if everything:
            self._all_due = self._context.now + ALL
        changed = [name for name, value in metrics.items() if self._metrics.get(name) != value]
        if everything or any(map(_is_telling, changed)):
            for name in metrics if everything else changed:
                self._record(
                    "node.stats", name=name, value=float(metrics[name]), value_limit=self._limit_of(name, metrics)
                )
            self._metrics = metrics
        await self._take_sessions(everything)

    def _limit_of(self, name: str, metrics: Mapping[str, int]) -> float | None:
        if name == "process.files":
            return float(metrics.get("process.files.limit", 0)) or None
        return float(self._limits.get(_LIMITED_BY.get(name, ""), 0)) or None

    async def _take_sessions(self, everything: bool) -> None:
        longest = await self._longest()
        sessions = {client.client_id: (client.queued, client.inflight) for client in longest}
        gone = [self._context.client(client_id) for client_id in self._sessions if client_id not in sessions]
        for client in (*longest, *filter(None, gone)):
            reading = client.queued, client.inflight
            if everything or self._sessions.get(client.client_id) != reading:
                self._record(
                    "session.stats",
                    client_id=client.client_id,
                    username=client.username,
                    queue_length=client.queued,
                    queue_limit=client.queue_limit,
                    inflight=client.inflight,
                    inflight_limit=client.inflight_limit,
                )
        self._sessions = sessions

    async def _longest(self) -> list[Client]:
        longest: list[Client] = []
        async for client in self._clients():
            if client.queued or client.inflight:
                longest.append(client)
                if len(longest) > _AT_ONCE + self._max_sessions:
                    longest = self._first(longest)
        return self._first(longest)

    def _first(self, clients: list[Client]) -> list[Client]:
        return nlargest(
            self._max_sessions, clients, key=lambda client: (client.queued, client.inflight, client.client_id)
        )

    async def _clients(self) -> AsyncIterator[Client]:
        """All that are recorded."""
        for number, client in enumerate(self._context.all_clients(), 1):
            if self._wanted.client(client.client_id):
                yield client
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()


def _is_telling(name: str) -> bool:
    return not name.startswith(_RESTLESS) and name not in _RESTLESS_NAMES
