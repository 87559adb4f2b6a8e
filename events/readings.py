"""What the broker is like, besides what happens in it: its limits and what was there when recording begins, and the
figures of node and sessions.

A figure is recorded when it has changed, and all of them now and then, so that a reading holds until the next one.
"""

from __future__ import annotations

from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import trio

from trunkline import __version__
from trunkline.events.schema import Flag

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from trunkline.events.watching import Wanted
    from trunkline.plugins import Context
    from trunkline.plugins.context import Client
    from trunkline.router import Options

T = TypeVar("T")

#: Seconds after which all figures are recorded again.
ALL: Final = 600.0
#: Seconds for which a figure that has changed is recorded each time: a line through the readings of a window would
#: else show how it grew, and not that it stays.
SETTLED: Final = 900.0
#: Seconds after which what was said at the beginning is said again, since retention deletes the oldest rows.
AGAIN: Final = 86_400.0
#: Clients, or subscriptions of one, that are read in one turn.
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
    def __init__(
        self,
        context: Context[Any],
        record: Callable[..., None],
        wanted: Wanted,
        kinds: Sequence[str],
        max_sessions: int,
    ) -> None:
        """`record` takes the kind of a row, and its columns by name; `kinds` are the hooks that are recorded.
        `max_sessions` have the longest queues and are recorded."""
        self._context = context
        self._record = record
        self._wanted = wanted
        self._limits: Final = context.limits()
        self._max_sessions: Final = max_sessions
        self._kinds: Final = kinds
        self._metrics: dict[str, _Figure[int]] = {}
        #: Queue and messages in flight, by client id.
        self._sessions: dict[str, _Figure[tuple[int, int]]] = {}
        self._all_due = 0.0
        self._facts_due = 0.0

    async def begin(self) -> None:
        """What readers must know of the time before."""
        self._record_facts()
        async for client in self._clients():
            async for filter, options in self._subscriptions(client.client_id):
                flags = Flag.NO_LOCAL * options.no_local | Flag.RETAIN_AS_PUBLISHED * options.retain_as_published
                self._record(
                    "session.subscription",
                    client_id=client.client_id,
                    username=client.username,
                    filter=filter,
                    qos=options.qos,
                    flags=int(flags),
                )

    async def _subscriptions(self, client_id: str) -> AsyncIterator[tuple[str, Options]]:
        """Those of them that are still there when it is their turn."""
        filters = list(self._context.subscriptions(client_id))
        for begin in range(0, len(filters), _AT_ONCE):
            if begin:
                await trio.lowlevel.checkpoint()
            known = self._context.subscriptions(client_id)
            for filter in filters[begin : begin + _AT_ONCE]:
                if (options := known.get(filter)) is not None:
                    yield filter, options

    def _record_facts(self) -> None:
        self._facts_due = self._context.now + AGAIN
        self._record("node.version", name=__version__)
        narrowed = ", ".join(self._wanted.narrowed_by)
        for kind in self._kinds:
            self._record("exporter.records", name=kind, reason=narrowed or None)
        for name, value in self._limits.items():
            self._record("node.limit", name=name, value=float(value))
        for alarm in self._context.alarms():
            self._record("alarm.active", name=alarm.name, **({"reason": alarm.text} if self._wanted.texts else {}))

    async def take(self) -> None:
        now = self._context.now
        if now >= self._facts_due:
            self._record_facts()
        everything = now >= self._all_due
        if everything:
            self._all_due = now + ALL
        metrics = await self._context.process_metrics()
        self._metrics = {name: _read(self._metrics.get(name), value, now) for name, value in metrics.items()}
        due = [name for name, figure in self._metrics.items() if everything or figure.is_moving(now)]
        if everything or any(map(_is_telling, due)):
            for name in due:
                self._record(
                    "node.stats", name=name, value=float(metrics[name]), value_limit=self._limit_of(name, metrics)
                )
        await self._take_sessions(everything, now)

    def _limit_of(self, name: str, metrics: Mapping[str, int]) -> float | None:
        if name == "process.files":
            return float(metrics.get("process.files.limit", 0)) or None
        return float(self._limits.get(_LIMITED_BY.get(name, ""), 0)) or None

    async def _take_sessions(self, everything: bool, now: float) -> None:
        longest = await self._longest()
        sessions = {
            client.client_id: _read(
                self._sessions.get(client.client_id), (client.queued, client.inflight), now, is_new_moving=True
            )
            for client in longest
        }
        gone = [self._context.client(client_id) for client_id in self._sessions if client_id not in sessions]
        for client in (*longest, *filter(None, gone)):
            if everything or client.client_id not in sessions or sessions[client.client_id].is_moving(now):
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


class _Figure(NamedTuple, Generic[T]):
    value: T
    #: When it changed last, in node time.
    changed: float

    def is_moving(self, now: float) -> bool:
        return now - self.changed < SETTLED


def _read(before: _Figure[T] | None, value: T, now: float, *, is_new_moving: bool = False) -> _Figure[T]:
    """A metric that is read for the first time has not changed; a queue that is there has."""
    if before is not None and before.value == value:
        return before
    return _Figure(value, now if before is not None or is_new_moving else -inf)


def _is_telling(name: str) -> bool:
    return not name.startswith(_RESTLESS) and name not in _RESTLESS_NAMES
