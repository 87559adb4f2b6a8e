"""A chart of the ratios: a group of bars a workload, one colour a peer. It needs matplotlib, which nothing else
does."""

from pathlib import Path
from typing import Any, Final

from bench.results import Case, rows

COLOURS: Final = {
    "mosquitto": "#8c8c8c",
    "trunkline": "#d9480f",
    "nats-server": "#1c7ed6",
    "aedes": "#2f9e44",
    "amqtt": "#ae3ec9",
}
#: Where the axis begins: a broker that hardly delivers would squeeze the bars of the others.
MIN_RATIO: Final = 0.02
OTHERS: Final = ("#f59f00", "#0ca678", "#e64980", "#5c940d", "#364fc7")


class NotDrawn(Exception):
    """There is nothing to draw, or nothing to draw with."""


def bars(kept: dict[str, Any]) -> dict[Case, dict[str, float]]:
    """Ratios to the first peer; what has no rank has no bar. Where less is better a long bar would mislead: it is the
    other way round there."""
    found: dict[Case, dict[str, float]] = {}
    for row in rows(kept):
        if row.ratio:
            found.setdefault(row.case, {})[row.peer] = 1 / row.ratio if row.less_is_better else row.ratio
    return found


def plot(kept: dict[str, Any], path: Path) -> None:
    base = next((row.base for row in rows(kept)), "")
    # the first peer is 1 everywhere, by definition: a line is enough for it; and the sink is no broker
    groups = {
        case: {peer: ratio for peer, ratio in group.items() if peer not in (base, "sink")}
        for case, group in bars(kept).items()
    }
    if not any(groups.values()):
        raise NotDrawn("no peer has a ratio to another one: nothing to draw")
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullFormatter
    except ImportError:
        raise NotDrawn("the chart needs matplotlib: pip install matplotlib") from None
    peers = list(dict.fromkeys(peer for group in groups.values() for peer in group))
    others = iter(OTHERS * len(peers))
    height = 0.8 / len(peers)
    figure = Figure(figsize=(7, 1.5 + 0.11 * len(groups) * (len(peers) + 1)), layout="constrained")
    axes = figure.add_subplot()
    for place, peer in enumerate(peers):
        shown = [(number, group[peer]) for number, group in enumerate(groups.values()) if peer in group]
        at = [number + (place - (len(peers) - 1) / 2) * height for number, _ in shown]
        drawn = axes.barh(
            at,
            # from 1, so that slower than the first peer points the other way
            [max(ratio, MIN_RATIO) - 1 for _, ratio in shown],
            height,
            left=1,
            label=peer,
            color=COLOURS.get(peer) or next(others),
        )
        axes.bar_label(
            drawn,
            [f"{float(f'{ratio:.2g}'):g}" if ratio >= MIN_RATIO else "~0" for _, ratio in shown],
            padding=2,
            fontsize=6,
        )
    axes.set_yticks(range(len(groups)), [label(case, kept) for case in groups], fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8, label=base)
    axes.set_xlabel(f"times {base}, more is better (log)")
    axes.set_title(f"{kept.get('date', '')[:10]}  {kept['machine']['cpu']}", fontsize=9)
    axes.legend(fontsize=8, loc="best")
    figure.savefig(path)


def label(case: Case, kept: dict[str, Any]) -> str:
    """As short as it is without doubt: what is the same everywhere is left out."""
    cases = {row.case for row in rows(kept)}
    memory = any(row.less_is_better for row in rows(kept) if row.case == case)
    words = [f"{case.workload}, by memory" if memory else case.workload]
    if len({other.version for other in cases}) > 1:
        words.append(case.version)
    if len({other.payload for other in cases}) > 1:
        words.append(str(case).rpartition(", ")[2])
    return " ".join(words)
