"""Commands as processes, in a test of trio or beside one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import trio

PATIENCE = 60


class Ended(NamedTuple):
    code: int
    out: bytes
    err: str


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Without settings of the machine."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TRUNKLINE_")}
    return {**own, "TZ": "UTC", **(extra or {})}


def command(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "trunkline", name, *words]


async def run(words: Sequence[str], stdin: bytes = b"", environ: dict[str, str] | None = None) -> Ended:
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            words, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False, env=environment(environ)
        )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


class Running:
    """A process that goes on, and what it says."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.err = b""
        self.out = b""

    async def until(self, words: str) -> None:
        """Standard error has these words."""
        stream = self.process.stderr
        assert stream is not None
        with trio.fail_after(PATIENCE):
            while words.encode() not in self.err:
                data = await stream.receive_some()
                assert data, self.err.decode()
                self.err += data

    async def until_output(self, words: bytes) -> None:
        stream = self.process.stdout
        assert stream is not None
        with trio.fail_after(PATIENCE):
            while words not in self.out:
                data = await stream.receive_some()
                assert data, self.out.decode()
                self.out += data

    async def end(self) -> Ended:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with trio.fail_after(PATIENCE):
            with suppress(trio.ClosedResourceError):  # by the test
                async for data in self.process.stdout:
                    self.out += data
            async for data in self.process.stderr:
                self.err += data
            code = await self.process.wait()
        return Ended(code, self.out, self.err.decode())


async def start(nursery: trio.Nursery, words: Sequence[str], **options: Any) -> Running:
    process: trio.Process = await nursery.start(
        partial(
            trio.run_process,
            words,
            **{name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | options,
            check=False,
            env=environment(),
        )
    )
    return Running(process)
