"""What the event log of a quiet broker takes: `python -m bench.quiet_log --help`.

A broker with its defaults lives through days of virtual time with one publisher and one subscriber. Then its log is
compacted, and with `--report` a report is made of it.
"""

import argparse
import resource
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
from trio.testing import MockClock

import trunkline.testing
from bench.command import write_results
from trunkline.client import Client, ConnectionSettings
from trunkline.events.compaction import compact
from trunkline.events.reader import EventLog

DAY: Final = 86_400
#: Messages that are published together, at most.
BURST: Final = 10


@dataclass(frozen=True, slots=True)
class Quiet:
    """The log after some days with so many messages a second."""

    rate: float
    days: float
    rows: int
    #: Bytes and files when the broker stopped, and most bytes at any end of an hour.
    size: int
    files: int
    largest: int
    #: Seconds of processor time that the broker took.
    broker: float
    #: Seconds of compaction into one place, and the bytes of its files.
    compaction: float
    compacted: int
    #: Seconds that the report took, with the start of Spark.
    report: float | None = None


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def size_of(folder: Path) -> int:
    size = 0
    for path in files_of(folder):
        with suppress(FileNotFoundError):  # the log of a living broker merges its files
            size += path.stat().st_size
    return size


async def live(folder: Path, rate: float, seconds: float) -> int:
    """Returns the largest size of the log at the end of an hour, in bytes."""
    largest = 0
    # its files are of today, whatever the virtual time, and syncs of virtual seconds would wait for the real disk
    events = {"path": str(folder / "log"), "max_age": 1000 * DAY, "max_size": 1024**4, "sync": DAY}
    # else as a standalone broker is by default: with its metrics as topics, and a store
    settings = {"sys": {}, "store": {"path": folder / "store"}, "plugins": {"events": events}}
    async with (
        trunkline.testing.broker(**settings, history=0) as broker,
        Client(ConnectionSettings(client_id="subscriber"), open_stream=broker.connect) as subscriber,
        Client(ConnectionSettings(client_id="publisher"), open_stream=broker.connect) as publisher,
        await subscriber.subscribe("plant/#", qos=1) as messages,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            async for _ in messages:
                pass

        nursery.start_soon(read)
        burst = max(1, min(BURST, int(rate)))
        end, hour = trio.current_time() + seconds, 0
        while trio.current_time() < end:
            await trio.sleep(burst / rate if rate else 600.0)
            for _ in range(burst if rate else 0):
                publisher.publish_nowait("plant/1/temperature", b"21.5", qos=1)
            if trio.current_time() // 3600 > hour:
                hour = int(trio.current_time() // 3600)
                largest = max(largest, size_of(folder / "log"))
        nursery.cancel_scope.cancel()
    return largest


def run(folder: Path, rate: float, days: float, *, report: bool) -> Quiet:
    log, lake = folder / "log", folder / "lake"
    before = resource.getrusage(resource.RUSAGE_SELF)
    largest = trio.run(live, folder, rate, days * DAY, clock=MockClock(autojump_threshold=0))
    after = resource.getrusage(resource.RUSAGE_SELF)
    size, files = size_of(log), len(files_of(log))
    events = EventLog(log)
    events.refresh()
    began = time.perf_counter()
    compact(log, lake)
    took = time.perf_counter() - began
    reported = None
    if report:
        began = time.perf_counter()
        command = ["-m", "trunkline", "analytics", "report", "--input", str(log), "--html", str(folder / "page.html")]
        subprocess.run([sys.executable, *command], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        reported = time.perf_counter() - began
    return Quiet(
        rate,
        days,
        sum(extent.end for extent in events.nodes().values()),
        size,
        files,
        max(largest, size),
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        took,
        size_of(lake),
        reported,
    )


def table(found: list[Quiet]) -> str:
    """In Markdown."""
    lines = [
        "| messages/s | days | rows | log | files | most | compacted | in | report | broker |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        report = "-" if each.report is None else f"{each.report:.0f} s"
        cells = [
            f"{each.rate:g}",
            f"{each.days:g}",
            f"{each.rows:,}",
            f"{each.size / 1e6:,.2f} MB",
            f"{each.files}",
            f"{each.largest / 1e6:,.2f} MB",
            f"{each.compacted / 1e6:,.2f} MB",
            f"{each.compaction:.1f} s",
            report,
            f"{each.broker / each.days:.0f} s/day",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quiet_log", description="What a quiet broker's log takes.")
    parser.add_argument(
        "--rate", type=float, action="append", help="messages a second; may be repeated; default: 0, 1 and 100"
    )
    parser.add_argument("--days", type=float, default=7.0, help="of virtual time")
    parser.add_argument("--report", action="store_true", help="make a report of each log, with Spark")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    found: list[Quiet] = []
    for rate in given.rate or (0.0, 1.0, 100.0):
        with TemporaryDirectory() as folder:
            found.append(run(Path(folder), rate, given.days, report=given.report))
        print(table(found[-1:]), flush=True)
    write_results(given, [asdict(each) for each in found])
    return 0


if __name__ == "__main__":
    sys.exit(main())
