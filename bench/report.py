"""The table: medians over the rounds, ratios between the peers, one line each."""

import statistics
from typing import Final

from bench.results import Case, Row, Series, machine, size

__all__ = ["generator_margin", "line", "machine", "short_table", "table"]

MARGIN: Final = 2.0  # times as fast as the fastest broker the generator should be able to be

BUSY: Final = 0.9  # of its core, beyond which the generator is what all wait for

HEADER: Final = (
    f"{'workload':<20}{'MQTT':<7}{'payload':<9}{'peer':<18}{'median':>12}{'min … max':>25}{'ratio':>8}"
    f"{'per CPU s':>12}{'broker':>8}{'gen.':>6}"
)


def line(series: Series, first: Series | None) -> str:
    """The ratio is to the first peer of the run."""
    workload = series.workload
    name = head(series)
    if series.unsupported:
        return f"{name}  not supported: {series.unsupported}"
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
    held = ""
    if series.bytes_each is not None and workload.kind != "idle":
        held = f"  {series.bytes_each:,.0f} bytes/{workload.held_unit}"
    return f"{name}{series.median:>12,.0f}{span:>25}{ratio:>8}{work:>12}{broker:>8.0%}{generator:>6.0%}{held}"


def head(series: Series) -> str:
    case = case_of(series)
    return f"{case.name:<20}{case.version:<7}{size(case.payload):<9}{series.peer:<18}"


def table(all_series: list[Series]) -> str:
    lines = [HEADER, "-" * len(HEADER)]
    group: list[Series] = []
    for series in all_series:
        if group and case_of(group[0]) != case_of(series):
            lines.append("")
            group = []
        group.append(series)
        lines.append(line(series, group[0]))
    lines += [
        "",
        "deliveries/s, connections/s, packets/s, or (idle) resident bytes a connection; ratio to the first peer.",
        "per CPU s: the same by the processor time that the broker took; steadier where others use the machine too.",
        "broker and gen.: share of a core that the broker and the busiest generator took. Near 100 % of gen. with less",
        "than that of the broker, the generator was the limit. Every broker has one core, but nats-server all of them.",
    ]
    return "\n".join(lines)


def short_table(all_series: list[Series]) -> str:
    """Without figures: they mean nothing after a tenth of a second."""
    lines = []
    for series in all_series:
        said = line(series, None)
        if series.ranked:
            said = f"{head(series)}  nothing lost"
        lines.append(said)
    return "\n".join(lines)


def case_of(series: Series) -> Case:
    workload = series.workload
    return Case(workload.name, series.version, workload.payload, workload.transport)


def generator_margin(rows: list[Row]) -> str | None:
    """Whether the generator could have shown brokers that are much faster; None where the sink wasn't asked."""
    sinks = {row.case: row for row in rows if row.peer == "sink" and row.rate and not row.less_is_better}
    fastest: dict[Case, tuple[float, str]] = {}
    for row in rows:
        if row.peer != "sink" and row.rate and row.case in sinks:
            fastest[row.case] = max(fastest.get(row.case, (0.0, "")), (row.rate, row.peer))
    if not fastest:
        return None
    margins = {case: ((sinks[case].rate or 0.0) / rate, peer) for case, (rate, peer) in fastest.items()}
    short = {case: margin for case, margin in margins.items() if margin[0] < MARGIN}
    if not short:
        case = min(margins, key=margins.__getitem__)
        return (
            f"generator: it drives the sink at least twice as fast as the fastest broker, everywhere; "
            f"{margins[case][0]:.1f} times at the least ({case})."
        )
    lines = [
        f"generator: it does not drive the sink twice as fast as the fastest broker in {len(short)} of {len(margins)}:"
    ]
    for case, (margin, peer) in sorted(short.items()):
        lines.append(f"  {case}: {margin:.1f} times {peer}; {limit(sinks[case])}")
    return "\n".join(lines)


def limit(sink: Row) -> str:
    """What the sink's runs waited for."""
    if sink.generator >= BUSY:
        return "the limit was the generator"
    busy = f"the generator was busy for {sink.generator:.0%}"
    if sink.broker >= BUSY:
        return f"the limit was the sink, {busy}"
    return f"{busy} and the sink for {sink.broker:.0%}, so others used the machine"
