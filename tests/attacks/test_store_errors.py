"""The store fails under a broker of its own: nothing is acknowledged that is not stored, the rest goes on, and so does
all of it when the disk does."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from tests.conformance import raw
from tests.test_main import ADDRESS, Process, processes
from tests.wire import Wire

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")

Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    with processes() as begin:
        yield lambda store, **environ: begin(
            "--store", str(store), "--listen", "tcp://127.0.0.1:0", "--no-config", **environ
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if not sys.platform.startswith("linux") or os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems cannot be mounted")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


@asynccontextmanager
async def client(port: int, name: str, *, stays: bool = False) -> AsyncIterator[Wire]:
    async with await Wire.open("127.0.0.1", port) as wire:
        if stays:
            await wire.connect(name, clean=False, properties=raw.session_expiry(1000))
        else:
            await wire.connect(name)
        yield wire


async def away(port: int) -> None:
    """A session whose client is away gets all messages to `kept`."""
    async with client(port, "away", stays=True) as wire:
        await wire.subscribe(("kept", 1))


def port_of(broker: Process) -> int:
    return int(broker.wait_for(ADDRESS)[1])


async def rest_goes_on(port: int) -> None:
    """What no store is needed for."""
    async with client(port, "other") as wire:
        await wire.subscribe(("news", 1))
        await wire.send(raw.publish("news", b"new", qos=1, packet_id=1))
        assert {(await wire.receive()).type for _ in range(2)} == {raw.PUBLISH, raw.PUBACK}


async def received(port: int) -> list[bytes]:
    """What has waited for the session that was away."""
    got: list[bytes] = []
    async with client(port, "away", stays=True) as wire:
        await wire.send(raw.publish("kept", b"last", qos=1, packet_id=1))
        while not got or got[-1] != b"last":
            packet = await wire.receive()
            if packet.type & 0xF0 == raw.PUBLISH:
                got.append(packet.payload)
                await wire.send(raw.ack(raw.PUBACK, packet.packet_id))
    return got


async def test_a_full_disk(start: Start, small_disk: Path) -> None:
    broker = start(small_disk / "a.db")
    port = port_of(broker)
    await away(port)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 300_000))
    acknowledged = 0
    async with client(port, "publisher") as publisher:
        for number in range(1, 30):
            await publisher.send(raw.publish("kept", b"%06d" % number * 5000, qos=1, packet_id=number))
        await trio.to_thread.run_sync(broker.wait_for, "store_failed: .*a.db does not work: ")
        while True:  # what was stored before
            packet = None
            with trio.move_on_after(1):
                packet = await publisher.receive()
            if packet is None:
                break
            acknowledged += 1
            assert packet.packet_id == acknowledged
        assert acknowledged < 29
        await rest_goes_on(port)
        ballast.unlink()
        await trio.to_thread.run_sync(broker.wait_for, "store_failed: over")
        for packet_id in range(acknowledged + 1, 30):
            assert (await publisher.expect_type(raw.PUBACK)).packet_id == packet_id
    broker.end(signal.SIGKILL)
    port = port_of(start(small_disk / "a.db"))
    assert await received(port) == [*(b"%06d" % number * 5000 for number in range(1, 30)), b"last"]


async def test_a_disk_that_is_still_full_at_the_next_start(start: Start, small_disk: Path) -> None:
    broker = start(small_disk / "a.db")
    port = port_of(broker)
    await away(port)
    ballast = small_disk / "ballast"

    def fill() -> None:
        with suppress(OSError), ballast.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    fill()
    async with client(port, "publisher") as publisher:
        await publisher.send(raw.publish("kept", b"x" * 100_000, qos=1, packet_id=1))
        await trio.to_thread.run_sync(broker.wait_for, "store_failed: ")
        await publisher.expect_nothing()
    broker.end(signal.SIGKILL)
    # it goes on with the log that it had
    broker = start(small_disk / "a.db")
    await rest_goes_on(port_of(broker))
    assert broker.end(signal.SIGTERM) == 0
    fill()
    refused = start(small_disk / "a.db")
    assert refused.end() == 1
    [line] = [line for line in refused.lines if line.startswith("trunkline: ")]
    assert "as its disk is full: 131,072 free bytes are enough" in line
    ballast.unlink()
    assert await received(port_of(start(small_disk / "a.db"))) == [b"last"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_that_is_deleted_or_replaced(start: Start, tmp_path: Path, replaced: bool) -> None:
    store = tmp_path / "a.db"
    broker = start(store, TRUNKLINE_STORE__HEARTBEAT="1")
    port = port_of(broker)
    await away(port)
    kept = store.rename(tmp_path / "kept")
    if replaced:
        shutil.copy(kept, store)
    async with client(port, "stays", stays=True), client(port, "publisher") as publisher:
        await trio.to_thread.run_sync(
            broker.wait_for, f"store_failed: .*{re.escape(str(store))} was deleted or replaced"
        )
        await publisher.send(raw.publish("kept", b"x", qos=1, packet_id=1))
        await publisher.expect_nothing()
        await rest_goes_on(port)
        second = start(store)
        assert second.end() == 1
        assert any(f"in use by process {broker.process.pid}" in line for line in second.lines)
        kept.rename(store)
        await trio.to_thread.run_sync(broker.wait_for, "store_failed: over")
        await publisher.expect_type(raw.PUBACK)
    assert broker.end(signal.SIGTERM) == 0


async def test_a_lock_that_is_deleted_lets_nobody_in(start: Start, tmp_path: Path) -> None:
    broker = start(tmp_path / "a.db")
    port = port_of(broker)
    (tmp_path / "a.db-lock").unlink()
    second = start(tmp_path / "a.db")
    assert second.end() == 1
    assert any("is in use by" in line for line in second.lines)
    await away(port)
    assert broker.end(signal.SIGTERM) == 0


async def filled(broker: Process) -> None:
    port = port_of(broker)
    await away(port)
    async with client(port, "publisher") as publisher:
        for number in range(1, 40):
            await publisher.send(raw.publish("kept", b"<%04d>" % number * 500, qos=1, packet_id=number))
            await publisher.expect_type(raw.PUBACK)
    assert broker.end(signal.SIGTERM) == 0


def flip(store: Path, where: bytes) -> None:
    content = bytearray(store.read_bytes())
    content[content.index(where) + 3] ^= 1
    store.write_bytes(content)


async def test_a_damaged_store_is_named_with_what_was_found_and_the_way_out(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    await filled(start(store))
    flip(store, b"subscriptions")
    damaged = start(store)
    assert damaged.end() == 1
    [line] = [line for line in damaged.lines if line.startswith("trunkline: ")]
    assert re.search(rf"{re.escape(str(store))} is damaged: .+ `trunkline store repair` ", line), line
    assert "Traceback" not in "".join(damaged.lines)


async def test_a_message_that_is_damaged_is_not_sent_and_keeps_no_other_back(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    await filled(start(store))
    flip(store, b"<0020>" * 100)
    broker = start(store)
    assert await received(port_of(broker)) == [*(b"<%04d>" % n * 500 for n in range(1, 40) if n != 20), b"last"]
    assert broker.end(signal.SIGTERM) == 0
    assert any("a.db is damaged: " in line for line in broker.lines)
