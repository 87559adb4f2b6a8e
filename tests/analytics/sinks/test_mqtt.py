"""What Spark hands to its writers arrives as messages, with numbers that a second run has again."""

import json
import pickle
import re
import runpy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

from trunkline.analytics.options import by_option
from trunkline.analytics.sinks.mqtt import MqttStreamWriter, MqttWriter, TaskResult
from trunkline.analytics.sinks.settings import SinkError, SinkSettings
from trunkline.client import ConnectionSettings
from trunkline.client.sync import Client
from trunkline.testing import ThreadBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "spark-sinks.md").read_text(encoding="utf-8")
SCHEMA = StructType().add("client_id", StringType()).add("n", LongType())


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this thread a task of Spark."""

    def begin(partition: int, **told: str) -> None:
        context = object.__new__(TaskContext)
        properties = {name.replace("__", "."): value for name, value in told.items()}
        TaskContext.__init__(context, partitionId=partition, localProperties=properties)
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    return begin


def batches(*sizes: int) -> list[pa.RecordBatch]:
    rows = iter(range(sum(sizes)))
    return [pa.record_batch({"client_id": ["c"] * size, "n": [next(rows) for _ in range(size)]}) for size in sizes]


def options(broker: ThreadBroker, **more: str) -> dict[str, str]:
    return {"host": broker.host, "port": str(broker.port), "topic": "$analytics/counts/{client_id}"} | more


def properties(broker: ThreadBroker) -> list[tuple[str, str]]:
    return [tuple(dict(message.properties["user_property"]).values()) for message in broker.messages]  # type: ignore[misc]


def test_a_batch_that_is_run_again_has_the_same_numbers(mqtt_broker: ThreadBroker, task: Callable[..., None]) -> None:
    writer = pickle.loads(pickle.dumps(MqttStreamWriter(options(mqtt_broker), SCHEMA)))
    for attempt in range(2):
        task(2, sql__streaming__queryId="the-query", streaming__sql__batchId="41")
        assert writer.write(iter(batches(3, 0, 2))) == TaskResult(2, 5, 0), attempt
    task(2, sql__streaming__queryId="the-query", streaming__sql__batchId="42")
    writer.write(iter(batches(1)))
    numbers = [("the-query/41", f"2/{row}") for row in range(5)]
    assert properties(mqtt_broker) == [*numbers, *numbers, ("the-query/42", "2/0")]
    assert mqtt_broker.messages[1].topic == "$analytics/counts/c"
    assert json.loads(mqtt_broker.messages[1].payload) == {"client_id": "c", "n": 1}


def test_rows_that_are_skipped_keep_their_numbers(mqtt_broker: ThreadBroker, task: Callable[..., None]) -> None:
    task(0, sql__streaming__queryId="q", streaming__sql__batchId="0")
    writer = MqttStreamWriter(options(mqtt_broker, invalid="skip"), SCHEMA)
    rows = pa.record_batch({"client_id": ["a", "#", "b"], "n": [1, 2, 3]})
    assert writer.write(iter([rows, rows])) == TaskResult(0, 4, 2)
    assert [row for _, row in properties(mqtt_broker)] == ["0/0", "0/2", "0/3", "0/5"]


def test_a_table_that_is_written_twice_is_two_tables(mqtt_broker: ThreadBroker, task: Callable[..., None]) -> None:
    """And a task that is tried again is the same; so is a table that was given a name."""
    for name in ({}, {"query": "export"}):
        for _ in range(2):
            writer = pickle.dumps(MqttWriter(options(mqtt_broker, **name), SCHEMA))
            for _ in range(2):
                task(0)
                pickle.loads(writer).write(iter(batches(1)))
    names = Counter(batch for batch, _ in properties(mqtt_broker))
    assert sorted(names.values()) == [2, 2, 4]
    assert names["export/0"] == 4


def test_within_a_stream_a_table_has_the_streams_numbers(mqtt_broker: ThreadBroker, task: Callable[..., None]) -> None:
    task(1, sql__streaming__queryId="q", streaming__sql__batchId="7")
    MqttWriter(options(mqtt_broker), SCHEMA).write(iter(batches(1)))
    MqttWriter(options(mqtt_broker, query="second"), SCHEMA).write(iter(batches(1)))
    assert properties(mqtt_broker) == [("q/7", "1/0"), ("second/7", "1/0")]


def test_topics_cannot_be_overwritten() -> None:
    with pytest.raises(SinkError, match='use mode\\("append"\\)'):
        MqttWriter({"topic": "t"}, SCHEMA, overwrite=True)


@pytest.mark.parametrize("kind", [MqttStreamWriter, MqttWriter])
def test_what_is_wrong_is_said_before_anything_runs(kind: type[Any]) -> None:
    with pytest.raises(SinkError, match="option topic"):
        kind({"topic": "t/{client}"}, SCHEMA)


@pytest.fixture
def results(mqtt_broker: ThreadBroker) -> Iterator[Any]:
    """The consumer that the documentation shows."""
    consumer = runpy.run_path(str(ROOT / "examples" / "results_once.py"))["Results"]()
    with Client(ConnectionSettings.from_url(mqtt_broker.url)) as client:
        subscription = client.subscribe("$analytics/#", qos=1)

        def consume() -> None:
            for message in subscription:
                consumer.add(message)

        thread = Thread(target=consume)
        thread.start()
        yield consumer
    thread.join()


def test_the_page_shows_the_example() -> None:
    (block,) = re.findall(r"<!-- examples/results_once.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert block == (ROOT / "examples" / "results_once.py").read_text(encoding="utf-8")


def test_the_page_tells_every_option() -> None:
    assert [name for name in by_option(SinkSettings) if f"`{name}`" not in PAGE] == []


def test_a_stream_reaches_a_client_and_what_comes_twice_is_known(
    spark: "SparkSession", mqtt_broker: ThreadBroker, results: Any, tmp_path: Path
) -> None:
    expected = Counter[str]()
    for file in range(2):
        rows = [{"client_id": f"client{n % 5}", "n": 100 * file + n} for n in range(100)]
        expected.update(f"{row['n']}" for row in rows)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{file}.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def run() -> None:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        sink = stream.repartition(2, "client_id").writeStream.format("trunkline").options(**options(mqtt_broker))
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    mqtt_broker.wait_until(lambda: len(results.collected) == 200)
    # as after a crash between the last message and Spark's own note of it
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    mqtt_broker.wait_until(lambda: len(results.collected) + results.repeats > 200)
    mqtt_broker.wait_until(lambda: len(mqtt_broker.messages) == len(results.collected) + results.repeats)
    assert Counter(f"{row['n']}" for _, row in results.collected) == expected
    assert all(topic == f"$analytics/counts/{row['client_id']}" for topic, row in results.collected)
    # Spark runs the last batch again, and nothing but that
    assert results.repeats == 100

    frame: DataFrame = spark.createDataFrame([("a", 1)], SCHEMA)
    frame.write.format("trunkline").mode("append").options(**options(mqtt_broker, retain="true")).save()
    assert [row.topic for row in mqtt_broker.retained] == ["$analytics/counts/a"]
