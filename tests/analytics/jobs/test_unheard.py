"""Dead subscriptions and unheard topics, by the machine, by Spark and by plain Python."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.analytics.events_made import Row, assert_rows, at, collected, frame, microseconds, row, stream, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from trunkline.analytics.jobs.machines import Keeper, Machines, Subject, play
from trunkline.analytics.jobs.unheard import Lives, Seen, unheard

AFTER = 40.0
KEY = ("subject", "client_id", "filter", "topic", "time", "state")
ENDS = ("session.discarded", "session.terminated", "session.created")
FILTERS = (
    "a/+",
    "a/#",
    "#",
    "+/1",
    "b/2",
    "$SYS/#",
    "$share/g/a/1",
    "$share/h/b/#",
    "$share/h/$SYS/#",
    "c/never",
    "+/+/+",
)
TOPICS = ("a/1", "a/2", "b/1", "b/2", "b/2/x", "$SYS/load", "a", "d")


def seen(rows: Iterable[Row]) -> list[Seen]:
    return [
        Seen(
            microseconds(one["time"]),
            one["node"],
            one["incarnation"],
            number,
            one["kind"],
            one["weight"],
            one.get("filter"),
            one.get("topic"),
        )
        for number, one in enumerate(rows)
    ]


def told(
    rows: Iterable[Row], until: float, *, after: float = AFTER, limit: int = 100
) -> list[tuple[str, str, float, int]]:
    """The changes that a machine tells of: state, filter, seconds, deliveries."""
    machine = Lives(round(after * 1e6), limit, True, Subject("client", "c"))
    results = play(machine, seen(rows), microseconds(at(until)))
    return [(one["state"], one["filter"], (one["time"] - microseconds(at(0))) / 1e6, one["count"]) for one in results]


def subscribed(filter: str, time: float) -> Row:
    return row("session.subscribed", time, client_id="c", filter=filter)


def delivered(topic: str, time: float, **columns: object) -> Row:
    return row("message.delivered", time, client_id="c", topic=topic, **columns)


def test_a_delivery_at_the_last_moment_is_in_time() -> None:
    rows = [subscribed("a/+", 0), delivered("a/1", AFTER)]
    assert told(rows, 2 * AFTER - 0.000001) == []
    assert told(rows, 2 * AFTER) == [("dead", "a/+", 2 * AFTER, 1)]
    assert told([subscribed("a/+", 0), delivered("a/1", AFTER + 0.000001)], AFTER + 1) == [
        ("dead", "a/+", AFTER, 0),
        ("heard", "a/+", AFTER + 0.000001, 1),
    ]


@pytest.mark.parametrize(
    ("filter", "topic", "heard"),
    [
        ("$share/g/a/+", "a/1", True),
        ("$share/g/a/+", "b/1", False),
        ("a/#", "a", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("a/+", "a/1/x", False),
        ("A/1", "a/1", False),
    ],
)
def test_filters_match_by_the_rules_of_mqtt(filter: str, topic: str, heard: bool) -> None:
    rows = [subscribed(filter, 0), delivered(topic, 30, weight=5)]
    assert told(rows, 50) == ([] if heard else [("dead", filter, AFTER, 0)])
    assert told(rows, 70) == [("dead", filter, 70.0, 5) if heard else ("dead", filter, AFTER, 0)]


def test_a_subscription_that_is_renewed_is_the_same_one() -> None:
    assert told([subscribed("a", 0), subscribed("a", 30)], 45) == [("dead", "a", AFTER, 0)]


@pytest.mark.parametrize("end", [*ENDS, "session.unsubscribed"])
def test_an_end_closes_subscriptions(end: str) -> None:
    rows = [subscribed("a", 0), subscribed("b", 0), row(end, 30, client_id="c", filter="a")]
    left = [] if end in ENDS else [("dead", "b", AFTER, 0)]
    assert told(rows, 45) == left
    rows = [subscribed("a", 0), row(end, 45, client_id="c", filter="a"), subscribed("a", 50)]
    assert told(rows, 95) == [("dead", "a", AFTER, 0), ("closed", "a", 45.0, 0), ("dead", "a", 90.0, 0)]


def test_no_more_subscriptions_are_watched_than_allowed() -> None:
    rows = [subscribed("a", 0), subscribed("b", 1), row("session.unsubscribed", 2, client_id="c", filter="a")]
    assert told([*rows, subscribed("c", 3)], 60, limit=1) == [("dead", "c", 43.0, 0)]


def lives() -> list[Row]:
    """More than 20,000 events of 25 clients whose subscriptions come and go."""
    random = Random(3)
    rows: list[tuple[float, Row]] = []
    for number in range(25):
        client = {"client_id": f"c{number:02}", "node": ("n1", "n2")[number % 2]}
        spoken = random.sample(TOPICS, 3)
        now = 0.0
        while now < 600:
            now += random.choice([0.0, random.expovariate(2.0), random.expovariate(2.0), random.uniform(0, 15)])
            if random.random() < 0.05:
                now = float(round(now))
            if client["node"] == "n2" and 250 <= now < 340:
                continue  # that node writes nothing
            kind = random.choices(
                ["message.delivered", "session.subscribed", "session.unsubscribed", random.choice(ENDS)],
                [300, 4, 2, 0.4],
            )[0]
            columns: dict[str, Any] = dict(client)
            if kind == "message.delivered":
                columns |= {"topic": random.choice(spoken), "weight": random.randrange(1, 4)}
            else:
                columns["filter"] = random.choice(FILTERS)
            rows.append((now, row(kind, now, **columns)))
        # with a delivery at the very end of the time
        base = 600.0 + number
        rows.append((base, row("session.subscribed", base, filter="tie/#", **client)))
        rows.append((base + AFTER, row("message.delivered", base + AFTER, topic="tie/1", **client)))
    for _ in range(9_000):
        now = random.choice([random.uniform(0, 600), float(random.randrange(10) * 60)])
        topic = random.choice(TOPICS)
        columns = {"topic": topic, "weight": random.randrange(1, 4), "node": random.choice(["n1", "n2"])}
        receivers = random.choice([0, 0, 2])
        if topic != "d":  # of this one the exporter was told to leave out `message.routed`
            rows.append((now, row("message.routed", now, receivers=receivers, **columns)))
        if not receivers and topic != "a":
            rows.append((now, row("message.dropped", now, client_id="p", reason="no_subscribers", **columns)))
        rows.append((now, row("message.dropped", now, client_id="p", reason="queue_full", **columns)))
    rows.append((700.0, row("node.tick", 700.0)))
    return [one for _, one in sorted(rows, key=lambda pair: pair[0] + (random.random() < 0.01) * random.uniform(0, 8))]


def takes(filter: str, topic: str) -> bool:
    filter = re.sub(r"^\$share/[^/]*/", "", filter)
    if topic.startswith("$") and filter[0] in "+#":
        return False
    pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in filter.split("/"))
    pattern = pattern.replace(r"/\#", "(/.*)?").replace(r"\#", ".*")
    return re.fullmatch(pattern, topic) is not None


def changes(rows: list[Row], until: Any) -> list[Row]:
    """Of subscriptions, up to that time: for each look for the gaps between its deliveries."""
    numbers: Counter[str] = Counter()
    by_client: dict[str, list[tuple[Any, str, int, Row]]] = defaultdict(list)
    for one in rows:
        number = numbers[one["node"]]
        numbers[one["node"]] += 1
        if "client_id" in one:
            by_client[one["client_id"]].append((one["time"], one["node"], number, one))
    found: list[Row] = []
    for client, events in by_client.items():
        ordered = [event[3] for event in sorted(events, key=lambda event: event[:3])]
        for filter in (*FILTERS, "tie/#"):
            place = 0
            while True:
                begin = next(
                    (
                        i
                        for i in range(place, len(ordered))
                        if ordered[i]["kind"] == "session.subscribed" and ordered[i]["filter"] == filter
                    ),
                    None,
                )
                if begin is None:
                    break
                end = next(
                    (
                        i
                        for i in range(begin, len(ordered))
                        if ordered[i]["kind"] in ENDS
                        or (ordered[i]["kind"] == "session.unsubscribed" and ordered[i]["filter"] == filter)
                    ),
                    len(ordered),
                )
                found += _of_life(
                    client, filter, ordered[begin:end], ordered[end]["time"] if end < len(ordered) else None, until
                )
                place = end
    return found


def _of_life(client: str, filter: str, life: list[Row], ended: Any, until: Any) -> Iterable[Row]:
    about = {"subject": "subscription", "client_id": client, "filter": filter, "topic": None, "since": life[0]["time"]}
    deliveries = [one for one in life if one["kind"] == "message.delivered" and takes(filter, one["topic"])]
    signs = [life[0]["time"], *(one["time"] for one in deliveries)]
    patience = timedelta(seconds=AFTER)
    for number, sign in enumerate(signs):
        following = signs[number + 1] if number + 1 < len(signs) else ended
        if following is None and sign + patience > until:
            continue
        if following is not None and following - sign <= patience:
            continue
        got = sum(one["weight"] for one in deliveries[:number])
        last = {"last": sign if number else None, "count": got}
        yield {**about, "state": "dead", "time": sign + patience, **last}
        if number + 1 < len(signs):
            after = {"last": following, "count": got + deliveries[number]["weight"]}
            yield {**about, "state": "heard", "time": following, **after}
        elif following is not None:
            yield {**about, "state": "closed", "time": following, **last}


def topics(rows: list[Row]) -> list[Row]:
    routed: Counter[Any] = Counter()
    dropped: Counter[Any] = Counter()
    last: dict[Any, Any] = {}
    for one in rows:
        key = at((one["time"] - at(0)).total_seconds() // 60 * 60), one.get("topic")
        if one["kind"] == "message.routed" and one["receivers"] == 0:
            routed[key] += one["weight"]
        elif one["kind"] == "message.dropped" and one["reason"] == "no_subscribers":
            dropped[key] += one["weight"]
        else:
            continue
        last[key] = max(one["time"], last.get(key, one["time"]))
    nothing = {"subject": "topic", "state": "unheard", "client_id": None, "filter": None}
    return [
        {
            **nothing,
            "topic": topic,
            "since": begin,
            "time": begin + timedelta(minutes=1),
            "last": last[begin, topic],
            "count": most,
        }
        for begin, topic in last
        if (most := max(routed[begin, topic], dropped[begin, topic])) >= 5
    ]


def test_a_stream_in_any_pieces_tells_the_same() -> None:
    rows = lives()
    until = at(700)
    wanted = sorted(str((one["client_id"], one["filter"], one["time"], one["state"])) for one in changes(rows, until))
    random = Random(0)
    logic = Machines(Seen, partial(Lives, round(AFTER * 1e6), 100, True))
    saved: str | None = None
    found: list[str] = []
    for first in range(0, len(rows), 5000):
        keeper = Keeper(logic, saved)
        newest = 0
        for number, event in enumerate(seen(rows[first : first + 5000]), first):
            one = rows[number]
            if "client_id" in one and one["kind"] not in ("message.routed", "message.dropped"):
                keeper.add(Subject("client", one["client_id"]), event._replace(seq=number))
            newest = max(newest, event.at)
            if random.random() < 0.005:
                found += _names(keeper.advance(newest - 9_000_000))
        found += _names(keeper.advance(newest - 9_000_000))
        saved = keeper.save()
    found += _names(Keeper(logic, saved).advance(microseconds(until)))
    assert sorted(found) == wanted


def _names(results: Iterable[Any]) -> list[str]:
    begin = microseconds(at(0))
    return [str((one["client_id"], one["filter"], at((one["time"] - begin) / 1e6), one["state"])) for one in results]


def test_spark_tells_the_same_as_plain_python(spark: "SparkSession", tmp_path: Path) -> None:
    rows = lives()
    assert len(rows) > 25_000
    given = {"after": AFTER, "window": "1m", "at_least": 5, "buckets": 4}
    options = unheard.read_options({**given, "internal": True})
    unheard_topics = topics(rows)
    assert len(unheard_topics) > 50

    at_end = changes(rows, at(700))
    over = {(one["client_id"], one["filter"], one["since"]) for one in at_end if one["state"] == "closed"}
    latest = {(one["client_id"], one["filter"], one["since"]): one for one in at_end}
    dead = [one for key, one in latest.items() if one["state"] == "dead" and key not in over]
    assert len(at_end) > 100
    assert len(dead) > 20
    assert_rows(unheard(frame(spark, rows), options), [*dead, *unheard_topics], KEY)

    results = unheard(stream(spark, rows, tmp_path / "in", 2), unheard.read_options(given))
    found = collected(results, tmp_path / "checkpoint")
    # the last event is an hour later
    wanted = [one for one in changes(rows, at(700 + 3600 - 10)) if "$SYS" not in one["filter"]]
    assert_rows(found, [*wanted, *unheard_topics], KEY)

    # no events, and only a part of the results
    nothing = unheard.read_options({"subject": "subscriptions"})
    assert unheard(frame(spark, table([])), nothing).collect() == []
    only = unheard.read_options({"subject": "topics", "window": "1m", "at_least": 5})
    assert_rows(unheard(frame(spark, rows[:3000]), only), topics(rows[:3000]), KEY)
