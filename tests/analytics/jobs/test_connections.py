"""Tracks the connections to a node."""

from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.analytics.events_made import microseconds
from tests.analytics.jobs import plain
from tests.broker.room import room
from trunkline.analytics.jobs.connections import ConnectionEvent, Connections
from trunkline.analytics.jobs.machines import Subject, play
from trunkline.events.reader import EventLog

SECOND = 1_000_000
N1 = Subject("node", "n1")
numbers = iter(range(10**9))


def seen(kind: str, at: float, client: str | None = None, *, incarnation: int = 1, **columns: Any) -> ConnectionEvent:
    return ConnectionEvent(
        **{
            "at": round(at * SECOND),
            "node": "n1",
            "incarnation": incarnation,
            "seq": next(numbers),
            "kind": kind,
            "client_id": client,
            "username": "u",
            "peer": "p",
            "listener": "tcp",
            "protocol": 5,
            "weight": 1,
            "reason_code": None,
            "reason": None,
            "latency_us": None,
            "peer_port": None,
            **columns,
        }
    )


def connected(at: float, client: str = "c", **columns: Any) -> ConnectionEvent:
    return seen("client.connected", at, client, **columns)


def left(at: float, lasted: float | None, client: str = "c", code: int | None = 0, **columns: Any) -> ConnectionEvent:
    latency = None if lasted is None else round(lasted * SECOND)
    return seen("client.disconnected", at, client, latency_us=latency, reason_code=code, **columns)


def tick(at: float, **columns: Any) -> ConnectionEvent:
    return seen("node.tick", at, **columns)


def told(*events: ConnectionEvent, until: float = 1000.0) -> list[tuple[str, float | None, float | None, str]]:
    """Client, beginning and end in seconds, and how it ended."""
    machine = Connections(60 * SECOND, True, N1)
    end = round(until * SECOND)
    rows = [*play(machine, events, end), *machine.end(end)]
    return [(row["client_id"], _seconds(row["began"]), _seconds(row["ended"]), row["how"]) for row in rows]


def _seconds(at: int | None) -> float | None:
    return None if at is None else at / SECOND


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (0x00, "left"),
        (0x04, "left"),
        (0x80, "lost"),
        (0x82, "error"),
        (0x8B, "shutdown"),
        (0x8D, "keep_alive"),
        (0x8E, "taken_over"),
        (0x98, "kicked"),
        (0xFF, "error"),
        (None, "unrecorded"),
    ],
)
def test_its_reason_code_says_how_a_connection_ended(code: int | None, how: str) -> None:
    assert told(connected(1), left(3, 2, code=code)) == [("c", 1, 3, how)]


def test_a_row_says_all_that_is_known() -> None:
    machine = Connections(60 * SECOND, True, N1)
    events = [connected(1, weight=4), left(3.5, 2.5, code=0x8D, reason="the client was silent")]
    assert list(play(machine, events, 10 * SECOND)) == [
        {
            "client_id": "c",
            "began": SECOND,
            "ended": 3_500_000,
            "duration": 2.5,
            "how": "keep_alive",
            "reason_code": 0x8D,
            "reason": "the client was silent",
            "node": "n1",
            "username": "u",
            "peer": "p",
            "listener": "tcp",
            "protocol": 5,
            "weight": 4,
        }
    ]


def test_a_connection_from_before_the_record_is_as_long_as_its_end_says() -> None:
    assert told(left(10, 30)) == [("c", -20, 10, "left")]


def test_where_nothing_says_when_it_began_that_is_not_known() -> None:
    assert told(left(10, None)) == [("c", None, 10, "left")]


def test_an_end_that_does_not_say_ends_the_connection_that_is_open() -> None:
    assert told(connected(1), left(3, None)) == [("c", 1, 3, "left")]


def test_the_end_of_a_session_that_was_left_behind_may_come_after_the_new_connection() -> None:
    events = [connected(1), connected(5), left(5.1, 4.1, code=0x8E), left(9, 4)]
    assert told(*events) == [("c", 1, 5.1, "taken_over"), ("c", 5, 9, "left")]


@pytest.mark.parametrize("login", [0, 4, 6, 30])
def test_a_login_takes_as_long_as_it_takes(login: float) -> None:
    """An end names the CONNECT as the beginning of its connection."""
    events = [tick(0), connected(10 + login), left(60, 50), connected(100 + login), tick(150), left(160, 60)]
    machine = Connections(1000 * SECOND, True, N1)
    rows = list(play(machine, events, 200 * SECOND))
    assert [(row["began"], row["ended"]) for row in rows] == [
        ((10 + login) * SECOND, 60 * SECOND),
        ((100 + login) * SECOND, 160 * SECOND),
    ]


def test_its_port_tells_a_connection_from_others() -> None:
    """The former one is from before the record, and its end comes late."""
    events = [connected(100, peer_port=2), left(101, 95, code=0x8E, peer_port=1), left(200, 110, peer_port=2)]
    assert told(*events) == [("c", 6, 101, "taken_over"), ("c", 100, 200, "left")]
    corrected = [connected(100, peer_port=2), left(4000, 60, peer_port=2)]  # the clock was put forward
    assert told(*corrected, until=5000) == [("c", 100, 4000, "left")]


def test_without_ports_an_end_from_before_the_record_is_not_taken_for_a_long_login() -> None:
    events = [tick(50), connected(100), tick(101), left(101, 95), tick(150), left(200, 100)]
    assert told(*events) == [("c", 6, 101, "left"), ("c", 100, 200, "left")]


def test_an_end_that_comes_after_it_was_given_up_is_not_that_of_the_next_connection() -> None:
    events = [connected(1), connected(50), left(70, 69), left(90, 40)]
    assert told(*events) == [("c", 1, 50, "unrecorded"), ("c", 1, 70, "left"), ("c", 50, 90, "left")]


def test_an_end_that_was_not_recorded_is_given_up_when_the_client_has_come_again() -> None:
    assert told(connected(1), connected(5), left(30, 25)) == [("c", 1, 5, "unrecorded"), ("c", 5, 30, "left")]


def test_an_end_that_fits_no_connection_is_of_one_that_was_not_recorded() -> None:
    assert told(connected(1), left(30, 3), left(40, 39)) == [("c", 27, 30, "left"), ("c", 1, 40, "left")]


def test_what_is_open_at_the_end_of_the_record_is_open() -> None:
    assert told(connected(1), until=7) == [("c", 1, None, "open")]


def test_nobody_asked_for_what_is_open() -> None:
    machine = Connections(60 * SECOND, False, N1)
    list(play(machine, [connected(1)], SECOND))
    assert list(machine.end(SECOND)) == []


def test_connections_end_with_a_node_that_was_killed() -> None:
    events = [connected(1), tick(5), seen("exporter.started", 20, incarnation=2), connected(22, incarnation=2)]
    assert told(*events, until=30) == [("c", 1, 5, "node_killed"), ("c", 22, None, "open")]


def test_connections_outlive_an_exporter_that_stopped() -> None:
    events = [connected(1), tick(5), seen("exporter.stopped", 6), seen("exporter.started", 500, incarnation=2)]
    assert told(*events, left(502, 501, incarnation=2)) == [("c", 1, 502, "left")]


def test_connections_end_with_a_node_of_which_nothing_is_heard() -> None:
    assert told(connected(1), tick(5), connected(6, "d"), until=64.9) == [
        ("c", 1, None, "open"),
        ("d", 6, None, "open"),
    ]
    assert told(connected(1), tick(5), connected(6, "d"), until=65) == [
        ("c", 1, 5, "node_killed"),
        ("d", 6, 6, "node_killed"),
    ]


def test_a_node_whose_heart_beats_at_the_last_moment_lives() -> None:
    assert told(connected(1), tick(5), tick(65), until=66) == [("c", 1, None, "open")]


def test_a_node_that_has_no_heartbeat_is_not_dead() -> None:
    assert told(connected(1), until=1000) == [("c", 1, None, "open")]
    # nor is one that goes on without it
    assert told(tick(1), connected(100), until=1000) == [("c", 100, None, "open")]


def test_whose_node_was_silent_ends_once_more_when_the_truth_is_known() -> None:
    assert told(connected(1), tick(5), tick(100), left(102, 101)) == [("c", 1, 5, "node_killed"), ("c", 1, 102, "left")]


steps = st.tuples(
    st.sampled_from(["tick", "tick", "connect", "end", "end the oldest"]), st.integers(0, 200), st.sampled_from("ab")
)


@given(st.lists(steps, max_size=25, unique_by=lambda step: step[1]))
def test_it_tells_what_plain_python_finds(script: list[tuple[str, int, str]]) -> None:
    """Ends say when their connection began; connections of a client begin far enough apart for that to be clear."""
    events, begun, latest = [tick(0)], dict[str, list[int]](a=[], b=[]), dict[str, int]()
    for what, at, client in sorted(script, key=lambda step: step[1]):
        if what == "tick":
            events.append(tick(at))
        elif what == "connect":
            if at > latest.get(client, -11) + 10:
                begun[client] = [began for began in begun[client] if began == latest[client]] + [at]
                latest[client] = at
                events.append(connected(at, client))
        else:
            before_the_record = -100 - 20 * at
            if len(begun[client]) > 1 and at > latest[client] + 10:  # nobody waits for the former one's end any more
                del begun[client][0]
            began = begun[client].pop(-1 if what == "end" else 0) if begun[client] else before_the_record
            events.append(left(at, at - began, client))
    rows = [{**event._asdict(), "time": plain.moment(event.at)} for event in events]
    machine = Connections(40 * SECOND, True, N1)
    until = 300 * SECOND
    found = [*play(machine, events, until), *machine.end(until)]
    wanted = plain.connections(rows, 40 * SECOND, until)

    def key(row: Any) -> Any:
        return str((row["client_id"], row["began"], row["ended"], row["how"]))

    for row in found:
        row["began"] = plain.moment(row["began"])
        row["ended"] = None if row["ended"] is None else plain.moment(row["ended"])
    assert sorted(map(key, found)) == sorted(map(key, wanted))


async def test_a_brokers_own_record_tells_how_each_connection_ended(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with room(plugins={"events": {"path": str(tmp_path)}}) as here:
        leaving = await here.client("leaving")
        lost = await here.client("lost")
        await here.client("mute", keep_alive=10)
        await here.client("kicked")
        await here.client("twin")
        await here.stay("stayed")
        await here.client("staying")
        await trio.sleep(3)
        await leaving.disconnect()
        await lost.abort()
        here.broker.kick("kicked")
        await here.client("twin")
        await here.stay("stayed")
        await trio.sleep(27)
        await here.broker.restart(graceful=True)
    log = EventLog(tmp_path)
    log.refresh()
    node, extent = min(log.nodes().items())  # what came before the restart
    rows = [
        row
        for batch in log.read(node, extent.first, extent.end)
        for row in batch.to_pylist()
        if row["kind"].startswith(("client.connected", "client.disconnected", "exporter.", "node.tick"))
    ]
    events = [
        ConnectionEvent(
            microseconds(row["time"]), **{name: row[name] for name in ConnectionEvent._fields if name != "at"}
        )
        for row in plain.in_order(rows)
    ]
    machine = Connections(60 * SECOND, True, N1)
    found = [*play(machine, events, events[-1].at), *machine.end(events[-1].at)]
    assert sorted((row["client_id"], row["how"], round(row["duration"])) for row in found) == [
        ("kicked", "kicked", 3),
        ("leaving", "left", 3),
        ("lost", "lost", 3),
        ("mute", "keep_alive", 15),
        ("stayed", "shutdown", 27),
        ("stayed", "taken_over", 3),
        ("staying", "shutdown", 30),
        ("twin", "shutdown", 27),
        ("twin", "taken_over", 3),
    ]
