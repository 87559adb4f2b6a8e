"""Batches, full disks, and events that cannot be rows."""

import errno
import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from trunkline.events.privacy import Privacy
from trunkline.events.reader import EventLog
from trunkline.events.recorder import BATCH_BYTES, PAUSE, Recorder, Rejects
from trunkline.events.rows import Converter
from trunkline.events.schema import STORED
from trunkline.events.writer import LogWriter
from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

KINDS = ["message.publish", "exporter.dropped", "node.tick"]
CLIENT = ClientInfo("cid")


class FullDisk(LogWriter):
    """As long as `full` is set, nothing can be written."""

    full = False

    def append(self, batch: pa.RecordBatch, min_time: int, max_time: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(batch, min_time, max_time)


class Bench:
    def __init__(
        self,
        folder: Path,
        batch_rows: int = 10,
        max_rejects: int = 10_000,
        privacy: Privacy | None = None,
        max_payload: int = 100,
    ) -> None:
        privacy = privacy or Privacy()
        self.folder = folder
        self.now = 1000.0
        self.writer = FullDisk(folder, "n", 1)
        self.recorder = Recorder(
            self.writer,
            Converter(KINDS, STORED, privacy, max_payload, 1),
            lambda: self.now,
            dropped=1,
            tick=2,
            correction=0.0,
            batch_rows=batch_rows,
            rejects=Rejects(folder / "deadletter" / "n.jsonl", max_rejects, KINDS, privacy),
            logger=logging.getLogger("test"),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def tell(self, topic: Any, count: int = 1) -> None:
        for _ in range(count):
            self.recorder.record(0, CLIENT, Message(topic, b""))

    def rows(self) -> list[dict[str, Any]]:
        log = EventLog(self.folder)
        log.refresh()
        end = log.nodes()["n@1"].end
        return [row for batch in log.read("n@1", 0, end) for row in batch.to_pylist()]

    def topics(self) -> list[str]:
        return [row["topic"] or f"{row['reason']} {row['value']:g}" for row in self.rows()]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Bench(tmp_path, **settings))


def test_a_batch_is_written_when_it_is_full_or_when_somebody_says_so(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.tell("t", 9)
    assert (bench.recorder.waiting, bench.recorder.written) == (9, 0)
    bench.tell("t")
    assert (bench.recorder.waiting, bench.recorder.written) == (0, 10)
    bench.tell("u")
    bench.recorder.flush()
    bench.recorder.flush()
    assert bench.topics() == ["t"] * 10 + ["u"]


def test_a_batch_is_written_when_it_is_heavy(make: Callable[..., Bench]) -> None:
    bench = make(batch_rows=1000, max_payload=BATCH_BYTES)
    large, small = b"x" * (BATCH_BYTES // 2), b"x"
    bench.recorder.record(0, CLIENT, Message("t", large))
    bench.recorder.record(0, CLIENT, Message("t", small))
    assert bench.recorder.waiting == 2
    pairs = [("k", "v" * (BATCH_BYTES // 2))]
    bench.recorder.record(0, CLIENT, Message("t", small, properties={"user_property": pairs}))
    assert bench.recorder.waiting == 0
    bench.recorder.record(0, CLIENT, Message("t", b"x" * (BATCH_BYTES + 1)))  # is not recorded
    assert bench.recorder.waiting == 1
    batch = PublishBatch(["t"], 0x30, Version.V5, b"\x30\x06\0\1t\0xx" * 10, range(0, 80, 8), ())
    batch.guids = range(10)
    assert bench.recorder._converter.weigh(batch) == 20


def test_a_full_disk_costs_events_and_the_log_says_how_many(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    bench.tell("before", 10)
    bench.writer.full = True
    bench.tell("lost", 20)
    bench.writer.full = False
    bench.tell("still lost", 10)  # nothing is tried again so soon
    bench.now += PAUSE
    bench.tell("after", 10)
    assert (bench.recorder.written, bench.recorder.dropped) == (20, 30)
    assert str(bench.recorder.take_trouble()) == "[Errno 28] No space left on device"
    assert bench.recorder.take_trouble() is None
    assert bench.topics() == ["before"] * 10 + ["disk 30"] + ["after"] * 10


def test_what_was_lost_is_said_although_nothing_follows(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.writer.full = True
    bench.tell("lost", 10)
    bench.now += PAUSE
    bench.recorder.flush()  # still full: the count must not be lost
    bench.now += PAUSE
    bench.writer.full = False
    bench.recorder.flush()
    bench.recorder.flush()
    assert bench.topics() == ["disk 10"]


def test_the_end_is_written_although_the_disk_was_full_a_moment_ago(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make()
    bench.writer.full = True
    bench.tell("lost", 10)
    bench.writer.full = False
    bench.tell("last")
    bench.recorder.close()
    assert bench.topics() == ["disk 10", "last"]
    assert not caplog.records


def test_what_the_log_cannot_say_at_its_end_is_said_elsewhere(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make()
    bench.writer.full = True
    bench.tell("lost", 13)
    bench.recorder.close()
    assert caplog.messages == ["events are missing at the end of the log, which does not say so: 13"]


def test_what_cannot_be_a_row_is_set_aside_and_the_others_are_written(
    make: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make()
    bench.tell("good", 4)
    bench.tell(["no text"], 2)
    bench.tell("good", 4)
    bench.recorder.flush()
    assert bench.topics() == ["good"] * 8 + ["rejected 2"]
    assert (bench.recorder.written, bench.recorder.rejected, bench.recorder.dropped) == (8, 2, 0)
    lines = [json.loads(line) for line in (tmp_path / "deadletter" / "n.jsonl").read_text().splitlines()]
    assert [(line["client_id"], line["topic"]) for line in lines] == [("cid", ["no text"])] * 2
    assert {line["kind"] for line in lines} == {"message.publish"}
    assert all(line["error"] for line in lines)


def test_what_cannot_even_be_shown_is_set_aside_by_its_type(make: Callable[..., Bench], tmp_path: Path) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    bench = make(batch_rows=1)
    bench.tell(Odd(), 1)
    bench.tell("good", 1)
    assert bench.recorder.rejected == 1
    [line] = (tmp_path / "deadletter" / "n.jsonl").read_text().splitlines()
    assert json.loads(line)["topic"] == "Odd"


def test_what_is_hidden_shows_neither_where_it_is_set_aside_nor_in_the_logs(
    make: Callable[..., Bench], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(privacy=Privacy(["client_id", "topic"], ["username"], b"key"), batch_rows=1)
    client = ClientInfo("private-id", username="private-name")
    odd: list[Any] = ["private-topic", ["private-topic"], Path("private-topic")]
    for topic in odd:
        bench.recorder.record(
            0, client, Message(topic, b""), {"reason_code": "private-text", "username": "private-name"}
        )
    assert bench.recorder.rejected == 3
    written = (tmp_path / "deadletter" / "n.jsonl").read_text()
    assert len(written.splitlines()) == 3
    assert "private-id" not in written + caplog.text
    assert "private-topic" not in written + caplog.text
    assert "private-name" not in written + caplog.text


def test_the_logs_tell_less_and_less_often_of_what_goes_on(
    make: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(batch_rows=1)
    bench.tell(["no text"], 100)
    assert bench.recorder.rejected == 100
    assert len(caplog.records) == 7


def test_a_time_that_is_none_costs_its_own_event_alone(make: Callable[..., Bench]) -> None:
    bench = make()
    for at in (math.nan, math.inf, -math.inf, 1e30):
        bench.recorder.record(0, CLIENT, Message("odd", b""), at=at)
    bench.tell("good")
    bench.recorder.flush()
    bench.recorder.flush()
    assert bench.topics() == ["good", "rejected 4"]


def test_a_batch_of_which_nothing_is_left_is_no_trouble(make: Callable[..., Bench]) -> None:
    bench = make(batch_rows=1)
    bench.tell(5)
    bench.tell("good")
    assert bench.topics() == ["rejected 1", "good"]


def test_what_is_set_aside_is_bounded(make: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make(max_rejects=1000)
    bench.tell(["x"], 50)
    assert 0 < (tmp_path / "deadletter" / "n.jsonl").stat().st_size <= 1000
    assert bench.recorder.rejected == 50


def test_nowhere_to_set_it_aside(make: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make()
    (tmp_path / "deadletter").write_text("no folder")
    bench.tell(["x"], 10)
    assert bench.recorder.rejected == 10
