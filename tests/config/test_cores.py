"""How many processors there are for this process."""

import os
import sys
from pathlib import Path

import pytest

from trunkline.config.cores import usable_cores
from trunkline.config.node_settings import NodeSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no control groups")


@pytest.fixture(autouse=True)
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6})


def cores(tmp_path: Path, group: str, **quotas: str) -> int:
    for name, quota in quotas.items():
        folder = tmp_path / "groups" / name.replace("_", "/") if name != "top" else tmp_path / "groups"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(quota)
    membership = tmp_path / "membership"
    membership.write_text(group)
    return usable_cores(tmp_path / "groups", membership)


def test_those_that_the_process_may_run_on(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "missing") == 4


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 4), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("900000 100000", 4)],
)
def test_the_quota_of_its_control_group(tmp_path: Path, quota: str, expected: int) -> None:
    assert cores(tmp_path, "0::/a/b\n", a_b=quota) == expected


def test_the_quota_of_a_group_above(tmp_path: Path) -> None:
    assert cores(tmp_path, "1:name=x:/\n0::/a/b\n", a_b="300000 100000", a="200000 100000") == 2
    assert cores(tmp_path, "0::/\n", top="100000 100000") == 1


def test_a_number_of_workers_or_as_many_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NodeSettings().worker_count == 1
    assert NodeSettings(workers=3).worker_count == 3
    monkeypatch.setattr("trunkline.config.cores.usable_cores", lambda: 7)
    assert NodeSettings(workers="auto").worker_count == 7
