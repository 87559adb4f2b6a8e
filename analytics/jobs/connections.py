"""What becomes of the connections to a node."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from trunkline.analytics.jobs.machines import Machine, Result
from trunkline.mqtt.reasons import Reason

_SECOND: Final = 1_000_000
#: How well the beginning that a disconnection tells must fit the one that was recorded: clocks are set now and then.
_FIT: Final = 5 * _SECOND
#: So long after a client has connected again, the end of its former connection may still come.
_GRACE: Final = 10 * _SECOND
_HOW: Final[dict[int, str]] = {
    Reason.SUCCESS: "left",
    Reason.DISCONNECT_WITH_WILL: "left",
    Reason.UNSPECIFIED_ERROR: "lost",
    Reason.SERVER_SHUTTING_DOWN: "shutdown",
    Reason.KEEP_ALIVE_TIMEOUT: "keep_alive",
    Reason.SESSION_TAKEN_OVER: "taken_over",
    Reason.ADMINISTRATIVE_ACTION: "kicked",
}


class Seen(NamedTuple):
    """What a node tells of a client, or of itself."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    client_id: str | None
    username: str | None
    peer: str | None
    listener: str | None
    protocol: int | None
    weight: int
    reason_code: int | None
    reason: str | None
    latency_us: int | None


class Connection(NamedTuple):
    client_id: str
    began: int
    username: str | None
    peer: str | None
    listener: str | None
    protocol: int | None
    weight: int
    #: When the same client connected again although this connection had not ended.
    replaced: int | None = None


class Connections(Machine[Seen]):
    """Connections of a node, from their beginning to their end. Times are microseconds.

    A client that starts afresh leaves its former session behind, which may tell of its end after the new connection has
    begun. So a client may have several open connections, and a disconnection belongs to the one that began when it says.
    """

    def __init__(self, node: str, timeout: int, tells_open: bool, saved: list[Any] | None = None) -> None:
        self._node = node
        self._timeout = timeout
        self._tells_open = tells_open
        self._incarnation = -1
        #: The latest that it told of itself. What its clients did is no sign of life: a machine sees only some of them.
        self._alive = 0
        #: Does its heart beat? Did its exporter say that it ends?
        self._ticks = self._stopped = False
        #: The newest one of each client.
        self._open: dict[str, Connection] = {}
        #: Those that were replaced, in the order in which they were.
        self._replaced: list[Connection] = []
        if saved is not None:
            self._incarnation, self._alive, self._ticks, self._stopped, newest, replaced = saved
            for fields in newest:
                self._open[fields[0]] = Connection(*fields)
            self._replaced = [Connection(*fields) for fields in replaced]

    def event(self, event: Seen) -> Iterator[Result]:
        if event.incarnation > self._incarnation:
            if not self._stopped:
                yield from self._killed()
            self._incarnation = event.incarnation
            self._ticks = self._stopped = False
        if event.at > self._alive + self._timeout:  # it lives, whatever its heart does
            self._ticks = False
        if event.kind == "client.connected":
            self._connected(event)
        elif event.kind == "client.disconnected":
            yield self._disconnected(event)
        else:
            self._alive = event.at
            self._ticks = self._ticks or event.kind == "node.tick"
            self._stopped = event.kind == "exporter.stopped"
        self._wait()

    def _connected(self, event: Seen) -> None:
        former = self._open.pop(_client(event), None)
        if former is not None:
            self._replaced.append(former._replace(replaced=event.at))
        self._open[_client(event)] = _begun(event, event.at)

    def _disconnected(self, event: Seen) -> Result:
        client = _client(event)
        candidates = [one for one in self._replaced if one.client_id == client]
        if client in self._open:
            candidates.append(self._open[client])
        began = None if event.latency_us is None else event.at - event.latency_us
        if began is not None:
            candidates = [one for one in candidates if abs(one.began - began) <= _FIT]
            candidates.sort(key=lambda one: abs(one.began - began))
        how = "unrecorded" if event.reason_code is None else _HOW.get(event.reason_code, "error")
        if not candidates:  # it began before the record did
            connection = _begun(event, event.at if began is None else began)
            row = self._row(connection, event.at, how, event.reason_code, event.reason)
            return row if began is not None else row | {"began": None, "duration": None}
        connection = candidates[0]
        if connection.replaced is None:
            del self._open[client]
        else:
            self._replaced.remove(connection)
        return self._row(connection, event.at, how, event.reason_code, event.reason)

    def _killed(self) -> Iterator[Result]:
        for connection in (*self._replaced, *self._open.values()):
            yield self._row(connection, max(self._alive, connection.began), "node_killed")
        self._replaced.clear()
        self._open.clear()

    def expire(self) -> Iterator[Result]:
        assert self.due is not None
        if self._mortal() and self._alive + self._timeout <= self.due:
            yield from self._killed()
        while self._replaced and _given_up(self._replaced[0]) <= self.due:
            connection = self._replaced.pop(0)
            # that the client came again is all that is known of the end
            yield self._row(connection, connection.replaced, "unrecorded")
        self._wait()

    def _mortal(self) -> bool:
        """Would its heart beat if it lived?"""
        return self._ticks and not self._stopped

    def _wait(self) -> None:
        times = [_given_up(self._replaced[0])] if self._replaced else []
        if self._mortal() and (self._open or self._replaced):
            times.append(self._alive + self._timeout)
        self.due = min(times, default=None)

    def end(self, now: int) -> Iterator[Result]:
        if self._tells_open:
            for connection in (*self._replaced, *self._open.values()):
                yield self._row(connection, None, "open") | {"duration": _seconds(connection.began, now)}

    def _row(
        self, connection: Connection, ended: int | None, how: str, code: int | None = None, reason: str | None = None
    ) -> Result:
        return {
            "client_id": connection.client_id,
            "began": connection.began,
            "ended": ended,
            "duration": _seconds(connection.began, ended),
            "how": how,
            "reason_code": code,
            "reason": reason,
            "node": self._node,
            "username": connection.username,
            "peer": connection.peer,
            "listener": connection.listener,
            "protocol": connection.protocol,
            "weight": connection.weight,
        }

    def save(self) -> list[Any]:
        newest = list(self._open.values())
        return [self._incarnation, self._alive, self._ticks, self._stopped, newest, self._replaced]


def _client(event: Seen) -> str:
    assert event.client_id is not None, event
    return event.client_id


def _begun(event: Seen, began: int) -> Connection:
    return Connection(_client(event), began, event.username, event.peer, event.listener, event.protocol, event.weight)


def _given_up(connection: Connection) -> int:
    assert connection.replaced is not None
    return connection.replaced + _GRACE


def _seconds(began: int, ended: int | None) -> float | None:
    return None if ended is None else (ended - began) / 1_000_000
