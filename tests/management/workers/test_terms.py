"""The file that counts starts."""

import json
import os
from pathlib import Path

import pytest

from trunkline.config.config import Config
from trunkline.config.node_settings import StoreSettings
from trunkline.management.workers.terms import StartTerms, read_workers
from trunkline.store import StoreCorrupt, StoreInUse, StoreUnavailable
from trunkline.store.lock import FileLock

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(store=StoreSettings(path=tmp_path / "a.db"))


def terms(config: Config, count: int = 2, now: float = 100.5) -> StartTerms:
    return StartTerms(config, count, lambda: now)


def test_each_start_has_a_higher_term_over_restarts(config: Config) -> None:
    first = terms(config)
    given = [first.next() for _ in range(3)]
    first.close()
    second = terms(config, now=50)  # the clock was put back
    given += [second.next() for _ in range(2)]
    second.close()
    assert given == [100, 101, 102, 103, 104]


def test_a_term_is_on_the_disk_before_it_is_used(config: Config, tmp_path: Path) -> None:
    counting = terms(config)
    term = counting.next()
    assert read_workers(tmp_path / "a.db-workers") == (2, term)
    assert (tmp_path / "a.db-workers").stat().st_mode & 0o077 == 0
    counting.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_start_by_root_leaves_the_file_to_its_owner(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "a.db-workers"
    counting = terms(config)
    counting.next()
    os.chown(file, 12345, 54321)
    counting.next()
    counting.close()
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 54321)


def test_a_file_that_is_lost_does_no_harm(config: Config, tmp_path: Path) -> None:
    counting = terms(config, now=100)
    former = counting.next()
    counting.close()
    (tmp_path / "a.db-workers").unlink()
    counting = terms(config, now=200)
    assert counting.next() > former
    counting.close()


def test_a_file_that_was_not_finished_changes_nothing(config: Config, tmp_path: Path) -> None:
    counting = terms(config)
    counting.next()
    counting.close()
    (tmp_path / "a.db-workers-new").write_text('{"form')
    counting = terms(config)
    assert counting.next() == 101
    counting.close()


def test_a_full_disk_keeps_no_worker_from_starting_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    counting = terms(config)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        counting.next()
    monkeypatch.undo()
    counting.next()
    monkeypatch.setattr(os, "fsync", full)
    assert counting.next() == 102
    assert "a.db-workers cannot be written: No space left on device" in caplog.text
    counting.close()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", StoreCorrupt),
        ("[]", StoreCorrupt),
        ('{"format": 1, "workers": "x"}', StoreCorrupt),
        ('{"format": 2}', StoreUnavailable),
    ],
)
def test_a_file_that_says_nothing_is_refused(
    config: Config, tmp_path: Path, content: str, error: type[Exception]
) -> None:
    (tmp_path / "a.db-workers").write_text(content)
    with pytest.raises(error, match="a.db-workers"):
        terms(config)
    with FileLock(tmp_path / "a.db"):
        pass  # it is free


def test_the_stores_of_another_number_of_workers_are_refused(config: Config, tmp_path: Path) -> None:
    counting = terms(config, count=3)
    counting.next()
    counting.close()
    with pytest.raises(
        StoreUnavailable, match="that of 3 workers, and node.workers is 2: .*`trunkline store reshard 2`"
    ):
        terms(config)
    assert json.loads((tmp_path / "a.db-workers").read_text())["workers"] == 3
    (tmp_path / "a.db-workers").unlink()
    (tmp_path / "a.2.db").touch()
    with pytest.raises(StoreUnavailable, match="more than 2 workers"):
        terms(config)


@pytest.mark.parametrize(
    ("there", "missed"), [((), ()), ((0, 1, 2), ()), ((0, 2), (1,)), ((1,), (0, 2))], ids=["none", "all", "two", "one"]
)
def test_a_part_that_is_gone_is_missed(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture, there: tuple[int, ...], missed: tuple[int, ...]
) -> None:
    counting = terms(config, count=3)
    counting.next()
    counting.close()
    for number in there:
        (tmp_path / f"a.{number}.db").touch()
    terms(config, count=3).close()
    assert caplog.messages == [
        f"{tmp_path}/a.{number}.db, a part of the store, is gone: its worker begins without sessions"
        for number in missed
    ]


def test_the_store_of_one_process_is_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    with pytest.raises(StoreUnavailable, match="that of one process"):
        terms(config)


def test_one_supervisor_has_it_and_no_single_process(config: Config, tmp_path: Path) -> None:
    counting = terms(config)
    with pytest.raises(StoreInUse, match="a.db is in use"):
        terms(config)
    with pytest.raises(StoreInUse):
        FileLock(tmp_path / "a.db")
    counting.close()
    terms(config).close()


def test_without_a_store_nothing_is_written(tmp_path: Path) -> None:
    config = Config(store=StoreSettings(path=tmp_path / "a.db", durability="memory"))
    counting = terms(config)
    assert [counting.next(), counting.next()] == [100, 101]
    counting.close()
    assert not list(tmp_path.iterdir())
