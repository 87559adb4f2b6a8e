"""Events made for tests: single rows by hand, and a long mixed stream from a seed."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isclose
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

from trunkline.events.schema import SCHEMA, SPARK_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

#: On the border of windows of any usual length.
START = datetime(2025, 6, 1, 12, 0, 0, tzinfo=UTC)
#: Of the only incarnation of each node.
INCARNATION = 1_748_779_200_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after `START`, to the microsecond."""
    return START + timedelta(microseconds=round(seconds * 1_000_000))


def microseconds(time: datetime) -> int:
    """Since the epoch."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def guid(time: datetime, number: int = 0) -> bytes:
    """Id of a message that the broker took over at that time."""
    return (microseconds(time) << 64 | number).to_bytes(16, "big")


def row(kind: str, time: datetime | float, **columns: object) -> Row:
    """One event, on node n1 unless it says otherwise. `time` may be seconds after `START`."""
    unknown = columns.keys() - set(SCHEMA.names)
    assert not unknown, unknown
    when = time if isinstance(time, datetime) else at(time)
    return {"node": "n1", "incarnation": INCARNATION, "weight": 1, "kind": kind, "time": when, **columns}


def table(rows: Iterable[Row]) -> pa.Table:
    """Rows in the order in which they are given, numbered per node; what a row does not say is null."""
    seen: Counter[str] = Counter()
    numbered = []
    for given in rows:
        numbered.append({"seq": seen[given["node"]], **given})
        seen[given["node"]] += 1
    return pa.Table.from_pylist(numbered, schema=SCHEMA)


def frame(spark: "SparkSession", events: pa.Table | Iterable[Row]) -> "DataFrame":
    """As the batch source gives them."""
    if not isinstance(events, pa.Table):
        events = table(events)
    return spark.createDataFrame(events, schema=SPARK_SCHEMA)


def stream(spark: "SparkSession", events: pa.Table | Sequence[Any], folder: "Path", batches: int = 3) -> "DataFrame":
    """A stream of the same rows in the same order, in so many micro-batches: Parquet files in `folder`, one a trigger.
    Instead of all rows, `events` may be one table for each micro-batch.

    The last event moves time on by an hour (`node.tick`), so that all windows close.
    """
    if isinstance(events, pa.Table) or not events or isinstance(events[0], dict):
        whole = events if isinstance(events, pa.Table) else table(events)
        size = max(1, -(-whole.num_rows // batches))
        parts = [whole.slice(first, size) for first in range(0, whole.num_rows, size)]
    else:
        parts = list(events)
    newest = max((time for part in parts for time in part.column("time").to_pylist()), default=START)
    end = table([row("node.tick", newest + timedelta(hours=1))])
    parts = [*parts[:-1], pa.concat_tables([*parts[-1:], end])]
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        path = folder / f"{number:05}.parquet"
        parquet.write_table(part, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
    return spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def collected(results: "DataFrame", folder: "Path", mode: str = "append") -> list[Row]:
    """All rows that a stream of results gives until its input is used up; with mode "update" also those that others
    replaced later, in order. `folder` holds the checkpoint."""
    name = f"collected_{abs(hash(str(folder)))}"
    query = (
        results.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return [found.asDict(recursive=True) for found in results.sparkSession.table(name).collect()]


def assert_rows(
    found: "DataFrame | Sequence[Row]", expected: Sequence[Mapping[str, Any]], key: Sequence[str], close: float = 1e-9
) -> None:
    """Both hold the same rows, in any order: none twice, none missing, none more. Columns that `expected` does not name
    are not compared; floats may differ by the share `close`."""
    rows = found if isinstance(found, Sequence) else [one.asDict(recursive=True) for one in found.collect()]
    by_key = {tuple(_plain(one[name]) for name in key): one for one in rows}
    assert len(by_key) == len(rows), "the key is not unique"
    wanted = {tuple(_plain(one[name]) for name in key): one for one in expected}
    assert len(wanted) == len(expected), "the expected key is not unique"
    assert by_key.keys() == wanted.keys(), {
        "missing": sorted(map(str, wanted.keys() - by_key.keys()))[:5],
        "too many": sorted(map(str, by_key.keys() - wanted.keys()))[:5],
    }
    for where, want in wanted.items():
        for name, value in want.items():
            assert _same(_plain(by_key[where][name]), _plain(value), close), (where, name, by_key[where][name], value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # Spark gives naive ones in local time
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _same(found: Any, wanted: Any, close: float) -> bool:
    if isinstance(found, float) and isinstance(wanted, (int, float)):
        return isclose(found, wanted, rel_tol=close, abs_tol=close)
    return bool(found == wanted)


def made(count: int = 20_000, *, seed: int = 1, duration: float = 300.0, late: float = 8.0) -> pa.Table:
    """A mixed stream of about `count` events over `duration` seconds, the same for the same seed.

    Two nodes, n1 and n2, tick every second; n2 is silent (it does not even tick) in the middle fifth. 40 clients
    connect, stay, leave and come back; 4 of them flap; one address guesses passwords; 1 publish in 50 is denied.
    Messages go to topics of 3 tenants, at all QoS, to 0..4 receivers; 1 delivery in 50 never happens, 1 of 50 of the
    others is never acknowledged, 1 in 40 takes seconds; some are sent twice. A tenth of all times is a whole number of
    ten seconds, exactly on a border. The rows of a node come in order except for 1 in 100, which come up to `late`
    seconds late.
    """
    random = Random(seed)
    rows: list[tuple[float, Row]] = []  # when it is written, and what

    def add(kind: str, seconds: float, **columns: object) -> None:
        if columns["node"] == "n2" and 0.4 * duration <= seconds < 0.6 * duration:
            return
        if not 0 <= seconds < duration:
            return
        delay = random.uniform(0, late) if random.random() < 0.01 else 0.0
        rows.append((seconds + delay, row(kind, seconds, **columns)))

    for node in ("n1", "n2"):
        add("exporter.started", 0.0, node=node)
        for second in range(int(duration)):
            add("node.tick", float(second), node=node)
            if second % 10 == 0:
                for name, value in (("sessions", 20 + second % 7), ("retained", 100 + second), ("sent", second * 50)):
                    add("node.stats", float(second), node=node, name=name, value=float(value))
                add(
                    "session.stats",
                    float(second),
                    client_id=f"slow-{node}",
                    node=node,
                    queue_length=second,
                    inflight=20,
                )
    clients = [_client(number) for number in range(40)]
    for number, client in enumerate(clients):
        _live(random, add, client, 6.0 if number < 4 else duration / 4, duration)
    for _ in range(60):
        guess = {"client_id": "guesser", "username": f"user{random.randrange(40)}", "peer": "203.0.113.9", "node": "n1"}
        add("client.connack", random.uniform(duration / 2, duration / 2 + 20), reason_code=134, **guess)
    add("exporter.dropped", duration / 3, node="n1", value=17.0, reason="disk")
    while len(rows) < count:
        _message(random, add, clients, duration)
    rows.sort(key=lambda pair: pair[0])
    return table(event for _, event in rows)


def _client(number: int) -> Row:
    return {
        "client_id": f"c{number:02}",
        "username": f"tenant{number % 3}",
        "peer": f"192.0.2.{number % 12}",
        "listener": "tcp",
        "protocol": (4, 5)[number % 2],
        "node": ("n1", "n2")[number % 2],
    }


def _live(random: Random, add: Any, client: Row, stay: float, duration: float) -> None:
    """A client's connections from the beginning to the end."""
    now = random.uniform(0, min(10.0, stay))
    first = True
    while now < duration:
        add("client.connack", now, reason_code=0, **client)
        add("client.connected", now, keep_alive=60, **client)
        add("session.created" if first else "session.resumed", now, **client)
        if first:
            add("session.subscribed", now, filter=f"{client['username']}/#", qos=1, **client)
        elif random.random() < 0.05:
            add("session.taken_over", now, **client)
        first = False
        length = random.expovariate(1 / stay)
        code, reason = random.choice([(0, ""), (0, ""), (141, "keep alive timeout"), (128, "connection lost")])
        add(
            "client.disconnected",
            now + length,
            reason_code=code,
            reason=reason,
            latency_us=round(length * 1_000_000),
            **client,
        )
        now += length + random.expovariate(2 / stay)


def _message(random: Random, add: Any, clients: list[Row], duration: float) -> None:
    """A message and what becomes of it."""
    publisher = random.choice(clients)
    seconds = random.uniform(0, duration)
    if random.random() < 0.1:
        seconds = round(seconds / 10) * 10.0
    tenant = publisher["username"]
    topic = f"{tenant}/{random.choice(['up', 'down'])}/{min(int(random.expovariate(0.2)), 30)}"
    node = publisher["node"]
    message = {
        "topic": topic,
        "qos": random.randrange(3),
        "size": random.randrange(1, 500),
        "guid": guid(at(seconds), random.getrandbits(62)),
        "publisher": publisher["client_id"],
        "flags": int(random.random() < 0.05),
        "node": node,
    }
    own = {name: publisher[name] for name in ("client_id", "username", "peer")}
    allowed = random.random() > 0.02
    add("client.acl_decided", seconds, node=node, topic=topic, action="publish", flags=64 * allowed, **own)
    if not allowed:
        add("message.dropped", seconds, reason="not_authorized", **message, **own)
        return
    add("message.publish", seconds, **message, **own)
    listeners = [client for client in clients if client["node"] == node]
    receivers = random.sample(listeners, random.choice([0, 1, 1, 1, 2, 4]))
    if not receivers:
        add("message.dropped", seconds, reason="no_subscribers", **message, **own)
    add("message.routed", seconds, receivers=len(receivers), latency_us=0, **message)
    for receiver in receivers:
        if random.random() < 0.02:
            continue
        to = message | {name: receiver[name] for name in ("client_id", "username", "peer")}
        delay = random.uniform(2, 30) if random.random() < 0.025 else random.lognormvariate(-7, 1)
        for _ in range(2 if random.random() < 0.02 else 1):
            add("message.delivered", seconds + delay, latency_us=round(delay * 1_000_000), **to)
            answer = delay + random.lognormvariate(-6, 1)
            delay += 1.0
        if message["qos"] == 0:
            add("delivery.completed", seconds + answer, latency_us=round(answer * 1_000_000), **to)
        elif random.random() > 0.02:
            add("message.acked", seconds + answer, latency_us=round(answer * 1_000_000), **to)
            add("delivery.completed", seconds + answer, latency_us=round(answer * 1_000_000), **to)
