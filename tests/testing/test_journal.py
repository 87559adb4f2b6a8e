"""What is recorded of connections, and what is not."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.management.journal_file import Closed, Journal, Opened, Passed
from trunkline.management.journal_view import as_text


def lines(path: Path) -> list[str]:
    return [line[14:] for line in as_text(Journal(path))]


@pytest.mark.parametrize("how", ["tcp", "in process"])
async def test_all_packets_are_recorded_from_the_start_to_the_end(tmp_path: Path, how: str) -> None:
    path = tmp_path / "journal"
    async with testing.broker(record=path) as b:
        wire = await Wire.open(b.host, b.port) if how == "tcp" else Wire(b.connect())
        await wire.connect("a")
        await wire.subscribe(("t", 0))
        await wire.send_drip(raw.publish("t", b"x", qos=1, packet_id=7))
        await wire.expect_publish("t", b"x")
        await wire.expect_type(raw.PUBACK)
    assert [line[17:] for line in lines(path)[1:]] == [
        "-> CONNECT version=5.0 client_id=a clean_start",
        "<- CONNACK {maximum_packet_size: 10485760, topic_alias_maximum: 100}",
        "-> SUBSCRIBE id=1 t",
        "<- SUBACK id=1 GRANTED_QOS_0",
        "-> PUBLISH t id=7 qos=1 'x'",
        "<- PUBLISH t 'x'",
        "<- PUBACK id=7",
        "== the broker disconnects its clients, and keeps nothing",
        "<- DISCONNECT SERVER_SHUTTING_DOWN {reason_string: shutdown}",
        "== closed by the broker",
    ]
    opened = next(iter(Journal(path)))
    assert isinstance(opened, Opened)
    assert (opened.peer is not None) == (how == "tcp")
    await wire.abort()


async def test_a_recording_has_an_end(tmp_path: Path) -> None:
    async with room() as here:
        client = await here.client("a")
        with here.broker.record(tmp_path / "j") as recording:
            await client.ping()
        await client.ping()
        recording.stop()
    entries = list(Journal(tmp_path / "j"))
    assert entries[0] == Opened(0.0, 1, "a", 5, None, False)
    assert [entry.data for entry in entries if isinstance(entry, Passed)] == [raw.PINGREQ, raw.PINGRESP]


async def test_times_are_the_brokers(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with room(record=tmp_path / "j") as here:
        client = await here.client("a")
        await trio.sleep(3600)
        await client.ping()
        await client.disconnect()
    entries = list(Journal(tmp_path / "j"))
    assert [round(entry.at) for entry in entries] == [0, 0, 0, *[3600] * 5]
    assert isinstance(entries[-2], Closed)


async def test_faults_are_between_the_recorder_and_the_broker(tmp_path: Path) -> None:
    async with room(record=tmp_path / "j") as here:
        client = await here.client("a")
        here.broker.faults.drop("PUBACK")
        here.broker.faults.duplicate("PINGRESP")
        here.broker.faults.cut(before="DISCONNECT")
        await client.send(raw.publish("t", qos=1, packet_id=1), raw.PINGREQ)
        await client.expect(raw.PINGRESP, raw.PINGRESP)
        await client.send(raw.disconnect())
        await client.expect_close()
    assert [line[17:] for line in lines(tmp_path / "j")[3:-1]] == [
        "-> PUBLISH t id=1 qos=1 ''",
        "-> PINGREQ",
        "<- PINGRESP",
        "<- PINGRESP",
        "-> DISCONNECT",
        "== closed by the fault: reset",
    ]


async def test_no_secret_is_written(tmp_path: Path) -> None:
    method = raw.authentication_method("PLAIN") + raw.authentication_data(b"hidden")
    async with room(record=tmp_path / "j") as here:
        for version in (3, 4, 5):
            await here.client(f"a{version}", version, username="ann", password="hidden")
        asked = here.wire()
        await asked.send(raw.connect("b", properties=method))
        await asked.rest()
        client = await here.client("c")
        await client.send(raw.auth(0x19, method))
        await client.rest()
        broken = here.wire()
        await broken.send(raw.connect("d", username="ann", password="hidden", flags=0xC3))
        await broken.rest()
    assert b"hidden" not in (tmp_path / "j").read_bytes()
    masked = [entry for entry in Journal(tmp_path / "j") if isinstance(entry, Passed) and entry.masked]
    assert len(masked) == 6
    shown = "\n".join(lines(tmp_path / "j"))
    assert shown.count("password='***'") == 3
    assert shown.count("authentication_data: '***'") == 2
    assert shown.count("CONNECT that cannot be decoded, and may hold secrets") == 1


def test_a_crash_of_the_test_leaves_a_journal(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys, trunkline.testing\n"
        "with trunkline.testing.broker(record=sys.argv[1]) as b, socket.create_connection((b.host, b.port)) as s:\n"
        "    s.sendall(bytes.fromhex(sys.argv[2]))\n"
        "    s.recv(100)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "j"), raw.connect("a").hex()]
    assert subprocess.run(command, check=False).returncode == -9
    assert [line[17:24] for line in lines(tmp_path / "j")] == ["== open", "-> CONN", "<- CONN"]


async def test_a_journal_that_cannot_be_written_is_told_and_no_broker_is_left(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with testing.broker(record=tmp_path / "missing" / "j"):
            raise AssertionError("it started")


def test_nor_is_one_in_a_thread(tmp_path: Path) -> None:
    threads = threading.active_count()
    with pytest.raises(FileNotFoundError), testing.broker(record=tmp_path / "missing" / "j"):
        raise AssertionError("it started")
    assert threading.active_count() == threads


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
async def test_a_disk_that_is_full_ends_the_journal_and_not_the_broker() -> None:
    async with room() as here:
        with pytest.raises(OSError, match="No space left"):
            here.broker.record("/dev/full")
        client = await here.client("a")
        await client.ping()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
async def test_a_disk_that_becomes_full_ends_the_journal_and_not_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room() as here:
        recording = here.broker.record(tmp_path / "j")
        recording._file.close()  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage]
        recording._file = open("/dev/full", "wb", buffering=0)  # noqa: ASYNC230, SIM115
        client = await here.client("a")
        await client.ping()
        with pytest.raises(OSError, match="No space left"):
            recording.stop()
    assert caplog.text.count("the journal /dev/full ends here") == 1


async def test_a_recording_goes_on_through_a_restart(tmp_path: Path) -> None:
    async with room(record=tmp_path / "j") as here:
        for _ in range(2):
            await here.client("a")
            await here.broker.restart()
    shown = [line for line in lines(tmp_path / "j") if "==" in line]
    assert [line.split()[0] for line in shown] == ["#1", "==", "#1", "#2", "==", "#2", "=="]
