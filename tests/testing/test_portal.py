import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trunkline.testing.portal import LocalPortal, in_trio


async def test_a_local_portal_calls_and_runs_at_once() -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    assert LocalPortal().call(abs, -1) == 1
    assert await LocalPortal().run(double, 2) == 4


def test_trio_is_told_from_everything_else() -> None:
    async def ask() -> bool:
        return in_trio()

    assert trio.run(ask)
    assert not asyncio.run(ask())
    assert not in_trio()


TYPED = """
from typing import assert_type

from trunkline.client import Client as MqttClient, SessionClient
from trunkline.plugins.context import Client
from trunkline.testing import Broker, ThreadBroker
from trunkline.testing.published import Published


async def awaits(b: Broker) -> None:
    assert_type(await b.wait_for("x"), Published)
    assert_type(await b.metrics(), dict[str, int])
    b.metrics()  # type: ignore[unused-coroutine]
    assert_type(await b.watch("x").next(), Published)
    assert_type(await b.plugins.disable("x"), None)
    await b.clock.advance(1)
    assert_type(await b.faults.drop("PUBACK").triggered(), None)
    assert_type(b.clients, list[Client])
    assert_type(b.kick("x"), None)
    assert_type(MqttClient(open_stream=b.connect), MqttClient)
    assert_type(SessionClient(open_stream=b.connect), SessionClient)
    b.assert_published("x", payloud="y")  # type: ignore[call-arg]
    b.faults.drop("PUBACK").triggered()  # type: ignore[unused-coroutine]


def blocks(b: ThreadBroker) -> None:
    assert_type(b.wait_for("x", timeout=1), Published)
    assert_type(b.metrics(), dict[str, int])
    assert_type(b.watch("x").next(), Published)
    assert_type(b.plugins.disable("x"), None)
    assert_type(b.awaitable, Broker)
    assert_type(b.faults.drop("PUBACK").triggered(), None)
    b.faults.drop("PUBACK", clyent="x")  # type: ignore[call-arg]
    b.wait_until(lambda: b.clients, time=1)  # type: ignore[call-arg]
"""


def test_checkers_know_what_is_awaited(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "typed.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
