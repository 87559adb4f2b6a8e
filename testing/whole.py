"""The shards of a test's broker as one broker: what all of them have, and the one that has it."""

from __future__ import annotations

from heapq import merge
from operator import attrgetter
from sys import maxsize
from typing import TYPE_CHECKING, Final

from trunkline.broker.whole_figures import summed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.node.admin import Admin
    from trunkline.broker.views import RetainedRow, SubscriptionRow
    from trunkline.hooks.alarm import Alarm
    from trunkline.plugins.context import Client

#: How metrics begin of the process, which all shards share.
_PROCESS: Final = "process."


class Whole:
    def __init__(self, shards: Sequence[Admin]) -> None:
        """By number. One is a broker of its own."""
        self.shards = shards
        #: Clients connect to it, and it publishes what the test does.
        self.first = shards[0]

    def home(self, client_id: str) -> Admin:
        """Where this client has its session; if it has none, the first."""
        return next((shard for shard in self.shards if client_id in shard.clients), self.first)

    def sessions(self) -> list[Client]:
        """By client id."""
        pages = [shard.clients.page(limit=maxsize) for shard in self.shards]
        return list(merge(*pages, key=attrgetter("client_id")))

    def subscriptions(self) -> list[SubscriptionRow]:
        """By topic filter and client id: those that all shards know of that can be reached."""
        if len(self.shards) == 1:
            return self.first.routes.subscriptions()
        rows = [
            row
            for number, shard in enumerate(self.shards)
            for row in shard.routes.subscriptions()
            if self._is_known(row.filter, number)
        ]
        return sorted(rows, key=attrgetter("filter", "client_id"))

    def _is_known(self, filter: str, home: int) -> bool:
        for number, shard in enumerate(self.shards):
            if number != home and shard.shards is not None:
                peer = shard.shards.peers[home]
                if peer.is_up and filter not in peer.routes:
                    return False
        return True

    def retained(self) -> list[RetainedRow]:
        """By topic, the newest that any shard has."""
        if len(self.shards) == 1:
            return self.first.retained.all()
        tables = [{row.topic: row for row in shard.retained.all()} for shard in self.shards]
        found: list[RetainedRow] = []
        for topic in sorted({topic for table in tables for topic in table}):
            versions = [0 if shard.shards is None else shard.shards.retained_version(topic) for shard in self.shards]
            row = tables[versions.index(max(versions))].get(topic)
            if row is not None:
                found.append(row)
        return found

    def alarms(self) -> list[Alarm]:
        """In the order in which they began, each once."""
        every = [alarm for shard in self.shards for alarm in shard.alarms.active]
        if len(self.shards) > 1:
            every.sort(key=attrgetter("since"))
        found: dict[str, Alarm] = {}
        for alarm in every:
            found.setdefault(alarm.name, alarm)
        return list(found.values())

    async def figures(self) -> dict[str, int]:
        """All counters and gauges."""
        tables = [await shard.figures() for shard in self.shards]
        process = {name: value for name, value in tables[0].items() if name.startswith(_PROCESS)}
        return summed(tables) | process
