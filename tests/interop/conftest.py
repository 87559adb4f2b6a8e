import gc
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """paho, gmqtt and nats-py leave sockets open that they have lost, or that were refused: no fault of the test in
    which the collector happens to find them."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _what_clients_leave() -> Iterator[None]:
    """Collected here, not in the tests of other folders."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Broker]:
    """One broker for all tests of this process: each test has names of its own."""
    with server.running(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A prefix for this test's topics and client ids."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
