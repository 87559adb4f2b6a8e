from collections.abc import Generator

import pytest

from tests.nats.servers import BROKER, CORE_KINDS, NatsServer, running


@pytest.fixture(scope="module", params=CORE_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    """With JetStream, of each kind that has it; tests of JetStream itself are not for others."""
    if request.param == BROKER and "jetstream" in request.module.__name__:
        pytest.skip("the broker has no JetStream yet")
    folder = tmp_path_factory.mktemp("nats")
    options = () if request.param == BROKER else ("-js", "-sd", str(folder / "js"))
    with running(request.param, folder, *options) as one:
        yield one
