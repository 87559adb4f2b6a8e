"""The broker that the suite is run against."""

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance import lab as laboratories
from tests.conformance.lab import Lab

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def other_broker() -> Iterator[tuple[str, int] | None]:
    """Another broker than Trunkline, one for the whole run: CONFORMANCE_BROKER=mosquitto."""
    if laboratories.OTHER != "mosquitto":
        yield None
        return
    with laboratories.mosquitto({}) as address:
        yield address


@pytest.fixture
async def lab(other_broker: tuple[str, int] | None) -> AsyncIterator[Lab]:
    if other_broker is None:
        async with laboratories.laboratory() as lab:
            yield lab
    else:
        lab = Lab(*other_broker)
        yield lab
        await lab.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Members of a shared group at several shards are served in another order than they came: tests that know who is
    the next are for one shard."""
    if config.getoption("--workers") == 1:
        return
    skip = pytest.mark.skip(reason="members at several shards are served in another order")
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(HERE):
            source = inspect.getsource(inspect.unwrap(item.function))
            if "$share/" in source or "_members(" in source:
                item.add_marker(skip)
