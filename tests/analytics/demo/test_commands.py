import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from trunkline.analytics.demo import commands
from trunkline.analytics.demo.checking import Check
from trunkline.analytics.demo.commands import INTERRUPTED, demo
from trunkline.analytics.demo.running import DemoError, Outcome, Settings

GOOD = Outcome([Check("latency", "windows", 3)], 7, Path("log"), 0)
BAD = Outcome([Check("latency", "windows", 3, ["(1,): did not come"])], 7, Path("log"), 0)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(demo, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The demonstration ends well, at once; with which settings."""
    seen: list[Settings] = []

    async def instead(settings: Settings, *given: Any) -> Outcome:
        seen.append(settings)
        return GOOD

    monkeypatch.setattr(commands, "_run", instead)
    return seen


def test_options_are_heeded_and_the_folder_goes(ended: list[Settings]) -> None:
    assert run("--duration", "9", "--rate", "20", "--seed", "5") == (0, "")
    (settings,) = ended
    assert (settings.duration, settings.rate, settings.seed) == (9, 20, 5)
    assert not settings.folder.exists()


def test_the_folder_is_kept(ended: list[Settings], tmp_path: Path) -> None:
    assert run("--keep", str(tmp_path / "new"))[0] == 0
    assert ended[0].folder == tmp_path / "new"
    assert ended[0].folder.is_dir()


def test_a_folder_with_something_in_it_is_refused(ended: list[Settings], tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    assert run("--keep", str(tmp_path)) == (
        2,
        f"trunkline: {tmp_path} is not empty: --keep wants a folder of its own\n",
    )
    assert ended == []


def test_differences_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def instead(*given: Any) -> Outcome:
        return BAD

    monkeypatch.setattr(commands, "_run", instead)
    assert run()[0] == 1


def test_what_goes_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def instead(*given: Any) -> Outcome:
        raise DemoError("a query has ended")

    monkeypatch.setattr(commands, "_run", instead)
    assert run() == (1, "trunkline: a query has ended\n")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_in_order(monkeypatch: pytest.MonkeyPatch, signum: signal.Signals) -> None:
    cleaned: list[Path] = []

    async def instead(settings: Settings, *given: Any) -> Outcome:
        try:
            signal.raise_signal(signum)
            await trio.sleep_forever()
        finally:
            cleaned.append(settings.folder)
            assert settings.folder.exists()
        raise AssertionError

    monkeypatch.setattr(commands, "_run", instead)
    before = signal.getsignal(signum)
    try:
        assert run() == (INTERRUPTED, "stopped\n")
    finally:
        signal.signal(signum, before)
    assert [folder.exists() for folder in cleaned] == [False]
