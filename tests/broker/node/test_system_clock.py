"""The clocks of this machine."""

import time

import pytest

from trunkline.broker.node.system_clock import MachineClock


def test_a_correction_is_seen_and_the_start_of_the_machine_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, real = MachineClock(), time.time
    assert abs(machine.correction()) < 1
    before = machine.boot()
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert machine.correction() == pytest.approx(3600, abs=1)
    assert machine.calendar() == pytest.approx(real() + 3600, abs=1)
    after = machine.boot()
    if before is not None and after is not None:  # Linux
        assert before[0] == after[0]
        assert 0 <= after[1] - before[1] < 3600
