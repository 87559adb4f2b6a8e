"""What systemd is told."""

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from trio.testing import MockClock

from trunkline.management.service_manager import READY, SOCKET, STOPPING, WATCHDOG, WATCHED, notify, show_life


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"{folder}/notify")
        receiver.settimeout(120)
        yield receiver


def test_nobody_is_told_without_a_manager(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(SOCKET, raising=False)
    notify(READY)
    assert caplog.messages == []


def test_a_manager_that_is_gone_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv(SOCKET, str(tmp_path / "gone"))
    with caplog.at_level(logging.WARNING):
        notify(READY)
    assert caplog.messages == ["the service manager cannot be notified: [Errno 2] No such file or directory"]


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"trunkline-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        monkeypatch.setenv(SOCKET, f"@{name}")
        notify("A=1", "B=2")
        assert receiver.recv(100) == b"A=1\nB=2"


@pytest.mark.parametrize(("pid", "signs"), [(os.getpid(), 4), (1, 0)], ids=["this process", "another one"])
async def test_signs_of_life(
    pid: int, signs: int, manager: socket.socket, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Two within ten seconds, if this process is the one that is watched."""
    monkeypatch.setenv(SOCKET, manager.getsockname())
    monkeypatch.setenv(WATCHDOG, "10000000")
    monkeypatch.setenv(WATCHED, str(pid))
    with trio.move_on_after(19):
        await show_life()
    manager.setblocking(False)
    got = 0
    while True:
        try:
            assert manager.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            break
        got += 1
    assert got == signs


def test_a_broker_tells_when_it_serves_reloads_and_stops(manager: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('listeners = ["tcp://127.0.0.1:0"]\nstore.durability = "memory"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline"],
        cwd=tmp_path,
        env={**os.environ, SOCKET: manager.getsockname(), "XDG_RUNTIME_DIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert manager.recv(100) == READY.encode()
        process.send_signal(signal.SIGHUP)
        began, moment = manager.recv(100).decode().splitlines()
        assert began == "RELOADING=1"
        assert int(moment.removeprefix("MONOTONIC_USEC=")) > 0
        assert manager.recv(100) == READY.encode()
        process.terminate()
        assert manager.recv(100) == STOPPING.encode()
        assert process.wait(timeout=120) == 0
    finally:
        process.kill()
        process.wait()
