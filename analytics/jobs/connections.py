"""Tracks the connections to a node."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from trunkline.analytics.jobs.machines import Machine, Result, Subject
from trunkline.mqtt.reasons import Reason

_SECOND: Final = 1_000_000
#: By how much a connection may have been recorded before the beginning that its end names: clocks are set now and then.
_FIT: Final = 5 * _SECOND
#: So long after a client has connected again, the end of its former connection may still come.
_GRACE: Final = 10 * _SECOND
_HOW: Final[dict[int | None, str]] = {
    None: "unrecorded",
    Reason.SUCCESS: "left",
    Reason.DISCONNECT_WITH_WILL: "left",
    Reason.UNSPECIFIED_ERROR: "lost",
    Reason.SERVER_SHUTTING_DOWN: "shutdown",
    Reason.KEEP_ALIVE_TIMEOUT: "keep_alive",
    Reason.SESSION_TAKEN_OVER: "taken_over",
    Reason.ADMINISTRATIVE_ACTION: "kicked",
}


class ConnectionEvent(NamedTuple):
    """An event of a client, or of the node itself."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    client_id: str
    username: str | None
    peer: str | None
    listener: str | None
    protocol: int | None
    weight: int
    reason_code: int | None
    reason: str | None
    latency_us: int | None
    peer_port: int | None = None


class OpenConnection(NamedTuple):
    client_id: str
    began: int
    username: str | None
    peer: str | None
    listener: str | None
    protocol: int | None
    weight: int
    #: When the same client connected again although this connection had not ended; 0 if it has not.
    replaced: int = 0
    peer_port: int | None = None
    #: When the client's former connection was recorded, or nothing was known of any: an end that names an earlier
    #: beginning is not of this one.
    former: int = 0


class Connections(Machine[ConnectionEvent]):
    """Connections of a node, from their beginning to their end. Times are microseconds.

    A client that starts afresh leaves its former session behind, whose end may be recorded after the new connection has
    begun. So a client may have several open connections. A disconnection belongs to the one from the same address and
    port. Where ports are not known, it is the first one that was recorded after the beginning that the disconnection
    names: its CONNECT, which the login follows, however long that takes.
    """

    def __init__(self, timeout: int, tells_open: bool, subject: Subject) -> None:
        self._node = subject.name
        self._timeout = timeout
        self._tells_open = tells_open
        self._incarnation = -1
        #: Connections from before are not known.
        self._since = 0
        #: The latest event of the node itself. Its clients do not count as a sign of life: a machine sees only some of
        #: them.
        self._alive = 0
        #: Whether it has heartbeats, and whether its exporter stopped in order.
        self._ticks = self._stopped = False
        #: The newest one of each client.
        self._open: dict[str, OpenConnection] = {}
        #: Those that were replaced, in the order in which they were.
        self._replaced: list[OpenConnection] = []

    def event(self, event: ConnectionEvent) -> Iterator[Result]:
        if event.incarnation > self._incarnation:
            if not self._stopped:
                yield from self._killed()
            self._incarnation, self._since = event.incarnation, event.at
            self._ticks = self._stopped = False
        if event.at > self._alive + self._timeout:  # it lives without heartbeats
            self._ticks = False
        if event.kind == "client.connected":
            former = self._open.pop(event.client_id, None)
            if former is not None:
                self._replaced.append(former._replace(replaced=event.at))
            since = self._since if former is None else former.began
            self._open[event.client_id] = _begun(event, event.at)._replace(former=since)
        elif event.kind == "client.disconnected":
            yield self._disconnected(event)
        else:
            self._alive = event.at
            self._ticks = self._ticks or event.kind == "node.tick"
            self._stopped = event.kind == "exporter.stopped"
        self._wait()

    def _disconnected(self, event: ConnectionEvent) -> Result:
        candidates = [one for one in self._replaced if one.client_id == event.client_id]
        if event.client_id in self._open:
            candidates.append(self._open[event.client_id])
        began = None if event.latency_us is None else event.at - event.latency_us
        candidates = [one for one in candidates if self._fits(one, event, began)]
        if began is not None:
            candidates.sort(key=lambda one: abs(one.began - began))
        end = {"how": _HOW.get(event.reason_code, "error"), "reason_code": event.reason_code, "reason": event.reason}
        if not candidates:  # it began before the record did
            row = self._row(_begun(event, event.at if began is None else began), event.at, **end)
            return row if began is not None else row | {"began": None, "duration": None}
        connection = candidates[0]
        if connection.replaced:
            self._replaced.remove(connection)
        else:
            del self._open[event.client_id]
        return self._row(connection, event.at, **end)

    def _fits(self, one: OpenConnection, event: ConnectionEvent, began: int | None) -> bool:
        if one.peer_port and event.peer_port:
            return (one.peer, one.peer_port) == (event.peer, event.peer_port)
        if began is None:
            return True
        return began - _FIT <= one.began and (one.began <= began + _FIT or began > one.former)

    def _all(self) -> list[OpenConnection]:
        return [*self._replaced, *self._open.values()]

    def _killed(self) -> Iterator[Result]:
        for connection in self._all():
            yield self._row(connection, max(self._alive, connection.began), how="node_killed")
        self._replaced.clear()
        self._open.clear()

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self._is_mortal() and self._alive + self._timeout <= self.due:
            yield from self._killed()
            self._since = self.due
        while self._replaced and self._replaced[0].replaced + _GRACE <= self.due:
            connection = self._replaced.pop(0)
            # that the client came again is all that is known of the end
            yield self._row(connection, connection.replaced, how="unrecorded")
        self._wait()

    def _is_mortal(self) -> bool:
        """Whether missing heartbeats mean that it was killed."""
        return self._ticks and not self._stopped

    def _wait(self) -> None:
        times = [one.replaced + _GRACE for one in self._replaced[:1]]
        if self._is_mortal() and (self._open or self._replaced):
            times.append(self._alive + self._timeout)
        self.due = min(times, default=None)

    def end(self, now: int) -> Iterator[Result]:
        if self._tells_open:
            for connection in self._all():
                yield self._row(connection, now, how="open") | {"ended": None}

    def _row(self, connection: OpenConnection, ended: int, **end: object) -> Result:
        row = connection._asdict()
        del row["replaced"], row["peer_port"], row["former"]
        return row | {"node": self._node, "ended": ended, "duration": (ended - connection.began) / _SECOND} | end

    def knows_nothing(self) -> bool:
        return False

    def save(self) -> list[Any]:
        newest = list(self._open.values())
        return [self._incarnation, self._since, self._alive, self._ticks, self._stopped, newest, self._replaced]

    def load(self, saved: list[Any]) -> None:
        self._incarnation, self._since, self._alive, self._ticks, self._stopped, newest, replaced = saved
        self._open = {fields[0]: OpenConnection(*fields) for fields in newest}
        self._replaced = [OpenConnection(*fields) for fields in replaced]


def _begun(event: ConnectionEvent, began: int) -> OpenConnection:
    return OpenConnection(
        event.client_id,
        began,
        event.username,
        event.peer,
        event.listener,
        event.protocol,
        event.weight,
        peer_port=event.peer_port,
    )
