"""What is read again while a broker runs, and what becomes of mistakes in it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trunkline.config.config import NEED_RESTART, WHOLE, Config, key_paths
from trunkline.config.errors import SecurityError
from trunkline.config.node_settings import LogSettings
from trunkline.config.reader import from_mapping
from trunkline.config.section import PluginSettings
from trunkline.management import logs
from trunkline.management.reloading import Pending, ReloadError, reload
from trunkline.plugins.errors import PluginError


class FakeBroker:
    """And its plugins."""

    def __init__(self, read: Callable[[], Config] | None = None, error: Exception | None = None) -> None:
        self.config = Config()
        self.read = read
        self.error = error
        self.reloaded = 0
        self.plugins = self
        self.running: dict[str, PluginSettings] = {}
        self.unapplied: set[str] = set()
        self.steps: list[str] = []
        self.broken = ""
        self.reconfiguring = self
        self.lock = trio.Lock()

    def enabled(self) -> dict[str, PluginSettings]:
        return self.running

    async def apply(self, new: Config) -> list[str]:
        if self.error is not None:
            raise self.error
        self.reloaded += 1
        self.config = new
        return []

    async def enable(self, name: str, settings: PluginSettings) -> None:
        self._step("enable", name)

    async def reload(self, name: str, settings: PluginSettings) -> None:
        self._step("reload", name)

    async def disable(self, name: str) -> None:
        self._step("disable", name)

    def _step(self, verb: str, name: str) -> None:
        self.steps.append(f"{verb} {name}")
        if name == self.broken:
            raise PluginError([f"{name} cannot start", f"the plugin {name} goes on as before"])


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    logging.captureWarnings(False)
    root.setLevel(level)


async def test_a_broker_of_its_own_reads_everything_again(capsys: pytest.CaptureFixture[str]) -> None:
    broker = FakeBroker(lambda: from_mapping({"log": {"level": "debug"}, "node": {"name": "other"}}))
    before = logging.getLogger().handlers[:]
    assert await reload(broker) == Pending(["node.name"], [])
    assert broker.reloaded == 1
    assert logging.getLogger().level == logging.DEBUG
    assert "WARNING trunkline: reloaded; a restart is needed for node.name" in capsys.readouterr().err
    assert logging.getLogger().handlers != before
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
        handler.close()


async def test_plugins_whose_sections_have_changed_are_changed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "switching", lambda settings: nullcontext())
    caplog.set_level(logging.INFO)
    on, off, other = PluginSettings(), PluginSettings(enabled=False), PluginSettings(restarts=1)
    broker = FakeBroker(lambda: Config(plugins={"a": on, "b": other, "c": on, "d": off, "f": off, "g": on, "h": other}))
    broker.config = Config(plugins={"a": on, "b": on, "d": on, "e": on, "g": on, "h": on})
    broker.running = {"a": on, "b": on, "d": on, "e": on, "h": other, "by hand": on}
    assert await reload(broker) == Pending([], [])
    assert broker.steps == ["reload b", "enable c", "disable d", "disable e"]
    assert await reload(broker) == Pending([], [])
    assert len(broker.steps) == 4
    assert caplog.messages == ["reloaded"] * 2


async def test_reloads_at_the_same_time_come_one_after_the_other(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal and a command: the second reads what the first has not applied yet."""
    monkeypatch.setattr(logs, "switching", lambda settings: nullcontext())
    limits = iter((1, 2))
    broker = FakeBroker(lambda: from_mapping({"limits": {"max_connections": next(limits)}}))
    seen: list[int] = []

    async def apply(new: Config) -> list[str]:
        seen.append(broker.config.limits.max_connections)
        await trio.sleep(1)
        broker.config = new
        return []

    monkeypatch.setattr(broker, "apply", apply)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(reload, broker)
    assert seen == [0, 1]
    assert broker.config.limits.max_connections == 2


async def test_a_plugin_that_cannot_be_changed_is_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "switching", lambda settings: nullcontext())
    broker = FakeBroker(lambda: Config(plugins={"a": PluginSettings(), "b": PluginSettings()}))
    broker.broken = "a"
    for _ in range(2):
        assert await reload(broker) == Pending([], ["a cannot start; the plugin a goes on as before"])
    assert broker.steps == ["enable a", "enable b", "enable a"]
    assert "not applied: a cannot start; the plugin a goes on as before" in caplog.messages
    broker.broken = ""
    assert await reload(broker) == Pending([], [])


@pytest.mark.parametrize("path", list(key_paths()), ids=".".join)
async def test_what_is_not_applied_is_named(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/broker/test_every_setting.py` shows that the rest is applied."""
    monkeypatch.setattr(logs, "switching", lambda settings: nullcontext())
    section, *rest = path
    marker = object() if path[0] in WHOLE else getattr(Config(), section).model_copy(update={rest[0]: object()})
    broker = FakeBroker(lambda: Config().model_copy(update={section: marker}))
    assert await reload(broker) == Pending([".".join(path)] if path in NEED_RESTART else [], [])


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({"level": "warning"}, ""),
        ({"format": "json"}, '"message": "reloaded"}'),
        ({"file": "log"}, ""),
    ],
)
async def test_each_key_of_the_log_is_applied(
    settings: dict[str, str],
    written: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = logging.getLogger().handlers[:]
    assert await reload(FakeBroker(lambda: from_mapping({"log": settings}))) == Pending([], [])
    errors = capsys.readouterr().err
    assert written in errors if written else not errors
    assert ("file" in settings) == ((tmp_path / "log").exists() and "reloaded" in (tmp_path / "log").read_text())
    for handler in logging.getLogger().handlers[:]:
        if handler not in before:
            logging.getLogger().removeHandler(handler)
            handler.close()


def test_the_page_names_what_needs_a_restart_and_why() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
    table = page.partition("These need a restart:\n\n| | |\n|---|---|\n")[2].partition("\n\n")[0]
    by_reason: dict[str, list[str]] = {}
    for path, reason in NEED_RESTART.items():
        by_reason.setdefault(reason, []).append(f"`{'.'.join(path)}`")
    assert table.splitlines() == [f"| {', '.join(keys)} | {reason} |" for reason, keys in by_reason.items()]


async def test_the_log_of_somebody_elses_process_is_left_alone() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    before = logging.getLogger().handlers[:]
    broker = FakeBroker()
    assert await reload(broker) == Pending([], [])
    assert broker.reloaded == 1
    assert (logging.getLogger().level, logging.getLogger().handlers) == (logging.ERROR, before)


async def test_a_crash_is_as_any_other_mistake(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker(lambda: Config(), RecursionError("too deep"))
    with pytest.raises(ReloadError, match="RecursionError: too deep"):
        await reload(broker)
    assert caplog.messages == ["a reload crashed", "not reloaded: RecursionError: too deep"]


@pytest.mark.parametrize(
    ("read", "error", "problems"),
    [
        (lambda: from_mapping({"mqtt": {"max_qos": 7}}), None, ["settings: mqtt.max_qos: 7"]),
        (None, SecurityError(["users:1: no", "users:2: no"]), ["users:1: no", "users:2: no"]),
        (None, PermissionError(13, "Permission denied"), ["Permission denied"]),
        (lambda: Config(log=LogSettings(file=Path("no/where"))), None, ["No such file or directory: "]),
    ],
)
async def test_mistakes_change_nothing_and_are_all_told(
    read: Callable[[], Config] | None,
    error: Exception | None,
    problems: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = logging.getLogger().handlers[:]
    broker = FakeBroker(read, error)
    with pytest.raises(ReloadError) as caught:
        await reload(broker)
    assert len(caught.value.problems) == len(problems)
    for problem, said in zip(problems, caught.value.problems, strict=True):
        assert problem in said
    assert caplog.messages == [f"not reloaded: {said}" for said in caught.value.problems]
    assert broker.reloaded == 0
    assert logging.getLogger().handlers == before
