from collections.abc import Generator

import pytest

from tests.nats.servers import BROKER, CORE_KINDS, NatsServer, running

#: Parts of the names of modules whose tests are about JetStream.
NEED_JETSTREAM = ("jetstream", "consuming", "test_nats_py")


@pytest.fixture(scope="module", params=CORE_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    """With JetStream, of each kind that has it; tests of JetStream itself are not for others."""
    if request.param == BROKER and any(part in request.module.__name__ for part in NEED_JETSTREAM):
        pytest.skip("the broker has no JetStream yet")
    folder = tmp_path_factory.mktemp("nats")
    options = () if request.param == BROKER else ("-js", "-sd", str(folder / "js"))
    with running(request.param, folder, *options) as one:
        yield one
