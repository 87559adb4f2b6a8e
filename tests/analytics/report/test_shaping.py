from typing import Any

from pyspark.sql import Row

from tests.analytics.events_made import at
from trunkline.analytics.report import shaping
from trunkline.analytics.report.figures import HELD
from trunkline.analytics.report.results import (
    AlarmTime,
    Correction,
    Denial,
    EndCount,
    Health,
    LimitChange,
    NodeSums,
    QueueReading,
    Window,
)
from trunkline.events.layout import NodeKey


def sums(
    sort: str, second: float, events: int, bytes: int = 0, why: str | None = None, node: str = "n1"
) -> dict[str, Any]:
    return {"time": at(second), "node": node, "sort": sort, "reason": why, "events": events, "bytes": bytes}


def test_sums_become_windows() -> None:
    timeline = [
        sums("delivered", 1, 3, 30),
        sums("connected", 1, 2),
        sums("published", 0, 1, 10),
        sums("published", 1, 2, 20),
        sums("refused", 0, 5),
        sums("dropped", 1, 9, 0, "expired"),
    ]
    assert shaping.windows(timeline) == [
        Window(at(0), published=1, published_bytes=10, refused=5),
        Window(at(1), published=2, published_bytes=20, delivered=3, delivered_bytes=30, connected=2),
    ]


def test_a_reading_holds_until_the_next_or_the_end_of_its_node() -> None:
    def reading(node: str, begin: float, length: int, last: int, time: float) -> Row:
        return Row(time=at(begin), node=node, client_id="c", length=length, last=last, at=at(time))

    rows = [reading("n1", 0, 200, 0, 4), reading("n2", 0, 7, 7, 3), reading("n1", 20, 9, 9, 20)]
    health = [
        Health("n1@1", "n1", at(0), at(5000), 100, 0, 0, 0, "running"),
        Health("n2@1", "n2", at(0), at(2), 100, 0, 0, 0, "killed"),
        Health("n2@2", "n2", at(3), at(30), 100, 0, 0, 0, "killed"),
        Health("n2@3", "n2", at(50), at(90), 100, 0, 0, 0, "running"),
    ]
    assert sorted(shaping.held(rows, health)) == [
        QueueReading(at(0), "c", 7, 7, at(30)),
        QueueReading(at(0), "c", 200, 0, at(20)),
        QueueReading(at(20), "c", 9, 9, at(20 + HELD)),
    ]


def test_denials_of_connections_tell_why_and_others_what() -> None:
    refused = {"client_id": "c", "peer": "p", "action": "connect", "topic": None, "reason_code": 0x87, "times": 2}
    assert shaping.denial(refused) == Denial("c", "p", "connect", "not authorized", 2)
    message = {"client_id": "c", "peer": None, "action": "publish", "topic": "t", "reason_code": None, "times": 1}
    assert shaping.denial(message) == Denial("c", "", "publish", "t", 1)


def test_what_is_missing_counts_for_its_incarnation() -> None:
    def found(check: str, rows: int, incarnation: int = 1) -> dict[str, Any]:
        times = {"since": at(0), "until": at(9)}
        return {"check": check, "node": "n", "incarnation": incarnation, "rows": rows, "reason": "killed", **times}

    rows = [
        found("gap", 3),
        found("gap", 4),
        found("lost", 5),
        found("dropped", 6),
        found("corrupt", 7),
        found("unread", 8),
        found("gap", 1, incarnation=2),
        found("incarnation", 100),
        found("incarnation", 200, incarnation=2),
    ]
    assert shaping.health(rows) == [
        Health("n@1", "n", at(0), at(9), 100, 20, 6, 7, "killed"),
        Health("n@2", "n", at(0), at(9), 200, 1, 0, 0, "killed"),
    ]


def test_ends_and_nodes_are_sums() -> None:
    timeline = [
        sums("disconnected", 1, 2, why="142"),
        sums("disconnected", 2, 3, why="142", node="n2"),
        sums("disconnected", 2, 2, why="128"),
        sums("ended", 1, 4, why="expired"),
        sums("ended", 1, 1, why="clean start"),
        sums("taken over", 1, 7),
        sums("published", 1, 9),
    ]
    assert shaping.ends(timeline) == [
        EndCount("session", "taken over", 7),
        EndCount("connection", "session taken over", 5),
        EndCount("session", "expired", 4),
        EndCount("connection", "lost, or closed without a DISCONNECT", 2),
        EndCount("session", "clean start", 1),
    ]
    assert shaping.nodes(timeline, {"n2": ["1.0", "1.1"], "n3": ["1.1"]}, {"n2": 3}) == [
        NodeSums("n1", "", 0, 0, 9, 0, 0),
        NodeSums("n2", "1.0, 1.1", 3, 0, 0, 0, 0),
        NodeSums("n3", "1.1", 0, 0, 0, 0, 0),
    ]


def told(kind: str, second: float, node: str = "n1", incarnation: int = 1, **columns: object) -> dict[str, Any]:
    empty = {"name": None, "value": None, "reason": None}
    return {"node": node, "incarnation": incarnation, "time": at(second), "kind": kind, **empty, **columns}


FACTS = [
    told("exporter.started", 0, reason="1.0"),
    told("exporter.records", 0, name="message.publish", reason="topics"),
    told("exporter.records", 0, name="message.dropped", reason="topics"),
    told("node.limit", 0, name="session.max_queue_length", value=40.0),
    told("alarm.active", 1, name="hot", reason="too hot"),
    told("alarm.activated", 2, name="full", reason="x"),
    told("alarm.deactivated", 3, name="hot", reason="too hot"),
    told("node.clock", 4, value=-5.0),
    told("alarm.activated", 5, "n2", name="lost"),
    told("exporter.started", 6, "n2", 2, reason="1.1"),
    told("exporter.records", 6, "n2", 2, name="message.publish"),
    told("exporter.started", 7, incarnation=3, reason="1.2"),
    told("exporter.records", 7, incarnation=3, name="message.publish"),
    told("node.limit", 7, incarnation=3, name="session.max_queue_length", value=1000.0),
    told("alarm.active", 7, incarnation=3, name="full", reason="x"),
    told("alarm.active", 8, incarnation=3, name="full", reason="x"),
]
RUNNING = [NodeKey("n1", 1), NodeKey("n1", 3), NodeKey("n2", 2)]


def test_facts_of_nodes() -> None:
    assert shaping.facts(FACTS, at(0), RUNNING) == {
        "alarms": [
            AlarmTime("n1", "hot", "too hot", None, at(3)),
            AlarmTime("n2", "lost", "", at(5), at(6)),
            AlarmTime("n1", "full", "x", at(2), at(7)),
            AlarmTime("n1", "full", "x", None, None),
        ],
        "corrections": [Correction("n1", at(4), -5.0)],
        "limits": [LimitChange("n1", at(7), "session.max_queue_length", 40.0, 1000.0)],
        "versions": {"n1": ["1.0", "1.2"], "n2": ["1.1"]},
        "starts": {"n1": 2, "n2": 1},
        "recorded": frozenset(["message.publish"]),
        "narrowed": ["topics"],
    }
    assert shaping.facts([], at(0), RUNNING)["recorded"] is None, "the log does not say it"


def test_what_was_before_the_period_is_still_on() -> None:
    found = shaping.facts(FACTS[:9], at(4.5), RUNNING[:1])
    assert (
        found["alarms"] == [AlarmTime("n2", "lost", "", at(5), None), AlarmTime("n1", "full", "x", at(2), None)][::-1]
    )
    assert (found["corrections"], found["starts"]) == ([], {"n1": 0})
    assert found["versions"] == {"n1": ["1.0"]}
    assert found["recorded"] == {"message.publish", "message.dropped"}
