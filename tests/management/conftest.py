import logging
from collections.abc import Callable, Iterator

import pytest


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
