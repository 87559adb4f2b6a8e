"""One worker: a real process."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trunkline.management.workers.messages import Reload, Welcome
from trunkline.management.workers.worker_process import WorkerProcess

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")

WELCOME = Welcome(3, 4, 5, "/nowhere", 0.0)


@asynccontextmanager
async def started(*arguments: str) -> AsyncGenerator[WorkerProcess]:
    worker = WorkerProcess(WELCOME, arguments, [])
    try:
        yield worker
    finally:
        worker.close()
        await worker.wait()


async def test_a_worker_that_ends_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """It is told to be one by an option that only `serve` knows."""
    async with started("passwd") as worker:
        assert worker.exit_code is None
        assert worker.end == "runs"
        await worker.wait()
        assert worker.exit_code == 2
        assert worker.end == "has ended with code 2"
        worker.say(Reload())  # nobody hears it
        worker.kill()
    assert "No such option" in capfd.readouterr().err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
async def test_a_worker_that_is_ended(signum: signal.Signals) -> None:
    async with started("serve", "--config", "/dev/stdin") as worker:
        if signum is signal.SIGTERM:
            worker.stop()
        else:
            worker.kill()
        await worker.wait()
        assert worker.end == f"was killed by {signum.name}"


async def test_it_is_no_process_of_this_ones_terminal() -> None:
    async with started("serve") as worker:
        assert os.getsid(worker.pid) == worker.pid != os.getsid(0)


async def test_what_the_service_manager_says_is_for_the_supervisor(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text('#!/bin/sh\necho "$@"\nenv\n')
    interpreter.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("TRUNKLINE_NODE__NAME", "n")
    async with started("serve", "--listen", "tcp://127.0.0.1:0") as worker:
        await worker.wait()
    words, *environ = capfd.readouterr().out.splitlines()
    assert "-m trunkline serve --listen tcp://127.0.0.1:0 --worker " in words
    assert "TRUNKLINE_NODE__NAME=n" in environ
    assert not any(line.startswith("NOTIFY_SOCKET") for line in environ)


async def test_a_worker_that_reads_nothing_is_ended() -> None:
    async with started("serve", "--config", "/dev/stdin") as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        for _ in range(100_000):
            worker.say(Reload())
            if worker.exit_code is not None:
                break
        await worker.wait()
        assert worker.end == "was killed by SIGKILL"


async def test_one_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        WorkerProcess(WELCOME, ["serve"], [])
