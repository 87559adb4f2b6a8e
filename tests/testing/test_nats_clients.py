"""Clients that speak NATS, beside faults and journals: these know packets of MQTT."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.nats.speaking import NatsRoom, Speaker, nats_room
from trunkline.management.journal_file import Closed, Journal, Opened, Passed

#: Read as MQTT, its first line begins a packet of 85 bytes: PUBREC has the number of P, and its length that of U.
LINES = (b"PUB a.b 5", b"hello")


async def reader(here: NatsRoom) -> Speaker:
    speaker = await here.speaker()
    await speaker.say(b"SUB a.> 1")
    assert await speaker.said() == b""
    return speaker


async def test_faults_that_choose_packets_hold_nothing_back() -> None:
    async with nats_room() as here:
        here.broker.faults.drop("PUBREC").optional()
        here.broker.faults.delay("PUBLISH", 10_000).optional()
        speaker = await reader(here)
        await speaker.say(*LINES)
        await speaker.expect(b"MSG a.b 1 5", b"hello")


@pytest.mark.parametrize("direction", ["from", "to"])
async def test_single_bytes_go_on_in_order(direction: str, autojump_clock: MockClock) -> None:
    async with nats_room() as here:
        speaker = await reader(here)
        began = trio.current_time()
        with here.broker.faults.drip(seconds=1.0, direction=direction):  # type: ignore[arg-type]
            await speaker.say(*LINES)
            await speaker.expect(b"MSG a.b 1 5", b"hello")
        assert trio.current_time() - began >= 15


async def test_what_is_held_back_goes_on() -> None:
    async with nats_room() as here:
        speaker = await reader(here)
        with here.broker.faults.stop_reading():
            await speaker.say(*LINES)
            with trio.move_on_after(0.01) as waiting:
                await speaker.expect(b"MSG a.b 1 5", b"hello")
            assert waiting.cancelled_caught
        await speaker.expect(b"MSG a.b 1 5", b"hello")


@pytest.mark.parametrize("is_early", [True, False], ids=["from the start", "later"])
async def test_a_journal_has_nothing_of_them(tmp_path: Path, is_early: bool) -> None:
    path = tmp_path / "journal"
    async with nats_room(**{"record": path} if is_early else {}) as here:
        early = await here.speaker(user="ann", **{"pass": "secret"})
        recording = None if is_early else here.broker.record(path)
        late = await here.speaker(user="ann", **{"pass": "secret"})
        for speaker in (early, late):
            await speaker.say(*LINES)
            assert await speaker.said() == b""
        client = await here.wire("mqtt")
        await client.ping()
        for speaker in (early, late):
            await speaker.leave()
        if recording is not None:
            recording.stop()
    assert b"secret" not in path.read_bytes()
    entries = list(Journal(path))
    [connection] = {each.connection for each in entries if isinstance(each, Opened | Passed | Closed)}
    assert sum(isinstance(each, Opened) and each.connection == connection for each in entries) == 1
