from collections.abc import Iterator

import pytest

from tests.events import logs


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    yield
    logs.close_logs()
