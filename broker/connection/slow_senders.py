"""Disconnects clients that send a packet slower than any network.

Each byte of a packet shows that its client is alive, so the keep-alive alone lets a client hold the memory of a packet
for ever. One task checks all connections; a message on its way pays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trunkline.broker.net.protocol import ProtocolActor

#: Maximum seconds between two checks.
INTERVAL: Final = 10.0
#: Connections checked before other work gets its turn.
CHECKED_AT_ONCE: Final = 1000


class SlowSenders:
    def __init__(self, connections: Callable[[], Iterable[ProtocolActor[Any]]], timeout: float, rate: int) -> None:
        """A packet may take `timeout` seconds, and a second more for each `rate` bytes that have come."""
        self._connections = connections
        self._timeout = timeout
        self._limit = f"packet_timeout = {timeout:g}s, min_packet_rate = {rate}"
        self._rate = rate
        self._interval = min(INTERVAL, timeout)
        #: The connections that hold a part of a packet: its number, and its age in seconds. Checks are counted rather
        #: than the time, because a process that was suspended has not read what came.
        self._held: dict[ProtocolActor[Any], tuple[int, float]] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await trio.sleep(self._interval)
            await self.check()

    async def check(self) -> None:
        before, self._held = self._held, dict["ProtocolActor[Any]", tuple[int, float]]()
        for count, connection in enumerate(list(self._connections()), 1):
            held = connection.held_packet
            if held is not None:
                number, size = held
                known, age = before.get(connection, (number, 0.0))
                if known != number:
                    age = 0.0
                elif connection in before and not connection.is_paused:
                    age += self._interval
                if age >= self._timeout + size / self._rate:
                    connection.end_slow_packet(self._limit)
                else:
                    self._held[connection] = number, age
            if not count % CHECKED_AT_ONCE:
                await trio.lowlevel.checkpoint()
