"""Times to acknowledge, by the machine, by Spark and by plain Python."""

import json
from collections.abc import Iterable
from functools import partial
from math import ceil
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.analytics.events_made import (
    Row,
    at,
    guid,
    microseconds,
    row,
)
from tests.events.recordings import recorded, recording

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.machines import Machines, Subject, play
from trunkline.analytics.jobs.slow_consumers import (
    KINDS,
    PRECISION,
    Answers,
    ConsumerEvent,
    SlowConsumersOptions,
    Times,
)

WINDOW = 10_000_000
PATIENCE = 20_000_000
RULES = SlowConsumersOptions(window=10, unanswered_after=20, max_open=100, max_subscriptions=10)


def seen(rows: Iterable[Row]) -> list[ConsumerEvent]:
    return [
        ConsumerEvent(
            microseconds(one["time"]),
            one["node"],
            one["incarnation"],
            number,
            one["kind"],
            one["weight"],
            one["guid"].hex() if one.get("guid") else None,
            one.get("qos"),
            one.get("reason"),
            one.get("queue_length"),
            one.get("inflight"),
            one.get("inflight_limit"),
            one.get("topic"),
            one.get("filter"),
        )
        for number, one in enumerate(rows)
    ]


def told(rows: Iterable[Row], rules: SlowConsumersOptions = RULES) -> list[Row]:
    """What a machine tells about these events, whose state is saved after each of them."""
    results: list[Row] = []
    saved, due = None, None
    machines = Machines(ConsumerEvent, partial(Answers, rules))
    for event in seen(rows):
        machine = machines.restored(Subject("client", "c"), saved, due)
        results += play(machine, [event], event.at - 1)
        saved, due = json.loads(json.dumps(machine.save())), machine.due
    machine = machines.restored(Subject("client", "c"), saved, due)
    results += play(machine, [], microseconds(at(3600)))
    results += machine.end(microseconds(at(3600)))
    return results


def one(kind: str, time: float, number: int = 1, **columns: object) -> Row:
    return row(kind, time, **{"client_id": "c", "qos": 1, "guid": guid(at(0), number), **columns})


def test_an_acknowledgement_counts_in_the_window_in_which_it_came() -> None:
    (first, second) = told([one("message.delivered", 9.5), one("message.acked", 10.0)])
    begin = microseconds(at(0))
    assert (first["window_start"], first["window_end"]) == (begin, begin + WINDOW)
    assert (first["delivered"], first["acked"], first["ack_p50_us"]) == (1, 0, None)
    assert (second["delivered"], second["acked"], second["ack_max_us"]) == (0, 1, 500_000)
    assert second["ack_p99_us"] == pytest.approx(500_000, rel=PRECISION)


def test_no_percentile_exceeds_the_slowest() -> None:
    for took in (0.169584, 0.17, 0.171, 0.1722):
        (found,) = told([one("message.delivered", 1.0), one("message.acked", 1.0 + took)])
        assert found["ack_p99_us"] <= found["ack_max_us"] == round(took * 1e6)


def test_what_is_repeated_on_a_connection_goes_on_being_late() -> None:
    (found,) = told([one("message.delivered", 0.0), one("message.delivered", 3.0), one("message.acked", 4.0)])
    assert (found["delivered"], found["repeated"], found["repeat_rate"]) == (2, 1, 0.5)
    assert found["ack_max_us"] == 4_000_000


def test_what_is_sent_again_to_a_client_that_came_back_is_as_new() -> None:
    events = [one("message.delivered", 0.0), one("client.connected", 2.0), one("message.delivered", 3.0)]
    (found,) = told([*events, one("message.acked", 4.0)])
    assert (found["delivered"], found["repeated"]) == (2, 1)
    assert found["ack_max_us"] == 1_000_000


def test_what_is_sent_again_is_as_new_before_the_client_counts_as_connected() -> None:
    events = [one("message.delivered", 0.0), one("session.resumed", 2.0), one("message.delivered", 2.0)]
    (found,) = told([*events, one("client.connected", 2.0), one("message.acked", 4.0)])
    assert (found["repeated"], found["ack_max_us"]) == (1, 2_000_000)


def test_nothing_is_waited_for_at_qos_0() -> None:
    assert told([one("message.delivered", 0.0, qos=0)]) == []
    lowered = [one("message.delivered", 0.0, qos=2), one("delivery.completed", 0.0, qos=2)]
    assert [found["unanswered"] for found in told(lowered)] == [0]


def test_nothing_is_waited_for_where_the_subscription_has_qos_0() -> None:
    low, high = one("session.subscribed", 0.0, filter="a/#", qos=0), one("session.subscribed", 1.0, filter="a/+", qos=1)
    message = one("message.delivered", 2.0, topic="a/b", qos=2)
    assert told([low, message]) == told([low | {"kind": "session.subscription"}, message]) == []
    (found,) = told([low, high, message, one("message.acked", 3.0)])
    assert (found["delivered"], found["ack_max_us"]) == (1, 1_000_000)
    # of another topic, and of subscriptions that are gone, nothing is known
    for unknown in (
        [low, message | {"topic": "b"}],
        [low, one("session.unsubscribed", 1.0, filter="a/#"), message],
        [low, one("session.created", 1.0), message],
    ):
        assert [found["delivered"] for found in told(unknown)] == [1, 0]


def test_a_delivery_becomes_unanswered_when_it_is_too_old_or_when_there_are_too_many() -> None:
    in_time = [one("message.delivered", 0.0), one("message.acked", 20.0)]
    assert [(found["acked"], found["unanswered"]) for found in told(in_time)] == [(0, 0), (1, 0)]
    late = [one("message.delivered", 0.0, weight=3), one("message.acked", 20.000001)]
    assert [(found["acked"], found["unanswered"]) for found in told(late)] == [(0, 0), (1, 3)]
    assert told(late)[1]["ack_max_us"] is None
    few = RULES.model_copy(update={"max_open": 1})
    (found,) = told(
        [one("message.delivered", 0.0, 1), one("message.delivered", 1.0, 2), one("message.acked", 2.0, 2)], few
    )
    assert (found["unanswered"], found["acked"], found["ack_max_us"]) == (1, 1, 1_000_000)


def test_what_was_dropped_is_not_waited_for() -> None:
    drops = [
        one("message.dropped", 1.0, reason="session_ended"),
        one("message.dropped", 1.0, 2, reason="slow_consumer"),
    ]
    (found,) = told(
        [one("message.delivered", 0.0), *drops, one("message.dropped", 2.0, 3, reason="queue_full", weight=4)]
    )
    assert (found["unanswered"], found["dropped_slow"], found["dropped_full"]) == (0, 1, 4)


@pytest.mark.parametrize("end", ["session.terminated", "session.discarded", "session.created"])
def test_what_an_ended_session_held_is_not_waited_for(end: str) -> None:
    (found,) = told([one("message.delivered", 1.0), one(end, 2.0), one("session.unsubscribed", 3.0, filter="a")])
    assert (found["delivered"], found["unanswered"]) == (1, 0)
    (found, late) = told([one("message.delivered", 1.0), one("session.unsubscribed", 2.0, filter="a")])
    assert (found["unanswered"], late["unanswered"]) == (0, 1)


def test_a_client_that_is_away_cannot_answer() -> None:
    sent = [one("message.delivered", 1.0), one("client.disconnected", 2.0)]
    assert [found["unanswered"] for found in told(sent)] == [0]
    # its time goes on when it is back
    back = [*sent, one("session.resumed", 100.0)]
    again = one("message.delivered", 100.0)
    assert [(found["window_start"], found["unanswered"]) for found in told([*back, again])][1:] == [
        (microseconds(at(100)), 0),
        (microseconds(at(120)), 1),
    ]
    assert sum(found["unanswered"] for found in told([*back, again, one("message.acked", 120.0)])) == 0
    assert sum(found["unanswered"] for found in told(back)) == 1
    # a delivery shows that it is there, whatever the clock of another node says
    assert sum(found["unanswered"] for found in told([*sent, one("message.delivered", 3.0, 2)])) == 2


def test_a_full_window_is_seen_in_the_readings() -> None:
    readings = [
        one("session.stats", float(n), inflight=n, inflight_limit=20, queue_length=10 * n) for n in (18, 19, 20, 21)
    ]
    (first, second) = told(readings)
    assert (first["inflight_max"], first["queue_max"], first["full"]) == (19, 190, 0.0)
    assert (second["inflight_max"], second["queue_max"], second["full"]) == (21, 210, 1.0)
    lower = RULES.model_copy(update={"max_inflight": 19})
    assert [found["full"] for found in told(readings, lower)] == [0.5, 1.0]


def test_no_window_is_full_where_no_limit_is_known() -> None:
    (found,) = told([one("session.stats", 1.0, inflight=65_535)])
    assert (found["inflight_max"], found["full"]) == (65_535, None)


def nearest(weighted: list[tuple[int, int]], share: float) -> int | None:
    """The percentile by nearest rank: the smallest value that this share of all do not exceed."""
    values = sorted(value for value, weight in weighted for _ in range(weight))
    return values[max(0, ceil(share * len(values) - 1e-9) - 1)] if values else None


def test_percentiles_are_exact_to_one_percent() -> None:
    random = Random(5)
    values = [(round(random.lognormvariate(8, 3)), random.randrange(1, 5)) for _ in range(5000)] + [(0, 2), (1, 1)]
    times = Times()
    for value, weight in values:
        times.add(value, weight)
    times = Times(json.loads(json.dumps(times.save())))
    assert len(times.save()) < 1200
    for share in (0.0, 0.01, 0.5, 0.9, 0.99, 1.0):
        assert times.percentile(share, None) == pytest.approx(nearest(values, share), rel=PRECISION, abs=1)
    assert Times().percentile(0.5, None) is None


async def test_what_a_broker_recorded(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as here:
        subscriber = await here.client("sub")
        await subscriber.subscribe(("a/#", 1), ("b", 0))
        publisher = await here.client("pub")
        for number in range(3):
            await publisher.publish("b", b"not waited for", qos=1)
            await publisher.publish(f"a/{number}", b"", qos=1)
            await subscriber.expect_publish("b", b"not waited for")
            packet = await subscriber.expect_publish(f"a/{number}", b"", qos=1)
            await trio.sleep(1 + number)
            await subscriber.acknowledge(packet)
        await subscriber.disconnect()
        await subscriber.expect_close()
    rows = [event for event in recorded(tmp_path, *KINDS) if event["client_id"] == "sub"]
    found = told(rows)
    names = ("delivered", "acked", "repeated", "unanswered", "ack_max_us")
    totals = [[one[name] for one in found if one[name] is not None] for name in names]
    assert [sum(values) for values in totals[:4]] == [3, 3, 0, 0]
    # the broker's clock and trio's are the same one here
    assert max(totals[4]) == 3_000_000
