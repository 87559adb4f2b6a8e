"""A process of another user is no shard, whatever the modes of files are."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import trio

from tests.broker.shards.passage_ends import Client, ends
from tests.broker.shards.some_shards import until
from tests.broker.shards.test_link_sockets import Shard, running
from trunkline.broker.shards import peer_process
from trunkline.broker.shards.link_sockets import link_path
from trunkline.broker.shards.peer_process import is_own_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")


#: Becomes another user, and connects.
STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setuid(65_534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[2])
    sys.stdout.write(repr(sock.recv(1)))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def other_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is here belongs to somebody else."""
    monkeypatch.setattr(peer_process, "os", SimpleNamespace(geteuid=lambda: os.geteuid() + 1))


def test_this_process_is_one_of_its_user() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_own_user(one)


@pytest.mark.usefixtures("other_user")
def test_another_user_is_told_from_its_own(caplog: pytest.LogCaptureFixture) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not is_own_user(one)
    assert f"process {os.getpid()} of the user {os.geteuid()} is no worker of this node" in caplog.text


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_process_of_another_user_gets_no_link(folder: Path) -> None:
    """Even where somebody has opened the folder and the socket to all."""
    shard = Shard(0, 2, folder)
    async with running(shard):
        path = link_path(folder, 0)
        os.chmod(folder, 0o777)
        os.chmod(path, 0o777)
        done = await trio.run_process([sys.executable, "-c", STRANGER, folder, path.name], capture_stdout=True)
        assert done.stdout == b"b''", "it was shut out before it had to say anything"
    assert shard.peers[1].ups == 0


@pytest.mark.usefixtures("other_user")
async def test_whoever_listens_there_for_another_user_gets_no_link(folder: Path) -> None:
    path = link_path(folder, 0)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        async with running(Shard(1, 2, folder)):
            taken, _ = await trio.to_thread.run_sync(sock.accept)
            with taken:
                assert taken.recv(1) == b"", "it says nothing"


@pytest.mark.usefixtures("other_user")
async def test_no_connection_is_handed_to_another_user(caplog: pytest.LogCaptureFixture) -> None:
    async with ends("sockets") as both:
        client = Client()
        assert not both.passage.hand_over(client.passed)
        client.passed.close()
        client.close()
    assert "it is another user's" in caplog.text


@pytest.mark.usefixtures("other_user")
async def test_no_connection_is_taken_from_another_user() -> None:
    async with ends("sockets") as both:
        client = Client()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            sock.connect(both.path)
            await until(lambda: _has_ended(sock))
        client.passed.close()
        client.close()
        assert both.taken == []
        assert os.stat(both.path).st_mode & 0o077 == 0


def _has_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
