"""The results of all runs, written to a JSON file and read again."""

import datetime
import json
import os
import platform
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Outcome
from bench.workloads import PAYLOAD, Workload


@dataclass(slots=True)
class Series:
    """The results of one peer in one workload, round by round."""

    workload: Workload
    version: str
    peer: str
    unsupported: str | None = None  # what of the workload the peer does not offer
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return sum(outcome.lost for outcome in self.outcomes)

    @property
    def ranked(self) -> bool:
        """A run that lost something, or failed, has no rate."""
        return bool(self.outcomes) and not self.lost and not self.failures

    @property
    def good(self) -> bool:
        return self.ranked or self.unsupported is not None

    @property
    def median(self) -> float:
        return statistics.median(outcome.rate for outcome in self.outcomes)

    @property
    def per_cpu_second(self) -> float | None:
        """The rate by the processor time that the broker took: what a busy machine disturbs least."""
        if self.workload.kind == "idle":
            return None
        return statistics.median(outcome.rate / max(outcome.broker_cpu, 0.01) for outcome in self.outcomes)

    @property
    def bytes_each(self) -> float | None:
        """Resident memory of what the workload has the broker hold."""
        each = [outcome.bytes_each for outcome in self.outcomes if outcome.bytes_each is not None]
        return statistics.median(each) if each else None

    def as_json(self) -> dict[str, Any]:
        rates = [round(outcome.rate, 1) for outcome in self.outcomes]
        each = self.bytes_each
        return {
            "workload": self.workload.name,
            "version": self.version,
            "payload": self.workload.payload,
            "transport": self.workload.transport,
            "peer": self.peer,
            "unit": self.workload.unit,
            "less_is_better": self.workload.less_is_better,
            "ranked": self.ranked,
            "unsupported": self.unsupported,
            "median": round(self.median, 1) if rates else None,
            "min": min(rates, default=None),
            "max": max(rates, default=None),
            "per_cpu_second": round(self.per_cpu_second or 0, 1) if rates else None,
            "bytes_each": None if each is None else {"of": self.workload.held_unit, "bytes": round(each, 1)},
            "lost": self.lost,
            "failures": self.failures,
            "rounds": [asdict(outcome) for outcome in self.outcomes],
        }


def machine() -> dict[str, Any]:
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def called() -> list[str]:
    """The command line, without the folders of this machine."""
    return [Path(part).name if Path(part).is_absolute() else part for part in sys.argv]


def document(options: dict[str, Any], peers: dict[str, str | None], all_series: list[Series]) -> dict[str, Any]:
    """`peers` are their versions."""
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": machine(),
        "peers": peers,
        "options": options,
        "command": called(),
        "results": [series.as_json() for series in all_series],
    }


def write(path: Path, kept: dict[str, Any]) -> None:
    path.write_text(json.dumps(kept, indent=2) + "\n")


class NotResults(Exception):
    """A file that isn't one of these."""


def read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NotResults(f"{path}: {error}") from error
    if not isinstance(kept, dict) or "results" not in kept:
        raise NotResults(f"{path} holds no results of a benchmark")
    return kept


class Case(NamedTuple):
    """The unit of comparison."""

    workload: str
    version: str
    payload: int
    transport: str = "tcp"

    @property
    def name(self) -> str:
        return self.workload if self.transport == "tcp" else f"{self.workload} {self.transport}"

    def __str__(self) -> str:
        return f"{self.name}, MQTT {self.version}, {size(self.payload)}"


class Row(NamedTuple):
    """One result as it is shown. `rate` is None where there is no rank, and `state` says why."""

    case: Case
    peer: str
    unit: str
    state: str
    rate: float | None = None
    ratio: float | None = None  # to the first peer of the case
    base: str = ""  # that peer
    per_cpu_second: float | None = None
    bytes_each: float | None = None
    less_is_better: bool = False
    generator: float = 0.0  # share of a core that the busiest generator process took
    broker: float = 0.0  # the same for the broker


def rows(kept: dict[str, Any]) -> list[Row]:
    """Files that are older than payload sizes have 64 bytes everywhere, older than transports TCP."""
    first: dict[Case, dict[str, Any]] = {}
    found = []
    for result in kept["results"]:
        case = Case(
            result["workload"], result["version"], result.get("payload", PAYLOAD), result.get("transport", "tcp")
        )
        base = first.setdefault(case, result)
        common = (case, result["peer"], result["unit"])
        less = result.get("less_is_better", result["workload"] == "idle")
        if not result["ranked"]:
            found.append(Row(*common, state(result), base=base["peer"], less_is_better=less))
            continue
        comparable = base["ranked"] and base["median"]
        each = result.get("bytes_each")
        found.append(
            Row(
                *common,
                "ranked",
                rate=result["median"],
                ratio=result["median"] / base["median"] if comparable else None,
                base=base["peer"],
                per_cpu_second=result["per_cpu_second"] or None,
                bytes_each=each["bytes"] if each else None,
                less_is_better=less,
                generator=statistics.median(outcome["generator_cpu"] for outcome in result["rounds"]),
                broker=statistics.median(outcome["broker_cpu"] for outcome in result["rounds"]),
            )
        )
    return found


def state(result: dict[str, Any]) -> str:
    """Why it has no rank."""
    if result.get("unsupported"):
        return "not supported"
    if result["failures"]:
        return "failed"
    return f"lost {result['lost']:,}" if result["lost"] else "not run"


def size(payload: int) -> str:
    return f"{payload // 1024} KiB" if payload >= 1024 and payload % 1024 == 0 else f"{payload} B"
