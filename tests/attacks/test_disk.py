"""A disk that fails under a broker that serves: what is acknowledged is on it, nothing else is acknowledged, and
everybody else is served."""

import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import trio

from tests.attacks.killed import Broker
from tests.attacks.kills import alive
from tests.conformance import raw
from tests.keeper import PUBLISH
from tests.story import Story, check, finish, told
from trunkline.store import StoreError
from trunkline.store.sqlite import SqliteEngine

#: Bytes of a message that a small disk has no room for.
LARGE = 1 << 18
PAGE = 4096


def command(*words: str | Path) -> None:
    if not sys.platform.startswith("linux") or os.geteuid() or not shutil.which(str(words[0])):
        pytest.skip("file systems cannot be mounted")
    if subprocess.run(words, check=False, capture_output=True).returncode > 1:  # 1 is a file system that was mended
        pytest.skip(f"{words[0]} does not work here")


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A small one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk)
    yield disk
    command("umount", disk)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Of a disk."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    command("mkfs.ext4", "-q", image)
    return image


async def begin(story: Story) -> None:
    """The subscriber has been there, and something waits for it."""
    leaves = await story.connect(story.subscriber)
    await story.subscriber.subscribe("t/#")
    leaves.cancel()
    await story.connect(story.publisher)
    await story.publish(1, 2)
    await story.publisher.answered()


async def go_on_without(story: Story, broker: Broker) -> None:
    """The disk has failed: nothing is acknowledged that it has not, and the others are served."""
    before = len(story.publisher.taken)
    await story.publisher.publish("t/large", 1, bytes(LARGE))
    await broker.says("store_failed")
    async with await broker.wire() as reader, await broker.wire() as writer:
        await reader.connect("reader")
        await reader.subscribe(("other", 0))
        await writer.connect("writer")
        await writer.publish("other", b"served")
        await reader.expect_publish("other", b"served")
        await writer.publish("other", b"acknowledged", qos=1)  # nobody durable wants it
    assert len(story.publisher.taken) == before


async def tell(story: Story, broker: Broker, then: Callable[[], Awaitable[None]]) -> None:
    await broker.serving.wait()

    async def whole(story: Story) -> None:
        await begin(story)
        await then()

    await told(story, whole, broker)


async def finished(store: Path, story: Story) -> None:
    async with alive(store) as broker:
        await broker.serving.wait()
        with trio.fail_after(60):
            await told(story, finish, broker)
    check(story)


@pytest.mark.parametrize("killed", [False, True], ids=["left alone", "killed"])
async def test_a_full_disk(memory_disk: Path, killed: bool) -> None:
    store, ballast, story = memory_disk / "store.db", memory_disk / "ballast", Story()
    async with alive(store) as broker:

        async def fill() -> None:
            with ballast.open("wb") as file:
                file.write(bytes(shutil.disk_usage(memory_disk).free // PAGE * PAGE - 2 * PAGE))
            await go_on_without(story, broker)
            if killed:
                broker.kill()
                await broker.cut_off.wait()
            else:
                os.remove(ballast)
                await story.publisher.answered()

        await tell(story, broker, fill)
    if killed:
        async with alive(store) as broker, trio.open_nursery() as nursery:  # it may start, or say that it cannot
            nursery.start_soon(broker.cut_off.wait)
            with trio.move_on_after(20):
                await broker.serving.wait()
            nursery.cancel_scope.cancel()
        os.remove(ballast)
    await finished(store, story)


async def test_a_disk_that_becomes_read_only(image: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    store, story = disk / "store.db", Story()
    command("mount", "-o", "loop", image, disk)
    try:
        async with alive(store) as broker:

            async def fail() -> None:
                command("mount", "-o", "remount,abort", disk)
                await go_on_without(story, broker)

            await tell(story, broker, fail)
        command("umount", disk)
        command("fsck.ext4", "-p", image)
        command("mount", "-o", "loop", image, disk)
        await finished(store, story)
    finally:
        command("umount", disk)


async def test_a_bit_that_is_flipped_in_any_page(tmp_path: Path) -> None:
    """It is found at the start or when it is read, and no client gets it."""
    whole, story = tmp_path / "whole.db", Story()
    async with alive(whole) as broker:
        await broker.serving.wait()

        async def many(story: Story) -> None:
            await begin(story)
            for number in range(100):
                await story.publisher.publish("t/1", 1, b"%06d" % number * 100)
            await story.publisher.answered()

        await told(story, many, broker)
        broker.terminate()
        await broker.cut_off.wait()
    sent = {*story.publisher.taken}
    data, chance = whole.read_bytes(), Random(7)
    found = refused = served = 0
    for page in range(len(data) // PAGE):
        damaged = bytearray(data)
        damaged[page * PAGE + chance.randrange(PAGE)] ^= 1 << chance.randrange(8)
        store = tmp_path / f"{page}.db"
        store.write_bytes(damaged)
        is_found = bool(defects(store))
        async with alive(store) as broker, trio.open_nursery() as nursery:
            got: list[bytes] = []
            nursery.start_soon(read, broker, got)
            await broker.cut_off.wait()
            nursery.cancel_scope.cancel()
        assert broker.exit_code in (0, 1)
        assert b"is damaged" in broker.said or not is_found, broker.said.decode()
        assert {*got} <= sent
        assert is_found or {*got} == sent
        found += is_found
        refused += broker.exit_code == 1
        served += len(got) > 0
    print(f"{found} found in {len(data) // PAGE} pages, {refused} at the start; {served} served what is whole")
    assert found > len(data) // PAGE // 2


def defects(store: Path) -> list[str]:
    """As `trunkline store check` finds them."""
    try:
        engine = SqliteEngine(store, read_only=True, verify=False)
    except StoreError as error:
        return [str(error)]
    try:
        return [defect.text for defect in engine.check()]
    except StoreError as error:
        return [str(error)]
    finally:
        engine.close()


async def read(broker: Broker, got: list[bytes]) -> None:
    """As the subscriber: all that comes while anything does."""
    await broker.serving.wait()
    async with await broker.wire() as wire:
        connected = await wire.connect("subscriber", clean=False, properties=raw.session_expiry(1000))
        with trio.move_on_after(1):  # a broker that finds damage while it reads sends nothing more
            while connected.session_present:
                packet = await wire.receive()
                if packet.type == PUBLISH:
                    got.append(packet.payload)
                    await wire.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
    broker.terminate()
