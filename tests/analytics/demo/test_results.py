import json

from trunkline.analytics.demo.reference import SECOND
from trunkline.analytics.demo.results import Received
from trunkline.analytics.sinks.deduplicator import BATCH, ROW
from trunkline.mqtt.packets import Publish

NOON = 1_748_779_200


def message(topic: str, row: object, number: int | None = None) -> Publish:
    found = Publish(f"$analytics/{topic}", row if isinstance(row, bytes) else json.dumps(row).encode())
    if number is not None:
        found.properties = {"user_property": [(BATCH, "q/1"), (ROW, f"0/{number}")]}
    return found


def window(second: int, **columns: object) -> dict[str, object]:
    return {
        "window_start": f"2025-06-01T12:00:{second:02}.000000Z",
        "window_end": f"2025-06-01T12:00:{second + 5:02}.000000Z",
        **columns,
    }


def test_rows_are_kept_by_their_keys_with_times_as_numbers() -> None:
    received = Received()
    received.take(message("latency/a/1", window(5, node="n", prefix="a", qos=1, delivered=3)), NOON + 12)
    (row,) = received.rows["latency"].values()
    assert list(received.rows["latency"]) == [((NOON + 5) * SECOND, "n", "a", 1)]
    assert (row["window_end"], row["delivered"]) == ((NOON + 10) * SECOND, 3)
    assert received.behind == 2


def test_microseconds_are_kept() -> None:
    received = Received()
    alert = {
        "subject": "c",
        "state": "begin",
        "time": "2025-06-01T12:00:00.123457Z",
        "began": "2025-06-01T12:00:00.123457Z",
    }
    received.take(message("flapping/c", alert), NOON)
    assert list(received.rows["flapping"]) == [("c", "begin", NOON * SECOND + 123_457)]


def test_repeats_are_dropped_by_their_numbers() -> None:
    received = Received()
    for number in (1, 2, 1):
        received.take(message("traffic/1", window(number, rank=1), number), NOON)
    assert (len(received.rows["traffic"]), received.repeats) == (2, 1)


def test_what_is_no_result_is_counted() -> None:
    received = Received()
    for topic, row in (
        ("traffic/1", b"\xff"),
        ("traffic/1", []),
        ("traffic/1", {"rank": 1}),
        ("traffic/1", {"rank": 1, "window_start": "then"}),
        ("traffic/1", {"rank": 1, "window_start": 7}),
        ("weather", window(0)),
    ):
        received.take(message(topic, row), NOON)
    assert received.strange == 6
    assert not any(received.rows.values())


def test_the_newest_window_is_told_in_order() -> None:
    received = Received()
    assert received.newest("traffic") == []
    for second, rank in ((5, 2), (5, 1), (0, 1)):
        received.take(message("traffic/1", window(second, rank=rank)), NOON)
    assert [(row["window_start"], row["rank"]) for row in received.newest("traffic")] == [
        ((NOON + 5) * SECOND, 1),
        ((NOON + 5) * SECOND, 2),
    ]


def test_those_that_flap_still_come_first() -> None:
    received = Received()
    for subject, state, second in (("a", "begin", 1), ("b", "begin", 2), ("a", "end", 9)):
        row = {
            "subject": subject,
            "state": state,
            "time": f"2025-06-01T12:00:0{second}Z",
            "began": "2025-06-01T12:00:01Z",
        }
        received.take(message("flapping/x", row), NOON)
    assert [(row["subject"], row["state"]) for row in received.flapping()] == [("b", "begin"), ("a", "end")]
