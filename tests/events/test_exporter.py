import sys
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.events.recordings import all_bytes, figure, recorded, recording
from trunkline.events.exporter import TIDY
from trunkline.events.plugin import EventsSettings
from trunkline.plugins import PluginError


@pytest.mark.usefixtures("threadless")
async def test_the_log_is_never_much_larger_than_it_may_be(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {"max_size": "1MiB", "max_payload": "10kB", "compression": "none", "stats": 1000, "batch_time": 0.1}
    async with recording(tmp_path, settings) as here:
        client = await here.client("a")
        for _ in range(200):
            for _ in range(4):
                await client.publish("t", b"x" * 10_000)
            await client.ping()
            await trio.sleep(0.11)  # a batch is written, and what is too much is deleted
            assert len(all_bytes(tmp_path)) < 1.2 * 1024**2
    assert len(all_bytes(tmp_path)) > 1024**2 / 2
    assert not recorded(tmp_path, "exporter.started"), "the oldest went"


async def test_heartbeats_keep_their_rhythm(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path, {"heartbeat": 1, "stats": 1000, "kinds": []}):
        for _ in range(50):
            await trio.sleep(0.999)
            autojump_clock.jump(0.02)  # something else runs when one is due
        autojump_clock.jump(10.25)
        await trio.sleep(3)
    times = [row["time"].timestamp() for row in recorded(tmp_path, "node.tick")]
    late = [time - times[0] - number for number, time in enumerate(times)]
    assert max(late[:50]) < 0.1
    [pause] = [after - before for before, after in pairwise(times) if after - before > 1.2]
    assert pause > 10
    assert min(after - before for before, after in pairwise(times)) > 0.9


@pytest.mark.usefixtures("threadless")
async def test_a_disk_that_does_not_take_what_is_written_is_told_of_once(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async with recording(tmp_path, {"sync": 1}):
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.sync", fail)
            await trio.sleep(20)
    assert caplog.text.count("could not be synced to disk") == 1


async def test_each_start_is_an_incarnation_of_its_own(tmp_path: Path) -> None:
    async with recording(tmp_path) as here:
        await here.admin.plugins.disable("events")
        assert not here.broker.hooks.message_publish
        await here.admin.plugins.enable("events", EventsSettings(path=tmp_path))
    started = recorded(tmp_path, "exporter.started", "exporter.stopped")
    started.sort(key=lambda row: (row["incarnation"], row["seq"]))
    assert [row["kind"] for row in started] == ["exporter.started", "exporter.stopped"] * 2
    assert started[0]["incarnation"] == started[1]["incarnation"] < started[2]["incarnation"]


async def test_the_disk_is_full_and_the_broker_goes_on(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with recording(tmp_path, {"kinds": ["message.publish"]}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("t", 1))
        await trio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.append", full)
            for _ in range(10):
                await client.publish("t", b"x", qos=1)
                await watcher.take_publish("t", b"x", qos=1)
                await trio.sleep(1)
            assert [alarm.name for alarm in here.admin.alarms.active] == ["events.disk"]
            assert figure(here, "dropped") >= 10
        await trio.sleep(55)
        assert here.admin.alarms.active, "a disk that is nearly full takes some batches"
        await trio.sleep(10)
        assert not here.admin.alarms.active
        await client.publish("t", b"x", qos=1)
    (lost,) = recorded(tmp_path, "exporter.dropped")
    assert lost["reason"] == "disk"
    assert lost["value"] >= 10
    assert len(recorded(tmp_path, "message.publish")) == 1


async def test_a_disk_that_fails_between_two_heartbeats_is_told_of(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with recording(tmp_path, {"kinds": ["message.publish"], "heartbeat": 30}) as here:
        client = await here.client("a")
        await trio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.events.writer.LogWriter.append", full)
            await client.publish("t", b"x", qos=1)
            await trio.sleep(2)
        await client.publish("t", b"x", qos=1)
        await trio.sleep(2)
        assert figure(here, "dropped") == 1
        await trio.sleep(30)
        assert [alarm.name for alarm in here.admin.alarms.active] == ["events.disk"]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
async def test_one_broker_of_a_name_records_in_a_folder(tmp_path: Path) -> None:
    """A second one would look like the first one started anew, and readers would give the first one up."""
    async with recording(tmp_path), room() as other:
        with pytest.raises(PluginError, match=r"another broker records as node .*: give this one another node\.name"):
            await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        await other.node.plugins.enable("events", EventsSettings(path=tmp_path / "elsewhere"))
    async with recording(tmp_path):
        pass
    assert len({row["incarnation"] for row in recorded(tmp_path)}) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
@pytest.mark.usefixtures("threadless")
async def test_a_lock_that_somebody_deletes_is_made_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with recording(tmp_path) as here, room() as other:
        lock = tmp_path / ".trunkline@0.lock"
        lock.unlink()
        await trio.sleep(TIDY + 1)
        assert lock.exists()
        with pytest.raises(PluginError, match="another broker records as node"):
            await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        lock.unlink()
        await other.node.plugins.enable("events", EventsSettings(path=tmp_path))
        await trio.sleep(TIDY + 1)
        (alarm,) = here.admin.alarms.active
        assert alarm.name == "events.node"
        assert alarm.text.endswith("since the lock was deleted: stop one of them")
        await other.node.plugins.disable("events")
        await trio.sleep(TIDY + 1)
        assert not here.admin.alarms.active
    assert len({row["incarnation"] for row in recorded(tmp_path)}) == 2


async def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    async with room() as here:
        with pytest.raises(PluginError, match=r"events: path: .*/log: File exists; give another folder") as caught:
            await here.admin.plugins.enable("events", EventsSettings(path=tmp_path / "log"))
        assert str(caught.value).count(str(tmp_path)) == 1
        assert not here.broker.hooks.message_publish
