"""The connections of a test's broker, and the state of each: refused, connected, ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from sys import maxsize
from typing import TYPE_CHECKING, Final

from trunkline.mqtt.reasons import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.packets import Connack

#: The number of connections that are kept.
MAX_ROWS: Final = 1000
#: Client ids that are known.
MAX_IDS: Final = 100_000


@dataclass(slots=True, eq=False)
class ConnectionRow:
    """A connection that was answered with a CONNACK."""

    client_id: str
    #: The client's address.
    address: str
    #: Seconds since the epoch, by the broker's clock.
    at: float
    #: Why it was refused, as named by `trunkline.mqtt.reasons`; empty if it was accepted.
    refused: str = ""
    #: How it ended; empty as long as it has not.
    ended: str = ""

    @property
    def open(self) -> bool:
        return not (self.refused or self.ended)

    def __str__(self) -> str:
        state = f"refused ({self.refused})" if self.refused else f"gone ({self.ended})" if self.ended else "connected"
        return f"{self.client_id}: {state}"


class ConnectionLog:
    """Records connections by hooks."""

    def __init__(self, hooks: Hooks, wall: Callable[[], float]) -> None:
        """`wall` is the broker's time in seconds since the epoch."""
        self._hooks = hooks
        self._wall = wall
        self._rows: deque[ConnectionRow] = deque(maxlen=MAX_ROWS)
        #: The client ids so far, unless there were too many.
        self._ids: set[str] = set()
        #: The connections that have not ended.
        self._open: dict[ClientInfo, ConnectionRow] = {}
        for point, callback in self._callbacks():
            hooks.add(point, callback, priority=maxsize)

    def close(self) -> None:
        for point, callback in self._callbacks():
            self._hooks.remove(point, callback)

    def _callbacks(self) -> tuple[tuple[str, Callable[..., None]], ...]:
        return ("client.connack", self._answered), ("client.disconnected", self._gone)

    def rows(self) -> list[ConnectionRow]:
        """In the order in which they were answered."""
        return list(self._rows)

    def may_know(self, client_id: str) -> bool:
        """Whether a client with this id has connected; True as well if there were too many to tell."""
        return client_id in self._ids or len(self._ids) >= MAX_IDS

    def clear(self) -> None:
        self._ids.clear()
        self._rows.clear()
        self._open.clear()

    def _answered(self, client: ClientInfo, packet: Connack) -> None:
        row = ConnectionRow(client.client_id, client.address, self._wall())
        self._rows.append(row)
        if len(self._ids) < MAX_IDS:
            self._ids.add(client.client_id)
        if packet.reason:
            row.refused = name_of(packet.reason)
        else:
            self._open[client] = row

    def _gone(self, client: ClientInfo, reason: int, text: str) -> None:
        row = self._open.pop(client, None)
        if row is not None:
            word = name_of(reason) if reason else "normal_disconnection"
            row.ended = f"{word}: {text}" if text else word
