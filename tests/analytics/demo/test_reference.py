from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trunkline.analytics.demo.reference import (
    SECOND,
    Event,
    events,
    flapping,
    latency,
    percentile,
    window_of,
)
from trunkline.analytics.jobs.alerts import Occurrence
from trunkline.analytics.jobs.flapping import FlappingOptions, _machine
from trunkline.analytics.jobs.machines import Subject, play
from trunkline.events.reader import EventLog
from trunkline.testing import broker

START = 1_748_779_200 * SECOND


def event(kind: str, seconds: float, **columns: object) -> Event:
    return Event(
        **{name: None for name in Event._fields}  # type: ignore[arg-type]
        | {"node": "n", "time": START + round(seconds * SECOND), "kind": kind}
        | columns
    )


def message(number: int, seconds: float) -> dict[str, object]:
    born = START + round(seconds * SECOND)
    return {"guid": (born << 64 | number).to_bytes(16, "big"), "topic": "a/b/c", "qos": 1}


def test_a_window_holds_its_beginning() -> None:
    assert [window_of(START + at, 5) - START for at in (0, 1, 5 * SECOND - 1, 5 * SECOND)] == [0, 0, 0, 5 * SECOND]


def test_percentiles_lie_between_neighbours() -> None:
    assert [percentile([10, 20, 40], share) for share in (0, 0.5, 0.75, 1)] == [10, 20, 30, 40]
    assert percentile([7], 0.99) == 7


def test_latency_counts_what_became_of_each_message() -> None:
    first, second = message(1, 1), message(2, 4.9)
    happened = [
        event("message.routed", 1, receivers=2, **first),
        event("message.delivered", 1.1, client_id="c", latency_us=100_000, **first),
        event("message.delivered", 1.5, client_id="c", latency_us=500_000, **first),  # again
        event("message.acked", 1.6, client_id="c", latency_us=600_000, **first),
        event("message.dropped", 1.0, client_id="d", latency_us=0, **first),
        event("message.routed", 5.1, receivers=3, **second),  # published in the window before
        event("message.delivered", 5.2, client_id="c", latency_us=None, **second),
        event("delivery.completed", 5.2, client_id="c", latency_us=300_000, **second),
        event("message.delivered", 5.2, client_id="d", latency_us=300_000, **second),
        event("message.delivered", 9.0, client_id="e", latency_us=4_100_000, **second),  # too late
        event("message.routed", 5.1, receivers=1, topic="$analytics/x", guid=first["guid"], qos=1),
        event("node.tick", 6),
    ]
    found = latency(happened, window=5, within=2, levels=2)
    assert found == {
        (START, "n", "a/b", 1): {
            "messages": 2,
            "receivers": 5,
            "undelivered": 2,
            "dropped": 1,
            "unacked": 1,
            "delivered": 3,
            "acked": 1,
            "p50_us": 300_000,
            "p95_us": 300_000,
            "p99_us": 300_000,
            "max_us": 300_000,
            "ack_p50_us": 600_000,
            "ack_p95_us": 600_000,
            "ack_p99_us": 600_000,
            "ack_max_us": 600_000,
        }
    }


def test_deliveries_of_what_was_never_routed_have_latencies_and_no_loss() -> None:
    found = latency(
        [event("message.delivered", 0.5, client_id="c", latency_us=7, **message(1, 0))], window=5, within=2, levels=9
    )
    row = found[START, "n", "a/b/c", 1]
    assert (row["messages"], row["undelivered"], row["delivered"], row["p50_us"], row["ack_p50_us"]) == (
        0,
        0,
        1,
        7,
        None,
    )


def connections(*seconds: float) -> list[Event]:
    return [event("client.connected", at, client_id="c") for at in seconds]


def told(*seconds: float, until: float = 1000) -> list[tuple[str, float, int]]:
    rows = flapping(connections(*seconds), limit=2, window=10, calm=5, until=START + round(until * SECOND))
    return [(state, (at - START) / SECOND, row["count"]) for (_, state, at), row in rows.items()]


def test_flapping_begins_with_one_too_many_and_ends_when_it_is_calm() -> None:
    assert told(0, 1) == []
    assert told(0, 1, 2) == [("begin", 2, 3), ("end", 15, 3)]
    assert told(0, 1, 10) == []  # the first is as old as the window
    assert told(0, 1, 2, 3) == [("begin", 2, 3), ("end", 16, 4)]
    assert told(0, 1, 2, 14, 15, 16) == [("begin", 2, 3), ("end", 15, 5), ("begin", 16, 3), ("end", 29, 3)]
    assert told(0, 1, 2, until=14) == [("begin", 2, 3)]
    assert told(0, 1, 2, until=1.5) == []


@given(st.lists(st.integers(0, 60 * SECOND), min_size=1, max_size=60, unique=True))
def test_flapping_agrees_with_the_job(times: list[int]) -> None:
    until = START + 50 * SECOND
    options = FlappingOptions(limit=3, window=10.0, calm=4.0)
    numbers = count()
    occurred = [
        Occurrence(START + at, "n", 1, next(numbers), 1, "c", None, None) for at in sorted(times) if START + at <= until
    ]
    machine = _machine(options, Subject("client", "c"))
    expected = {
        ("c", row["state"], row["time"]): {"count": row["count"], "began": row["began"]}
        for row in play(machine, occurred, until)
        if row["time"] <= until
    }
    happened = [event("client.connected", at / SECOND, client_id="c") for at in times]
    found = flapping(happened, limit=3, window=10, calm=4, until=until)
    # at the very end the machine waits: more may come at the same time
    assert {key: row for key, row in found.items() if key[2] < until} == {
        key: row for key, row in expected.items() if key[2] < until
    }


async def test_events_of_a_log_are_read_in_order(tmp_path: Path) -> None:
    async with broker(plugins={"events": {"path": str(tmp_path / "log"), "heartbeat": 0.01}}) as running:
        running.publish("a", b"123", qos=1)
        await running.wait_until(lambda: sum(1 for _ in events(EventLog(tmp_path / "log"))) > 3)
    found = list(events(EventLog(tmp_path / "log")))
    assert [found[0].kind, found[-1].kind] == ["exporter.started", "exporter.stopped"]
    published = next(each for each in found if each.kind == "message.routed")
    assert (published.topic, published.qos, published.size, published.receivers) == ("a", 1, 3, 0)
    assert abs(published.born - published.time) < SECOND
