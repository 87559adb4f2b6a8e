"""The report for programs: its sums and findings as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trunkline.analytics.report.findings import findings, totals
from trunkline.analytics.report.loads import loads
from trunkline.analytics.report.tables import MAX_ROWS

if TYPE_CHECKING:
    from pyspark.sql import Row

    from trunkline.analytics.report.results import Results, Top


def summary(results: Results) -> str:
    """One object. Numbers are sums over the period, in the units of `Totals`; what there is none of is null. Of what
    may be long it has as many rows as a table of the page, and how many there are."""
    document = {
        "source": results.source,
        "begin": results.begin.isoformat(),
        "end": results.end.isoformat(),
        "made": results.made.isoformat(),
        "totals": totals(results)._asdict(),
        "before": results.before
        and {
            "begin": results.before.begin.isoformat(),
            "end": results.before.end.isoformat(),
            "totals": totals(results.before)._asdict(),
        },
        "payload_sizes": [row.asDict() for row in results.sizes],
        "topics": {
            "once": results.topics_once,
            "most": _first(results.topics),
            "spread": _first(results.branches),
            "unheard": _first(results.unheard),
            "fanout": _first(results.fanout),
        },
        "dead_subscriptions": {"after": results.dead_after, **_first(results.dead)},
        "connections": {"by_end": [row.asDict() for row in results.stays], "moves": _first(results.moves)},
        "gauges": [_plain(row._asdict()) for row in results.gauge_sums],
        "loads": [{**load._asdict(), "skew": load.skew} for load in loads(results)],
        "use": {
            "users": _first(results.users),
            "listeners": _first(results.listeners),
            "protocols": _first(results.protocols),
        },
        "findings": [
            {"severity": found.severity, "name": found.name, "number": found.number, "text": found.text}
            for found in findings(results)
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _first(top: Top[Row]) -> dict[str, Any]:
    return {"total": top.total, "first": [_plain(row.asDict()) for row in top.rows[:MAX_ROWS]]}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
