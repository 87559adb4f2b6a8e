"""The store of a node, divided among another number of workers: every client gets what it should, whatever happens
meanwhile."""

import os
import re
import shutil
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from tests.conformance import raw
from tests.management import killed_resharding
from tests.management.resharded import (
    broker,
    call,
    end,
    expect,
    leave,
    opened,
    parts,
    publish,
    received,
    stored,
    together,
)
from tests.testing.three import at
from tests.wire import Wire
from trunkline.broker.backlogs.rows import ENTRIES
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.config.config import Config
from trunkline.config.node_settings import StoreSettings
from trunkline.config.store_place import workers_path
from trunkline.management.process_start import check_alone
from trunkline.management.workers.terms import StartTerms, read_workers
from trunkline.store import Row, StoreFull, StoreUnavailable, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.lock import FileLock
from trunkline.store.replacing import finish_what_was_begun
from trunkline.store.sqlite import SqliteEngine
from trunkline.testing.broker import Broker

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")

#: How many workers, one after the other.
CHAIN = [3, 1, 2, 5, 3]
STEPS = range(1, len(CHAIN))
#: Clients of a kind for each step: they are at several shards.
EACH = 4


class Story:
    """Each step has clients of its own, which come then. The others wait."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[tuple[str, bytes, int]]] = {}

    async def begin(self, b: Broker) -> None:
        for step in STEPS:
            for number in range(EACH):
                await self._leave(b, f"one-{step}-{number}", ("t/#", 1))
                await self._leave(b, f"two-{step}-{number}", ("t/1", 2), ("t/1/#", 1), (f"own/{step}/{number}", 2))
        await self.publish(b, 10)
        for step in STEPS:
            # messages in flight: one not acknowledged, one half
            name = f"flight-{step}"
            async with await opened(b, name) as wire:
                await wire.subscribe((f"f/{step}", 2))
                await publish(b, (f"f/{step}", b"1", 1), (f"f/{step}", b"2", 2), (f"f/{step}", b"3", 2))
                packets = [await wire.expect_type(raw.PUBLISH) for _ in range(3)]
                await wire.send(raw.ack(raw.PUBREC, packets[1].packet_id))
                await wire.expect(raw.ack(raw.PUBREL, packets[1].packet_id))
                await wire.ping()
            # a message that waits for its PUBREL
            await leave(b, f"rel-receiver-{step}", (f"rel/{step}", 2))
            async with await opened(b, f"rel-{step}") as wire:
                await wire.send(raw.publish(f"rel/{step}", b"once", qos=2, packet_id=7))
                await wire.expect_type(raw.PUBREC)
            # members of a group
            for number in range(EACH):
                await leave(b, f"member-{step}-{number}", (f"$share/g/s/{step}", 1))
            await publish(b, *[(f"s/{step}", b"%d" % number, 1) for number in range(20)])

    async def _leave(self, b: Broker, name: str, *filters: tuple[str, int]) -> None:
        await leave(b, name, *filters)
        self.waiting[name] = []

    async def publish(self, b: Broker, count: int) -> None:
        messages = [(f"t/{number % 3}", b"%d-%d" % (b.workers, number), 1 + number % 2) for number in range(count)]
        messages += [(f"own/{step}/{number}", b"%d" % b.workers, 2) for step in STEPS for number in range(EACH)]
        await publish(b, *messages)
        for name, waiting in self.waiting.items():
            kind, *mine = name.split("-")
            for topic, payload, qos in messages:
                if topic.startswith("t/") and (kind == "one" or topic == "t/1"):
                    waiting.append((topic, payload, min(qos, 1) if kind == "one" else qos))
                elif kind == "two" and topic == f"own/{'/'.join(mine)}":
                    waiting.append((topic, payload, qos))

    async def come(self, b: Broker, step: int) -> None:
        for number in range(EACH):
            for kind in ("one", "two"):
                name = f"{kind}-{step}-{number}"
                await expect(b, name, self.waiting.pop(name))
        async with await opened(b, f"flight-{step}") as wire:
            packets = [await wire.receive() for _ in range(3)]
            await wire.ping()
            assert [(each.payload, each.qos) for each in packets if each.type == raw.PUBLISH] == [(b"1", 1), (b"3", 2)]
            assert sum(each.type == raw.PUBREL & 0xF0 for each in packets) == 1
            await end(wire)
        async with await opened(b, f"rel-{step}") as wire:
            await wire.send(raw.publish(f"rel/{step}", b"once", qos=2, packet_id=7, dup=True))
            await wire.expect_type(raw.PUBREC)
            await wire.send(raw.ack(raw.PUBREL, 7))
            await wire.expect_type(raw.PUBCOMP)
            await end(wire)
        await expect(b, f"rel-receiver-{step}", [(f"rel/{step}", b"once", 2)])
        members = [await opened(b, f"member-{step}-{number}") for number in range(EACH)]
        assert sorted(await together(members, 20), key=int) == [b"%d" % number for number in range(20)]
        for each in members:
            await end(each)


async def test_every_client_gets_what_it_should(tmp_path: Path) -> None:
    path, story = tmp_path / "a.db", Story()
    async with broker(path, CHAIN[0]) as b:
        await story.begin(b)
    for step in STEPS:
        workers = CHAIN[step]
        call("reshard", workers, "--store", path)
        assert "no problems" in call("check", "--store", path)
        async with broker(path, workers) as b:
            await story.come(b, step)
            await story.publish(b, 5)
    assert not story.waiting
    for space in (ENTRIES, MESSAGES, REFERENCES):
        assert not any(stored(path, CHAIN[-1], space)), space


async def filled(path: Path, workers: int) -> None:
    async with broker(path, workers) as b:
        for number in range(6):
            await leave(b, f"away-{number}", ("t/#", 1))
        wire = Wire(b.connect())
        await wire.connect("publisher")
        for number in range(5):
            await wire.publish(f"t/{number}", b"x", qos=1, retain=True)
        await wire.disconnect()


def content(path: Path, workers: int) -> list[dict[str, list[Row]]]:
    """All rows of all parts."""
    found = list[dict[str, list[Row]]]()
    for part in parts(path, workers):
        with closing(SqliteEngine(part, read_only=True)) as engine:
            found.append({space.name: [*rows(engine, space)] for space in engine.spaces() if engine.count(space)})
    return found


def divided(path: Path) -> int:
    """How many workers the store is of that a start finds: there is no other."""
    finish_what_was_begun(path)
    recorded = read_workers(workers_path(path))
    count = 1 if recorded is None else recorded[0]
    there = {file.name for file in path.parent.glob("*.db")}
    assert there == {part.name for part in parts(path, count)}
    return count


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1), (1, 2)])
async def test_killed_at_any_step_the_old_store_is_whole_or_the_new_one(
    before: int, after: int, tmp_path: Path
) -> None:
    path, copies = tmp_path / "store" / "a.db", tmp_path / "copies"
    path.parent.mkdir()
    copies.mkdir()
    await filled(path, before)
    old = content(path, before)
    arguments = [sys.executable, killed_resharding.__file__, str(path), str(after), str(copies)]
    done = await trio.run_process(arguments, check=False, capture_stderr=True)
    assert done.returncode == 0, done
    found = [copies / str(number) / path.name for number in range(len(list(copies.iterdir())))]
    *killed, ended = found
    expected = {before: old, after: content(ended, after)}
    counts = [divided(each) for each in killed]
    for each, count in zip(killed, counts, strict=True):
        assert content(each, count) == expected[count], each
    assert counts == sorted(counts, key=lambda count: count == after)
    assert {*counts} == {before, after}
    last_old = killed[counts.index(after) - 1]  # which has a folder that is nearly done
    call("reshard", after, "--store", last_old)
    assert content(last_old, after) == expected[after]
    async with broker(killed[counts.index(after)], after) as b:
        for number in range(6):
            await expect(b, f"away-{number}", [(f"t/{topic}", b"x", 1) for topic in range(5)])


async def test_a_start_goes_on_with_what_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for before, after in ((3, 2), (1, 2), (2, 1)):
        path = tmp_path / f"{before}-{after}" / "a.db"
        path.parent.mkdir()
        await filled(path, before)
        with monkeypatch.context() as patch:
            patch.setattr("trunkline.store.replacing.finish", lambda path: None)
            call("reshard", after, "--store", path)
        assert "go on with `trunkline store reshard N`" in call("info", "--store", path, code=1)
        assert "go on with" in call("import", os.devnull, "--store", path, code=1)
        config = Config(store=StoreSettings(path=path))
        start = check_alone if before == 1 else partial(StartTerms, count=before)
        with pytest.raises(StoreUnavailable, match=rf"`trunkline store reshard {before}`"):
            start(config)
        async with broker(path, after) as b:
            assert len(b.sessions) == 6


def names(folder: Path) -> set[str]:
    """Without what readers and locks leave."""
    return {file.name for file in folder.iterdir() if not file.name.endswith(("-wal", "-shm", "-lock"))}


async def test_what_is_refused_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    await filled(path, 2)
    before, files = content(path, 2), names(tmp_path)

    def refused(workers: int = 3, code: int = 1) -> str:
        text = call("reshard", workers, "--store", path, code=code)
        assert names(tmp_path) == files
        assert content(path, 2) == before
        return text

    assert "it is that of 2 workers; nothing was changed" in call("reshard", 2, "--store", path)
    assert "name the whole one" in call("reshard", 2, "--store", parts(path, 2)[0], code=2)
    refused(0, code=2)
    refused(257, code=2)
    with FileLock(path):
        assert "stop that broker first" in refused()
    with closing(SqliteEngine(parts(path, 2)[1])):
        assert "stop that broker first" in call("reshard", 3, "--store", path, code=1)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
        assert "1,000 free bytes, and the parts of 3 workers take about" in refused()

    def full(engine: SqliteEngine, batch: WriteBatch) -> None:
        raise StoreFull(f"{engine.path.name} is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteEngine, "commit", full)
        assert "a.0.db is full; nothing was changed" in refused()
    part = parts(path, 2)[1]
    whole = part.read_bytes()
    part.write_bytes(whole.replace(b"away-", b"awry-"))
    assert f"{part} is damaged" in call("reshard", 3, "--store", path, code=1)
    part.write_bytes(whole)
    refused(300, code=2)


async def test_room_is_needed_for_what_waits_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    async with broker(path, 1) as b:
        for number in range(40):
            await leave(b, f"away-{number}", ("t", 1))
        for _ in range(100):
            b.publish("t", bytes(200), qos=1)
    present = path.stat().st_size

    def reshard(free: int, code: int = 0) -> str:
        monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=free))
        return call("reshard", 2, "--store", path, code=code)

    said = reshard(4 * present, code=1)
    found = re.search(r"has ([\d,]+) free bytes, .* about ([\d,]+) .* beside the ([\d,]+) .* nothing was changed", said)
    assert found is not None
    free, needed, beside = (int(number.replace(",", "")) for number in found.groups())
    assert (free, beside) == (4 * present, present)
    assert needed > free
    assert names(tmp_path) == {"a.db"}
    reshard(needed - 1, code=1)
    assert "divided among 2 workers" in reshard(needed)


async def test_nothing_is_counted_where_there_is_much_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    await filled(path, 2)
    monkeypatch.setattr("trunkline.broker.resharding.sizes.counted", None)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1 << 40))
    call("reshard", 3, "--store", path)


async def test_no_store_is_divided_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no store" in call("reshard", 2, "--store", tmp_path / "a.db", code=1)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 2), (2, 2), (1, 1)])
async def test_an_export_is_taken_by_a_node_of_any_number_of_workers(before: int, after: int, tmp_path: Path) -> None:
    path, copy, config = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "broker.toml"
    config.write_text(f"[node]\nworkers = {after}\n")
    await filled(path, before)
    call("export", tmp_path / "export", "--store", path)
    said = call("import", tmp_path / "export", "--store", copy, "--config", config)
    assert said.endswith(" rows\n" if after == 1 else f" rows in {after} parts\n")
    if before == after:
        assert content(copy, after) == content(path, before)
    assert "is there already" in call("import", tmp_path / "export", "--store", copy, "--config", config, code=1)
    async with broker(copy, after) as b:
        assert len(b.retained) == 5
        for number in range(6):
            await expect(b, f"away-{number}", [(f"t/{topic}", b"x", 1) for topic in range(5)])


async def test_an_import_is_all_or_nothing(tmp_path: Path) -> None:
    path, config = tmp_path / "a.db", tmp_path / "broker.toml"
    config.write_text("[node]\nworkers = 2\n")
    await filled(path, 3)
    export = tmp_path / "export"
    call("export", export, "--store", path)
    lines = export.read_text().splitlines(keepends=True)
    before = names(tmp_path)
    for cut in (1, len(lines) // 2, len(lines) - 1):
        export.write_text("".join(lines[:cut]))
        assert f"{export}: line {cut}" in call(
            "import", export, "--store", tmp_path / "b.db", "--config", config, code=1
        )
        assert names(tmp_path) == before


async def test_one_part_is_put_in_its_place_again(tmp_path: Path) -> None:
    path, config = tmp_path / "a.db", tmp_path / "broker.toml"
    config.write_text("[node]\nworkers = 3\n")
    await filled(path, 3)
    old, part = content(path, 3), parts(path, 3)[1]
    call("export", tmp_path / "all", "--store", path)
    call("export", tmp_path / "part", "--store", part)
    part.unlink()
    assert "is one part, and the export is that of 3" in call(
        "import", tmp_path / "all", "--store", part, "--config", config, code=1
    )
    assert call("import", tmp_path / "part", "--store", part, "--config", config).startswith(f"{part}: ")
    assert content(path, 3) == old


async def test_a_node_that_was_killed_is_divided(tmp_path: Path) -> None:
    """Clients were connected, and what they had not acknowledged comes again."""
    path, killed = tmp_path / "store" / "a.db", tmp_path / "killed" / "a.db"
    path.parent.mkdir()
    async with broker(path, 3) as b:
        wires = [await opened(b, f"c{number}") for number in range(6)]
        for wire in wires:
            await wire.subscribe(("t", 1))
        await publish(b, ("t", b"1", 1), ("t", b"2", 1))
        for wire in wires:
            await wire.expect_publish("t", b"1", qos=1)
        await leave(b, "reader", ("will/#", 1))
        wires.append(await opened(b, "stored", will=raw.Will("will/stored", qos=1)))
        wires.append(Wire(b.connect()))
        await wires[-1].connect("fleeting", will=raw.Will("will/fleeting", qos=1))
        # what is there when all processes are gone
        shutil.copytree(path.parent, killed.parent, ignore=shutil.ignore_patterns("*-shm", "*-lock"))
        for wire in wires:
            await wire.abort()
    assert killed.with_name("a.0.db-wal").stat().st_size
    call("reshard", 2, "--store", killed)
    async with broker(killed, 2) as b:
        for number in range(6):
            await expect(b, f"c{number}", [("t", b"1", 1), ("t", b"2", 1)])
        await expect(b, "reader", [("will/fleeting", b"gone", 1), ("will/stored", b"gone", 1)])


async def test_who_reads_a_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    """The streams are at the first part, and their readers anywhere."""
    path, streams, readers = tmp_path / "a.db", [{"name": "s", "filters": ["t/#"]}], [f"c{each}" for each in range(6)]
    waiting: dict[str, list[bytes]] = {}
    async with broker(path, CHAIN[0], streams=streams) as b:
        for name in readers:
            async with await opened(b, name) as wire:
                assert await wire.subscribe(("$stream/s/t/#", 1)) == [1]
                await publish(b, ("t", name.encode(), 1))
                await wire.take_publish("t", name.encode(), qos=1)
                await wire.disconnect()
            for others in waiting.values():
                others.append(name.encode())
            waiting[name] = []
    for step in STEPS:
        call("reshard", CHAIN[step], "--store", path)
        async with broker(path, CHAIN[step], streams=streams) as b:
            await publish(b, ("t", b"%d" % step, 1))
            for name in readers:
                async with await opened(b, name) as wire:
                    expected = [*waiting[name], b"%d" % step]
                    assert [each.payload for each in await received(wire, len(expected))] == expected
                    await wire.ping()
                    await wire.disconnect()
                waiting[name] = []


async def test_what_another_worker_has_not_got_is_delivered_before(tmp_path: Path) -> None:
    """The node was killed while two workers had no link."""
    path, killed = tmp_path / "store" / "a.db", tmp_path / "killed" / "a.db"
    path.parent.mkdir()
    async with broker(path, 3) as b:
        here, there = at(b, 0, "here"), at(b, 1, "there")
        await leave(b, there, ("t", 1))
        with b.faults.cut_link(0, 1):
            await publish(b, ("t", b"1", 1), client_id=here)
            shutil.copytree(path.parent, killed.parent, ignore=shutil.ignore_patterns("*-shm", "*-lock"))
    before, undelivered = (
        content(killed, 3),
        "part 0 has 1 rows of outbox, publications that another worker has not got yet",
    )
    cure = "start the node once with node.workers = 3, and stop it"
    assert f"{undelivered}: {cure}" in call("reshard", 2, "--store", killed, code=1)
    assert content(killed, 3) == before
    export, copy, config = tmp_path / "export", tmp_path / "copy" / "b.db", tmp_path / "broker.toml"
    copy.parent.mkdir()
    call("export", export, "--store", killed)

    def import_into(workers: int, code: int = 0) -> str:
        config.write_text(f"[node]\nworkers = {workers}\n")
        return call("import", export, "--store", copy, "--config", config, code=code)

    for workers in (1, 2, 4):
        cure = "import it with node.workers = 3, start the node once, and divide its store then"
        assert f"{undelivered}: {cure}" in import_into(workers, code=1)
        assert names(copy.parent) == set()
    export.unlink()
    call("export", export, "--store", parts(killed, 3)[0])
    for workers in (1, 2):
        assert "that of one part of several, with 1 rows of outbox" in import_into(workers, code=1)
        assert names(copy.parent) == set()
    export.unlink()
    call("export", export, "--store", killed)
    import_into(3)
    for path in (killed, copy):
        async with broker(path, 3):
            pass
        call("reshard", 2, "--store", path)
        async with broker(path, 2) as b:
            await expect(b, there, [("t", b"1", 1)])
