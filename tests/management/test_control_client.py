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
from trunkline.management.control_frames import LENGTH, frame, pack
from trunkline.management.control_place import Port, write_port

HELLO = {"protocol": 1, "node": "plant", "version": "1", "pid": 77, "max_frame_size": 9999}


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
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a broker: a frame of 1213486160 bytes"),
        (frame(b"\xc1"), "is not a broker: not MessagePack"),
        (frame(pack({"protocol": 1})), "is not a broker"),
        (frame(pack({**HELLO, "pid": "x"})), "is not a broker"),
        (LENGTH.pack(100) + b"abc", "is gone: it closed the connection"),
    ],
)
def test_somebody_else_is_there(answer: bytes, text: str, tmp_path: Path) -> None:
    with server(tmp_path / "x", answer), pytest.raises(NoBroker, match=text):
        ControlClient(tmp_path / "x")


def test_an_answer_larger_than_was_agreed(tmp_path: Path) -> None:
    answers = frame(pack(HELLO)), LENGTH.pack(10_000)
    with server(tmp_path / "x", *answers), ControlClient(tmp_path / "x") as client:
        assert (client.node, client.version, client.pid) == ("plant", "1", 77)
        with pytest.raises(NoBroker, match="a frame of 10000 bytes; at most 9999 are allowed"):
            client.call("status")


def test_the_broker_says_no_at_once(tmp_path: Path) -> None:
    no = frame(pack({"id": None, "error": "unwelcome", "message": "not now"}))
    with server(tmp_path / "x", no), pytest.raises(ControlError, match="not now") as caught:
        ControlClient(tmp_path / "x")
    assert caught.value.code == "unwelcome"


def test_a_broker_that_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        write_port(tmp_path / "silent", Port(listening.getsockname()[1], "token"))
        with pytest.raises(NoBroker, match="does not answer"):
            ControlClient(tmp_path / "silent", 0.05)
    monkeypatch.setattr(control_client, "ANSWER_TIME", 0.05)
    over = threading.Event()
    with server(tmp_path / "x", frame(pack(HELLO)), over=over), ControlClient(tmp_path / "x") as client:
        with pytest.raises(NoBroker, match="does not answer"):
            client.call("status")
        over.set()
