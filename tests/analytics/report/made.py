"""Results for tests: half an hour of a broker that has seen better days, with a hostile client."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pyspark.sql import Row

from trunkline.analytics.report.results import (
    WITHIN,
    AlarmTime,
    Alert,
    ClientSums,
    Correction,
    Denial,
    EndCount,
    GaugeLevels,
    GaugeSums,
    Health,
    LimitChange,
    MessageSums,
    NodeSums,
    QueueReading,
    Results,
    Silence,
    Stay,
    Top,
    Who,
    Window,
)

#: Rows as Spark gives them, by their columns.
Consumer = Row("client_id", "delivered", "ack_p99_us", "unanswered", "dropped")
Drop = Row("time", "reason", "messages")
Growth = Row("client_id", "metric", "node", "last", "slope", "limit", "full_in")
Loss = Row("client_id", "reason", "messages")
Lag = Row("consumer", "rows", "seconds")
Latency = Row("time", "deliveries", "p50", "p95", "p99", *WITHIN)
Slow = Row("window_start", "prefix", "qos", "delivered", "p99_us", "undelivered")
Way = Row("way", "deliveries", "p50", "oldest")
Talker = Row("name", "messages", "bytes")
Use = Row("name", "connected", "published", "published_bytes", "delivered", "delivered_bytes")
Branch = Row("branch", "names", "topics")
Unheard = Row("topic", "messages", "last")
Fanout = Row("name", "routed", "deliveries", "bytes_out", "amplification")
Dead = Row("client_id", "filter", "since", "last")
Stays = Row("how", "connections", "p50", "p90", "longest", "brief")
Moves = Row("client_id", "moves", "taken_over", "last", "node")
Sizes = Row("most", "messages", "bytes", "largest")

BEGIN = datetime(2025, 6, 1, 14, 30, tzinfo=UTC)
WINDOW = 10
WINDOWS = 180
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def whole(rows: Sequence[Any]) -> Top[Any]:
    return Top(rows, len(rows))


def nothing() -> Results:
    return Results(source="events", made=BEGIN, begin=BEGIN, end=BEGIN + timedelta(seconds=WINDOW), window=WINDOW)


def before() -> Results:
    """The half hour before: it had half of the denials."""
    begin = BEGIN - timedelta(seconds=WINDOW * WINDOWS)
    return Results(
        source="events",
        made=BEGIN,
        begin=begin,
        end=BEGIN,
        window=WINDOW,
        timeline=[Window(begin, 100, 1000, 50, 500, 1, 1, 0)],
        latency=[Latency(begin, 50, 100, 200, 300, 50, 50, 50)],
        denied=46,
        denied_clients=3,
    )


def bad_day(hostile: str = HOSTILE) -> Results:
    random = Random(4)
    times = [BEGIN + timedelta(seconds=WINDOW * index) for index in range(WINDOWS)]
    reasons = ("no_subscribers", "queue_full", "expired", "slow_consumer", "not_authorized", hostile)
    messages = [int(400 + 150 * math.sin(index / 20) + random.random() * 60) for index in range(WINDOWS)]
    return Results(
        source=hostile,
        limits=[LimitChange("n1", times[9], "session.max_queue_length", 40.0, 1000.0)],
        made=times[-1],
        begin=BEGIN,
        end=BEGIN + timedelta(seconds=WINDOW * WINDOWS),
        window=WINDOW,
        timeline=[
            Window(time, number, number * 60, number * 3, number * 180, *(random.randrange(end) for end in (6, 6, 3)))
            for time, number in zip(times, messages, strict=True)
        ],
        latency=[
            Latency(
                time,
                1000,
                180 + random.random() * 30,
                600 + random.random() * 200,
                2000 * (20 if 90 <= index < 93 else 1),
                *((900, 1000, 1000) if 90 <= index < 93 else (1000, 1000, 1000)),
            )
            for index, time in enumerate(times)
            if not 120 < index < 127
        ],
        flapping=whole(
            [
                Alert("flapping", "client", "pump-17", times[20], times[60], 41),
                Alert("flapping", "client", hostile, times[70], None, 19),
            ]
        ),
        flapped=Who(2, ("pump-17", hostile)),
        topics=Top(
            [Talker(hostile, 10_000, 5)]
            + [Talker(f"site/{index}/temperature", 9000 // (index + 1), 90_000 // (index + 1)) for index in range(34)],
            4711,
        ),
        clients=whole([Talker(f"sensor-{index:03}", 5000 // (index + 1), 50_000 // (index + 1)) for index in range(3)]),
        topics_once=4000,
        branches=whole([Branch("site/+", 4000, 4000), Branch(f"{hostile}/+", 2, 3)]),
        unheard=whole([Unheard(hostile, 7, times[9])]),
        fanout=Top([Fanout(hostile, 10, 3000, 9000, 300.0), Fanout("site/1/temperature", 0, 3, 9, None)], 40),
        heavy=Who(1, (hostile,)),
        dead_after=900.0,
        dead=whole([Dead("archive", "site/+/temprature", BEGIN, None), Dead(hostile, hostile, BEGIN, times[5])]),
        deaf=Who(2, ("archive", hostile)),
        before=before(),
        sizes=[Sizes(100, 90, 4000, 99), Sizes(None, 1, 2_000_000, 2_000_000)],
        users=Top([Use(None, 3, 9, 90, 1, 10), Use(hostile, 1, 2, 3, 4, 5)], 300),
        listeners=whole([Use("tcp", 4, 11, 93, 5, 15)]),
        protocols=whole([Use(5, 4, 11, 93, 5, 15), Use(9, 0, 1, 1, 0, 0)]),
        denials=whole(
            [
                Denial("intruder", "203.0.113.7", "connect", "not authorized", 57),
                Denial(hostile, hostile, "publish", hostile, 12),
            ]
        ),
        denied=69,
        denied_clients=2,
        alerts=whole(
            [
                Alert("logins", "peer", "203.0.113.7", times[3], None, 57),
                Alert("denied", "client", hostile, times[4], times[9], 12),
            ]
        ),
        guessers=Who(1, ("203.0.113.7",)),
        ways=[Way("live", 180_000, 190, 40_000), Way("retained", 20, 86_400_000_000, 90_000_000_000)],
        slow=whole([Slow(times[91], hostile, 0, 100, 41_000.0, 0), Slow(times[90], "site", 1, 500, 40_000.0, 3)]),
        growth=whole(
            [
                Growth("archive", "queue_length", "n1", 900.0, 0.5, 10_000.0, 18_200.0),
                Growth("", "retained.count", "n1", 34.0, 0.0, None, None),
            ]
        ),
        filling=Who(1, ("queue_length of archive",)),
        full_in=18_200.0,
        consumers=whole([Consumer("archive", 1000, 2_000_000.0, 3, 40), Consumer(hostile, 10, None, 10, 0)]),
        silences=whole([Silence("meter-3", times[30], 10.0, None), Silence(hostile, times[40], 1.0, times[60])]),
        silent=Who(1, ("meter-3",)),
        drops=[Drop(time, reason, random.randrange(1, 9)) for time in times[::3] for reason in reasons],
        queues=[
            QueueReading(time, client_id, int(growth * index + random.randrange(20)), 0, time)
            for index, time in enumerate(times)
            for client_id, growth in (("archive", 5.0), (hostile, 2.0))
        ],
        health=[
            Health("n1@1748788200000", "n1", BEGIN, times[-1], 812_345, 0, 0, 0, "running"),
            Health(hostile, hostile, BEGIN, times[-9], 12_345, 3, 40, 2, "stopped"),
        ],
        losses=whole([Loss("archive", "queue_full", 30), Loss(hostile, "slow_consumer", 10)]),
        losers=Who(2, ("archive", hostile)),
        lost=40,
        written=10,
        stays=[Stays("left", 300, 2.0, 60.0, 900.0, 200), Stays("open", 7, 1.0, 2.0, 3.0, 0)],
        moves=whole([Moves("pump-17", 9, 4, times[50], "n1"), Moves(hostile, 1, 0, times[60], hostile)]),
        movers=Who(1, ("pump-17",)),
        gauges=[
            GaugeLevels(time, node, "connections.count", 10.0 + index, 20.0 + index, 40.0 + index, 10.0)
            for node in ("n1", hostile)
            for index, time in enumerate(times)
            if not 120 < index < 127
        ],
        gauge_sums=[
            GaugeSums("n1", "connections.count", 10, 99.0, 219, times[-1], 199, 220.0, 0.996, False),
            GaugeSums(hostile, "connections.count", 10, 9.0, 219, times[-1], 199, None, None, True),
            GaugeSums("n1", "retained.count", 7, 7.0, 7, BEGIN, 7, None, None, False),
            GaugeSums("n1", "loop.lag.microseconds", 0, 9.0, 1_200_000, times[4], 70, None, None, False),
        ],
        named={
            "archive": ClientSums(
                Stay(2, 1700.0, None, times[9], "keep_alive", "n1"),
                MessageSums(),
                MessageSums(1000, 4000, times[8], ("site/1/temperature", hostile)),
                {"queue_full": 30, hostile: 2},
                1,
            ),
            hostile: ClientSums(None, MessageSums(1, 3, BEGIN, (hostile,)), MessageSums(), {}, 0),
        },
        ends=[EndCount("session", "expired", 4), EndCount("connection", hostile, 9)],
        alarms=[
            AlarmTime("n1", "sessions_full", hostile, times[3], times[9]),
            AlarmTime(hostile, "events.disk", "events are lost", None, None),
        ],
        nodes=[NodeSums("n1", "1.0", 1, 20, 900, 2700, 3), NodeSums(hostile, "", 0, 0, 0, 0, 0)],
        corrections=[Correction("n1", times[7], -3600.0)],
        lags=[Lag("spark", 1200, 1.2), Lag(hostile, 0, 0.0)],
    )
