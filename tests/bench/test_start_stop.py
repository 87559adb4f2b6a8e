"""What the measurement does is tested, not how long anything takes on this machine."""

import sys
import threading
from collections.abc import Callable

import pytest
from bench.start_stop import CASES, Figures, main, measure, row


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case_starts_and_stops_and_leaves_nothing(case: Callable[[], Figures]) -> None:
    threads = threading.active_count()
    figures = measure(case, 2)
    assert len(figures) == 2
    assert all(start > 0 and stop > 0 for start, stop in figures)
    assert threading.active_count() <= threads  # others may have ended meanwhile


def test_a_row_has_medians_in_milliseconds() -> None:
    assert row("x", [(0.001, 0.002), (0.003, 0.004), (0.009, 0.009)])[:4] == ["x", "3.00", "4.00", "7.00"]


def test_the_table_has_all_cases(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["start_stop", "--times", "1"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == list(CASES)
