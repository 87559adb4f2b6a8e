import re
from collections.abc import Iterator

import pytest

from tests.interop import server


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Broker]:
    """One broker for all tests of this process: each test has names of its own."""
    with server.running(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A prefix for this test's topics and client ids."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
