"""What is read again while a broker runs, and what becomes of mistakes in it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from trunkline.broker.security import SecurityError
from trunkline.config.config import Config
from trunkline.config.node_settings import LogSettings
from trunkline.config.reader import from_mapping
from trunkline.config.section import PluginSettings
from trunkline.management import logs
from trunkline.management.reloading import Pending, ReloadError, reload


class FakeBroker:
    def __init__(self, read: Callable[[], Config] | None = None, error: Exception | None = None) -> None:
        self.config = Config()
        self.read = read
        self.error = error
        self.reloaded = 0
        self.plugins = self
        self.running: dict[str, PluginSettings] = {}

    def enabled(self) -> dict[str, PluginSettings]:
        return self.running

    def reload(self) -> None:
        if self.error is not None:
            raise self.error
        self.reloaded += 1


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    logging.captureWarnings(False)
    root.setLevel(level)


def test_a_broker_of_its_own_reads_everything_again(capsys: pytest.CaptureFixture[str]) -> None:
    broker = FakeBroker(lambda: from_mapping({"log": {"level": "debug"}, "mqtt": {"max_qos": 1}}))
    before = logging.getLogger().handlers[:]
    assert reload(broker) == Pending(["mqtt.max_qos"], [])
    assert broker.reloaded == 1
    assert logging.getLogger().level == logging.DEBUG
    assert "WARNING trunkline: reloaded; a restart is needed for mqtt.max_qos" in capsys.readouterr().err
    assert logging.getLogger().handlers != before
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
        handler.close()


def test_plugins_need_no_restart(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "switching", lambda settings: nullcontext())
    caplog.set_level(logging.INFO)
    on, off, other = PluginSettings(), PluginSettings(enabled=False), PluginSettings(restarts=1)
    broker = FakeBroker(lambda: Config(plugins={"a": on, "b": other, "c": on, "d": off, "f": off}))
    broker.running = {"a": on, "b": on, "d": on, "e": on}
    steps = ["plugins reload b", "plugins enable c", "plugins disable d", "plugins disable e"]
    assert reload(broker) == Pending([], steps)
    assert caplog.messages[0].startswith("reloaded; `trunkline ctl plugins reload b` applies the changes there; `")
    broker.running = {"a": on, "b": other, "c": on}
    assert reload(broker) == Pending([], [])
    assert caplog.messages[1:] == ["reloaded"]


def test_the_log_of_somebody_elses_process_is_left_alone() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    before = logging.getLogger().handlers[:]
    broker = FakeBroker()
    assert reload(broker) == Pending([], [])
    assert broker.reloaded == 1
    assert (logging.getLogger().level, logging.getLogger().handlers) == (logging.ERROR, before)


def test_a_crash_is_as_any_other_mistake(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker(lambda: Config(), RecursionError("too deep"))
    with pytest.raises(ReloadError, match="RecursionError: too deep"):
        reload(broker)
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
def test_mistakes_change_nothing_and_are_all_told(
    read: Callable[[], Config] | None,
    error: Exception | None,
    problems: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = logging.getLogger().handlers[:]
    broker = FakeBroker(read, error)
    with pytest.raises(ReloadError) as caught:
        reload(broker)
    assert len(caught.value.problems) == len(problems)
    for problem, said in zip(problems, caught.value.problems, strict=True):
        assert problem in said
    assert caplog.messages == [f"not reloaded: {said}" for said in caught.value.problems]
    assert broker.reloaded == 0
    assert logging.getLogger().handlers == before
