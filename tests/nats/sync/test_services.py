# ruff: noqa: PT012 - how a block ends is the matter here
"""Services in threads, with real servers, asked by other threads and by nats-py."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import sync
from trunkline.nats.client.services import service_error_of
from trunkline.nats.errors import (
    BadService,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NatsError,
    NoResponders,
    ServiceError,
)

#: Seconds for what should come.
SOON = 60.0
PEER = Path(__file__).parents[1] / "client/services/nats_py_peer.py"


def double(request: sync.ServiceRequest) -> None:
    if not request.payload:
        raise ServiceError(400, "nothing to double")
    request.respond(request.payload * 2, headers={"By": "trunkline"})


def asked(client: sync.Client, subject: str, payload: bytes = b"") -> bytes | str:
    """The answer, or the error."""
    answer = client.request(subject, payload, timeout=SOON)
    return str(service_error_of(answer._message) or "") or answer.payload


def test_asked_by_another_thread(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    def odd(request: sync.ServiceRequest) -> None:
        if request.payload == b"fails":
            raise KeyError("a secret")
        request.respond_error(404, "no such thing", b"{}", headers={"A": "b"})
        assert str(request.error) == "404:no such thing"

    found: list[bytes | str] = []
    with sync.connect(server.url) as client, sync.connect(server.url) as asker:
        with client.service("math", "1.0.0", stats_handler=lambda endpoint: endpoint.description.name) as service:
            group = service.add_group("math")
            assert group.add_endpoint("double", double).description.subject == "math.double"
            group.add_group("deep", queue="").add_endpoint("odd", odd, max_concurrent=1)
            client.flush(timeout=SOON)

            def ask() -> None:
                found.extend(asked(asker, "math.double", b"%d" % number) for number in range(50))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SOON)
            assert sorted(found) == sorted([b"%d" % number * 2 for number in range(50)] * 4)
            assert asked(asker, "math.double") == "400:nothing to double"
            assert asked(asker, "math.deep.odd", b"fails") == "500:internal error"
            assert "a secret" in caplog.text
            assert asked(asker, "math.deep.odd") == "404:no such thing"
            stats = service.stats()
            assert [each["num_requests"] for each in stats["endpoints"]] == [201, 2]
            assert [each["data"] for each in stats["endpoints"]] == ["double", "odd"]
            assert json.loads(asker.request("$SRV.INFO.math").payload) == service.info()
            service.reset()
            assert service.stats()["endpoints"][0]["num_requests"] == 0
        with pytest.raises(NatsError, match="has stopped"):
            service.add_endpoint("late", double)
        client.flush(timeout=SOON)
        with pytest.raises(NoResponders):
            asker.request("math.double")


def test_asked_by_nats_py(server: NatsServer) -> None:
    if subprocess.run([sys.executable, "-P", "-c", "import nats.micro"], capture_output=True, check=False).returncode:
        pytest.skip("needs nats-py")
    with sync.connect(server.url) as client, client.service("math", "1.0.0") as service:
        service.add_group("math").add_endpoint("double", double)
        client.flush(timeout=SOON)
        command = [sys.executable, str(PEER), "ask", server.url]
        said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert (said["answer"], said["refusal"]) == (["abab", "trunkline"], ["400", "nothing to double"])
        assert said["PING"] == said["INFO"] == said["STATS"] == ["math", "1.0.0", service.id]


class Gate:
    """A handler that waits until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Event()
        self.now = self.most = 0

    def __call__(self, request: sync.ServiceRequest) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.reached.release()
        assert self.open.wait(SOON)
        self.now -= 1
        request.respond(b"done")


def test_the_end_of_the_block_waits_for_requests_that_have_come(server: NatsServer) -> None:
    gate = Gate()
    with sync.connect(server.url) as client, client.subscribe("answers") as answers:
        with client.service("s", "1.0.0", max_concurrent=3) as service:
            service.add_endpoint("e", gate)
            for _ in range(10):
                client.publish("e", reply="answers")
            for _ in range(3):
                assert gate.reached.acquire(timeout=SOON)
            with pytest.raises(TimeoutError):
                service.stopped(timeout=0.01)
            threading.Thread(target=gate.open.set).start()
        assert [answers.receive(timeout=SOON).payload for _ in range(10)] == [b"done"] * 10
        service.stopped(timeout=SOON)
        service.stop(timeout=SOON)
    assert gate.most == 3


@pytest.mark.parametrize("ending", ["block", "stop", "client"])
def test_handlers_that_do_not_end_hold_up_nobody(server: NatsServer, ending: str) -> None:
    gate = Gate()
    client = sync.connect(server.url).open(timeout=SOON)
    try:
        with pytest.raises((KeyError, TimeoutError, ClientClosed)), client.service("s", "1.0.0") as service:
            service.add_endpoint("e", gate)
            client.publish("e", reply="answers")
            assert gate.reached.acquire(timeout=SOON)
            if ending == "stop":
                service.stop(timeout=0.01)
            if ending == "client":
                client.close(timeout=SOON)
                service.info()
            raise KeyError
    finally:
        client.close(timeout=SOON)
        gate.open.set()


def test_handlers_may_wait_for_the_client(server: NatsServer) -> None:
    """Also when it is closed."""
    waiting = threading.Event()
    ended = threading.Event()

    def pass_on(request: sync.ServiceRequest) -> None:
        if request.payload:
            request.respond(client.request("inner", timeout=SOON).payload)
            return
        try:
            waiting.set()
            client.request("mute", timeout=SOON)
        except ClientClosed:
            ended.set()

    client = sync.connect(server.url)
    with client, client.subscribe("mute") as mute:
        service = client.service("s", "1.0.0")
        service.add_endpoint("outer", pass_on)
        service.add_endpoint("inner", lambda request: request.respond(b"deep"))
        assert client.request("outer", b"1", timeout=SOON).payload == b"deep"
        client.publish("outer")
        assert waiting.wait(SOON)
        assert mute.receive(timeout=SOON).subject == "mute"
    assert ended.wait(SOON)


def test_what_cannot_be(server: NatsServer) -> None:
    client = sync.connect(server.url)
    with pytest.raises(ClientClosed):
        client.service("s", "1.0.0")
    with client:
        with pytest.raises(BadService):
            client.service("s", "one")
        with pytest.raises(TypeError):
            client.service("s", "1.0.0", colour="red")
        with client.service("s", "1.0.0") as service, pytest.raises(BadService):
            service.add_endpoint("a b", double)
    with pytest.raises(ClientClosed):
        service.info()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_goes_away(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as server:
        with (
            sync.connect(server.url, reconnect_wait=0.01, max_reconnect_wait=0.1, on_event=lambda _: None) as client,
            client.service("s", "1.0.0") as service,
        ):
            service.add_endpoint("double", double)
            assert asked(client, "double", b"1") == b"11"
            server.kill()
            server.start()
            client.flush(timeout=SOON)
            assert asked(client, "double", b"2") == b"22"
        lost = threading.Event()
        client = sync.connect(server.url, max_reconnects=0, on_event=lambda _: lost.set()).open(timeout=SOON)
        with pytest.raises((ConnectionLost, ConnectFailed)), client.service("s", "1.0.0") as service:
            server.kill()
            assert lost.wait(SOON)
            service.stopped(timeout=SOON)
        with pytest.raises(NatsError):
            client.close(timeout=SOON)
