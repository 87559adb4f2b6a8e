"""Services with another client of NATS on the other side: nats-py."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.services import ServiceRequest, service_error_of
from trunkline.nats.errors import ServiceError

PEER = [sys.executable, str(Path(__file__).with_name("nats_py_peer.py"))]


@pytest.fixture(scope="module", autouse=True)
def needs_nats_py() -> None:
    # -P: not the folder of this name
    if subprocess.run([sys.executable, "-P", "-c", "import nats.micro"], capture_output=True, check=False).returncode:
        pytest.skip("needs nats-py")


async def handle(request: ServiceRequest) -> None:
    await trio.lowlevel.checkpoint()
    if not request.payload:
        raise ServiceError(400, "nothing to double")
    request.respond(request.payload * 2, headers={"By": "trunkline"})


async def test_their_client_asks_our_service(server: NatsServer) -> None:
    async with connect(server.url) as client, client.service("math", "1.0.0") as service:
        service.add_group("math").add_endpoint("double", handle)
        await client.flush()
        done = await trio.run_process([*PEER, "ask", server.url], capture_stdout=True)
        identity = ["math", "1.0.0", service.id]
    assert json.loads(done.stdout) == {
        "answer": ["abab", "trunkline"],
        "refusal": ["400", "nothing to double"],
        "PING": identity,
        "INFO": identity,
        "STATS": identity,
        "stats": ["math.double", 2, 1, "400:nothing to double"],
    }


@pytest.fixture
def their_service(server: NatsServer) -> Iterator[None]:
    process = subprocess.Popen([*PEER, "serve", server.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.usefixtures("their_service")
async def test_our_client_asks_their_service(server: NatsServer) -> None:
    async with connect(server.url) as client:
        answer = await client.request("double", b"ab", timeout=60)
        assert answer.payload == b"abab"
        assert service_error_of(answer) is None
        error = service_error_of(await client.request("double", timeout=60))
        assert error is not None
        assert (error.code, error.text) == (400, "nothing to double")
        async with client.service("own", "1.0.0") as service:
            service.add_endpoint("e", handle)
            for verb in ("PING", "INFO", "STATS"):
                theirs, ours = [
                    json.loads((await client.request(f"$SRV.{verb}.{name}", timeout=60)).payload)
                    for name in ("math", "own")
                ]
                assert theirs["type"] == ours["type"]
                assert theirs.keys() >= ours.keys() - {"description"}
                if verb != "PING":
                    assert theirs["endpoints"][0].keys() >= ours["endpoints"][0].keys()
