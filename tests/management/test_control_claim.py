"""A place for a control socket is taken: from nobody, or from the dead."""

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.management.test_control_client import FULL, HELLO
from trunkline.management import control_claim
from trunkline.management.control_claim import Claim, claim
from trunkline.management.control_place import PlaceError, Port, read_port, write_port

WAYS = [
    pytest.param(False, marks=pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")),
    True,
]


@pytest.fixture(params=WAYS, ids=lambda tcp: "tcp" if tcp else "unix")
def tcp(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextmanager
def claimed(path: Path, tcp: bool) -> Iterator[Claim]:
    taken = claim(path, tcp=tcp, private=False)
    try:
        yield taken
    finally:
        taken.release()


@contextmanager
def answering(taken: Claim, answer: bytes) -> Iterator[None]:
    """Somebody who takes one connection, reads its greeting and answers with these bytes."""
    taken.socket.setblocking(True)
    done = threading.Event()

    def serve() -> None:
        connection, _ = taken.socket.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)
            done.wait(120)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    done.set()
    thread.join()


def test_what_was_taken_is_open_to_its_owner_alone_and_goes_at_the_end(tcp: bool, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    taken = claim(folder / "x", tcp=tcp, private=True)
    if os.name != "nt":
        assert stat.S_IMODE((folder / "x").stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (taken.token is not None) == tcp
    taken.release()
    assert list(folder.iterdir()) == []


def test_a_port_is_on_the_loopback_and_its_token_is_new_each_time(tmp_path: Path) -> None:
    tokens: set[str | None] = set()
    for _ in range(2):
        with claimed(tmp_path / "x", tcp=True) as taken:
            host, port = taken.socket.getsockname()
            assert host == "127.0.0.1"
            assert read_port(tmp_path / "x") == Port(port, taken.token or "")
            tokens.add(taken.token)
    assert len(tokens) == 2
    assert all(token is not None and len(token) >= 32 for token in tokens)


def test_what_a_dead_broker_left_is_replaced(tcp: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    code = "import sys, os; from pathlib import Path; from trunkline.management.control_claim import claim; " + (
        f"claim(Path(sys.argv[1]), tcp={tcp}, private=False); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 9
    left = path.lstat().st_ino
    with claimed(path, tcp) as taken, socket.socket(socket.AF_INET if tcp else socket.AF_UNIX) as client:
        client.connect(taken.socket.getsockname())
    assert not path.exists(), left


def test_a_living_broker_keeps_its_own_and_is_named(tcp: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with claimed(path, tcp) as taken, answering(taken, HELLO):
        with pytest.raises(PlaceError, match="belongs to the broker 'plant' that runs as process 77"):
            claim(path, tcp=tcp, private=False)
        assert path.exists()


def test_a_broker_that_says_no_is_alive(tcp: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    no = pytest.raises(PlaceError, match="belongs to a running broker: there are 16 already")
    with claimed(path, tcp) as taken, answering(taken, FULL), no:
        claim(path, tcp=tcp, private=False)


def test_one_that_says_nothing_may_be_alive(tcp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_claim, "ANSWER_TIME", 0.05)
    path = tmp_path / "x"
    with claimed(path, tcp), pytest.raises(PlaceError, match="belongs to a running broker that does not answer"):
        claim(path, tcp=tcp, private=False)


def test_a_port_that_is_a_strangers_by_now_was_a_dead_brokers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        write_port(path, Port(stranger.getsockname()[1], "secret"))
        known = Claim(path, stranger, None, (0, 0))
        with answering(known, b"HTTP/1.1 400 Bad Request\r\n\r\n"), claimed(path, tcp=True) as taken:
            assert read_port(path).token == taken.token


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_and_files_of_the_user_are_left_alone(tcp: bool, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("precious", "link", "dangling", "folder"):
        with pytest.raises(PlaceError, match=name):
            claim(tmp_path / name, tcp=tcp, private=False)
    (tmp_path / "precious").chmod(0o600)
    with pytest.raises(PlaceError, match="it does not hold a port and token"):
        claim(tmp_path / "precious", tcp=tcp, private=False)
    assert (tmp_path / "precious").read_text() == "data"
    assert not (tmp_path / "nowhere").exists()


def test_what_has_become_somebody_elses_is_not_taken_away(tcp: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with claimed(path, tcp):
        path.rename(tmp_path / "old")
        path.write_text("another")
    assert path.read_text() == "another"


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")
def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 150)
    with pytest.raises(PlaceError, match="too long for a Unix socket: set control.path"):
        claim(path, tcp=False, private=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="files have no modes there")
def test_a_folder_that_others_can_write_to(tcp: bool, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PlaceError, match="other users can write to"):
        claim(tmp_path / "x", tcp=tcp, private=False)


def test_two_that_start_together(tcp: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find what a dead one left; one of them gets the place, and the other does not take it from it."""
    monkeypatch.setattr(control_claim, "ANSWER_TIME", 0.05)
    path = tmp_path / "x"
    for _ in range(10):
        dead = claim(path, tcp=tcp, private=False)
        dead.socket.close()
        got: list[Claim | PlaceError] = []
        start = threading.Barrier(2)

        def take(start: threading.Barrier = start, got: list[Claim | PlaceError] = got) -> None:
            start.wait()
            try:
                got.append(claim(path, tcp=tcp, private=False))
            except PlaceError as error:
                got.append(error)

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [each for each in got if isinstance(each, Claim)]
        assert path.exists()
        winner.release()
