"""The broker that the suite is run against."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance import lab as laboratories
from tests.conformance.lab import Lab


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
