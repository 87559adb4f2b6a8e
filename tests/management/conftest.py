import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance import raw
from tests.management.journals import write
from trunkline.management.journal_file import BrokerEnding, Closed, Opened, Passed


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What has reached standard error. The process's logging is as before when the test is over."""
    root = logging.getLogger()
    level = root.level
    yield lambda: capsys.readouterr().err
    logging.captureWarnings(False)
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two clients; one of them was there before."""
    return write(
        tmp_path / "journal",
        Opened(0.0, 4, "old", 4, ("127.0.0.1", 4711), whole=False),
        Opened(0.25, 5, "", 0, None, whole=True),
        Passed(0.5, 5, True, raw.connect("ann", username="ann", password="***"), masked=True),
        Passed(0.5, 5, False, raw.packet(raw.CONNACK, b"\0\0\0"), masked=False),
        Passed(1.0, 5, True, raw.publish("t/1", b"\xff\0", qos=1, packet_id=3, properties=raw.topic_alias(2)), False),
        Passed(1.0, 5, True, raw.publish("", b"hello", properties=raw.topic_alias(2)), masked=False),
        Passed(1.5, 5, False, raw.ack(raw.PUBACK, 3, 0x10), masked=False),
        Passed(2.0, 4, False, raw.publish("t/1", b"hello", version=4), masked=False),
        Passed(2.0, 5, True, raw.packet(raw.PUBACK, b"\0"), masked=False),
        Closed(2.5, 5, "broker", ""),
        Closed(3600.0, 4, "client", "connection lost"),
        BrokerEnding(3600.0, False, True, True),
    )
