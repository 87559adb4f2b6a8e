"""What is read again while a broker runs, and what becomes of mistakes in it."""

import logging
from collections.abc import Callable, Iterator

import pytest

from trunkline.broker.config import Config
from trunkline.broker.security import SecurityError
from trunkline.management.reloading import ReloadError, reload


class FakeBroker:
    def __init__(self, read: Callable[[], Config] | None = None, error: Exception | None = None) -> None:
        self.config = Config()
        self.read = read
        self.error = error
        self.reloaded = 0

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
    broker = FakeBroker(lambda: Config.from_mapping({"log": {"level": "debug"}, "mqtt": {"max_qos": 1}}))
    before = logging.getLogger().handlers[:]
    assert reload(broker) == ["mqtt.max_qos"]
    assert broker.reloaded == 1
    assert logging.getLogger().level == logging.DEBUG
    assert "WARNING trunkline: reloaded; a restart is needed for mqtt.max_qos" in capsys.readouterr().err
    assert logging.getLogger().handlers != before
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
        handler.close()


def test_the_log_of_somebody_elses_process_is_left_alone() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    before = logging.getLogger().handlers[:]
    broker = FakeBroker()
    assert reload(broker) == []
    assert broker.reloaded == 1
    assert (logging.getLogger().level, logging.getLogger().handlers) == (logging.ERROR, before)


@pytest.mark.parametrize(
    ("read", "error", "problems"),
    [
        (lambda: Config.from_mapping({"mqtt": {"max_qos": 7}}), None, ["settings: mqtt.max_qos: 7"]),
        (None, SecurityError(["users:1: no", "users:2: no"]), ["users:1: no", "users:2: no"]),
        (None, PermissionError(13, "Permission denied"), ["Permission denied"]),
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
