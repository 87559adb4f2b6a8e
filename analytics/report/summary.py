"""The report for programs: its sums and findings as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trunkline.analytics.report.findings import findings, totals

if TYPE_CHECKING:
    from trunkline.analytics.report.results import Results


def summary(results: Results) -> str:
    """One object. Numbers are sums over the period, in the units of `Totals`; what there is none of is null."""
    document = {
        "source": results.source,
        "begin": results.begin.isoformat(),
        "end": results.end.isoformat(),
        "made": results.made.isoformat(),
        "totals": totals(results)._asdict(),
        "findings": [
            {"severity": found.severity, "name": found.name, "number": found.number, "text": found.text}
            for found in findings(results)
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
