from collections.abc import Generator

import pytest

from tests.nats.servers import KINDS, NatsServer, running


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    """With JetStream, of each kind."""
    folder = tmp_path_factory.mktemp("nats")
    with running(request.param, folder, "-js", "-sd", str(folder / "js")) as one:
        yield one
