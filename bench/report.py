"""Figures: medians over the rounds, ratios between the peers, one line each."""

import json
import os
import platform
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.load import Outcome
from bench.workloads import Workload


@dataclass(slots=True)
class Series:
    """What one peer did in one workload, round by round."""

    workload: Workload
    version: str
    peer: str
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
    def median(self) -> float:
        return statistics.median(outcome.rate for outcome in self.outcomes)

    @property
    def per_cpu_second(self) -> float | None:
        """The rate by the processor time that the broker took: what a busy machine disturbs least."""
        if self.workload.kind == "idle":
            return None
        return statistics.median(outcome.rate / max(outcome.broker_cpu, 0.01) for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        rates = [round(outcome.rate, 1) for outcome in self.outcomes]
        return {
            "workload": self.workload.name,
            "version": self.version,
            "peer": self.peer,
            "unit": self.workload.unit,
            "ranked": self.ranked,
            "median": round(self.median, 1) if rates else None,
            "min": min(rates, default=None),
            "max": max(rates, default=None),
            "per_cpu_second": round(self.per_cpu_second or 0, 1) if rates else None,
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


HEADER = (
    f"{'workload':<15}{'MQTT':<7}{'peer':<12}{'median':>12}{'min … max':>25}{'ratio':>8}"
    f"{'per CPU s':>12}{'broker':>8}{'gen.':>6}"
)


def line(series: Series, first: Series | None) -> str:
    """The ratio is to the first peer of the run."""
    name = f"{series.workload.name:<15}{series.version:<7}{series.peer:<12}"
    if series.failures:
        return f"{name}  failed: {series.failures[0].strip().splitlines()[-1]}"
    if not series.outcomes:
        return f"{name}  not run"
    rates = [outcome.rate for outcome in series.outcomes]
    if series.lost:
        duplicates = sum(outcome.duplicates for outcome in series.outcomes)
        return f"{name}  lost {series.lost:,} messages ({duplicates:,} duplicates): not ranked"
    ratio = f"{series.median / first.median:.2f}" if first and first.ranked and first.median else "-"
    span = f"{min(rates):,.0f} … {max(rates):,.0f}"
    work = f"{series.per_cpu_second:,.0f}" if series.per_cpu_second else "-"
    broker = statistics.median(outcome.broker_cpu for outcome in series.outcomes)
    generator = statistics.median(outcome.generator_cpu for outcome in series.outcomes)
    return f"{name}{series.median:>12,.0f}{span:>25}{ratio:>8}{work:>12}{broker:>8.0%}{generator:>6.0%}"


def table(all_series: list[Series]) -> str:
    lines = [HEADER, "-" * len(HEADER)]
    group: list[Series] = []
    for series in all_series:
        if group and (group[0].workload.name, group[0].version) != (series.workload.name, series.version):
            lines.append("")
            group = []
        group.append(series)
        lines.append(line(series, group[0]))
    lines += [
        "",
        "deliveries/s, connections/s, or (idle) resident bytes a connection; ratio to the first peer.",
        "per CPU s: the same by the processor time that the broker took; steadier where others use the machine too.",
        "broker and gen.: share of a core that the broker and the busiest generator took. Near 100 % of gen. with less",
        "than that of the broker, the generator was the limit.",
    ]
    return "\n".join(lines)


def write_json(path: Path, options: dict[str, Any], all_series: list[Series]) -> None:
    document = {
        "machine": machine(),
        "options": options,
        "command": sys.argv,
        "results": [series.as_json() for series in all_series],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
