"""The measurement of quiet logs, over minutes instead of days."""

from pathlib import Path

import pytest
from bench.quiet_log import run, table


@pytest.mark.parametrize(("rate", "rows"), [(0.0, 600), (5.0, 12_000)])
def test_a_quarter_of_an_hour(tmp_path: Path, rate: float, rows: int) -> None:
    found = run(tmp_path, rate, 600 / 86_400, report=False)
    assert rows <= found.rows < rows + 8_000, "heartbeats, figures, and four events a message"
    assert rate or found.size < 50_000, "a broker's own topics make no rows"
    assert found.files == 3, "a segment, its index and the lock"
    assert f"| {rate:g} |" in table([found])
