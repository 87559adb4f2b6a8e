"""The client of the control socket, and what it makes of servers that are none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.room import Room
from tests.management.asking import controlled, through_socket
from trunkline.management import control_client
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_json import to_json
from trunkline.management.control_place import Port, write_port

ABOUT = {"node": "plant", "version": "1", "pid": 77, "max_body_size": 9999}


def answer(content: object, status: str = "200 OK", kind: str = "application/json") -> bytes:
    body = to_json(content).encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


HELLO = answer(ABOUT)
FULL = answer(
    {"code": "unwelcome", "detail": "there are 16 already"}, "503 Service Unavailable", "application/problem+json"
)


@contextmanager
def server(path: Path, *answers: bytes, over: threading.Event | None = None) -> Iterator[None]:
    """Answers each thing that comes with the next of these, then closes, or waits until it is over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        write_port(path, Port(listening.getsockname()[1], "token"))

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for answer in answers:
                    if not connection.recv(4096):
                        break
                    connection.sendall(answer)
                if over is not None:
                    over.wait(120)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()


async def several(here: Room) -> None:
    for name in ("a", "b", "c"):
        await here.client(name)


async def test_calls_pages_and_rows(tmp_path: Path) -> None:
    def use(client: ControlClient) -> None:
        assert client.call("clients.show", client_id="b")["client_id"] == "b"
        assert [[row["client_id"] for row in page] for page in client.pages("clients.list", limit=2)] == [
            ["a", "b"],
            ["c"],
        ]
        assert [row["client_id"] for row in client.rows("clients.list", limit=1)] == ["a", "b", "c"]
        assert list(client.pages("clients.list", prefix="x")) == []
        with pytest.raises(ControlError) as caught:
            client.call("clients.show", client_id="x")
        assert caught.value.code == "not_found"
        assert client.call("clients.show", client_id="a")["client_id"] == "a"  # it goes on

    async with controlled(tmp_path) as here:
        await several(here)
        await through_socket(tmp_path, use)


def test_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(NoBroker, match=r"no broker: .*x\.sock: No such file"):
        ControlClient(tmp_path / "x.sock")
    (tmp_path / "x").mkdir()
    with pytest.raises(NoBroker, match="is not a control socket"):
        ControlClient(str(tmp_path / "x"))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        write_port(tmp_path / "x.port", Port(gone.getsockname()[1], "t"))
    with pytest.raises(NoBroker, match=r"no broker at .*x\.port: the broker that made this file has ended"):
        ControlClient(tmp_path / "x.port")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\x20\x02\0\0\r\n", "is not a broker"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "is not a broker: it answers 404, and not with JSON"),
        (HELLO.replace(b"{", b"<"), "is not a broker: Expecting value"),
        (answer({}, "500 No"), "is not a broker: it answers 500"),
        (answer([]), "is not a broker: another answer"),
        (answer({"node": "plant"}), "is not a broker: another answer"),
        (answer({**ABOUT, "pid": "x"}), "is not a broker: another answer"),
        (answer({**ABOUT, "node": "x" * 5000}), "is not a broker: its answer has more than 4096 bytes"),
        (answer({}, "500 No", "application/problem+json"), "is not a broker: it answers 500"),
        (HELLO[:-5], "is gone: it closed the connection"),
        (b"", "is gone: Remote end closed connection"),
    ],
)
def test_somebody_else_is_there(sent: bytes, text: str, tmp_path: Path) -> None:
    with server(tmp_path / "x", sent), pytest.raises(NoBroker, match=text):
        ControlClient(tmp_path / "x")


def test_an_answer_larger_than_the_broker_gives(tmp_path: Path) -> None:
    with server(tmp_path / "x", HELLO, answer("x" * 9998)), ControlClient(tmp_path / "x") as client:
        assert (client.node, client.version, client.pid) == ("plant", "1", 77)
        with pytest.raises(NoBroker, match="its answer has more than 9999 bytes"):
            client.call("status")


def test_the_broker_says_no_at_once(tmp_path: Path) -> None:
    with server(tmp_path / "x", FULL), pytest.raises(ControlError, match="there are 16 already") as caught:
        ControlClient(tmp_path / "x")
    assert caught.value.code == "unwelcome"


def test_a_broker_that_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        write_port(tmp_path / "silent", Port(listening.getsockname()[1], "token"))
        with pytest.raises(NoBroker, match="does not answer"):
            ControlClient(tmp_path / "silent", 0.05)
    monkeypatch.setattr(control_client, "ANSWER_TIME", 0.05)
    over = threading.Event()
    with server(tmp_path / "x", HELLO, over=over), ControlClient(tmp_path / "x") as client:
        with pytest.raises(NoBroker, match="does not answer"):
            client.call("status")
        over.set()
