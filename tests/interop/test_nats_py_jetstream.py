"""nats-py's JetStream, buckets and objects, as its own documentation uses them, at a NATS listener."""

import asyncio
import io
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.test_nats_py import nats, run
from tests.nats.servers import BROKER, NatsServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    with running(BROKER, tmp_path_factory.mktemp("broker")) as one:
        yield one


def test_publish_and_pull(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="sample-stream", subjects=["foo"])
        for number in range(10):
            stored = await js.publish("foo", b"hello world: %d" % number)
            assert (stored.stream, stored.seq) == ("sample-stream", number + 1)
        pulled = await js.pull_subscribe("foo", "psub")
        got = []
        for _ in range(10):
            for message in await pulled.fetch(1):
                await message.ack_sync()
                got.append(message.data)
        assert got == [b"hello world: %d" % number for number in range(10)]
        with pytest.raises(nats.errors.TimeoutError):
            await pulled.fetch(1, timeout=0.1)
        info = await js.consumer_info("sample-stream", "psub")
        assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 10)
        await js.delete_stream("sample-stream")
        with pytest.raises(nats.js.errors.NoStreamResponseError):
            await js.publish("foo", b"")
        await client.close()

    run(scene)


def test_push_queue_and_ordered(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="events", subjects=["events.>"])
        for number in range(100):
            await js.publish(f"events.{number % 4}", b"%d" % number)

        pushed = await js.subscribe("events.>", durable="dur")
        first = await pushed.next_msg(timeout=5)
        assert (first.data, first.metadata.sequence.stream, first.metadata.num_pending) == (b"0", 1, 99)
        await first.ack()
        await pushed.unsubscribe()

        met: list[bytes] = []
        all_of_them = asyncio.Event()

        async def note(message: Any) -> None:
            met.append(message.data)
            await message.ack()
            if len(met) == 100:
                all_of_them.set()

        for _ in range(2):
            await js.subscribe("events.>", "workers", cb=note)
        await all_of_them.wait()
        assert sorted(map(int, met)) == list(range(100))

        ordered = await js.subscribe("events.2", ordered_consumer=True)
        assert [(await ordered.next_msg(timeout=5)).data for _ in range(25)] == [b"%d" % n for n in range(2, 100, 4)]
        await ordered.unsubscribe()
        await js.delete_stream("events")
        await client.close()

    run(scene)


def test_what_is_not_acknowledged_comes_again(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="work", subjects=["work.*"], retention="workqueue")
        await js.publish("work.a", b"once", headers={"Nats-Msg-Id": "1"})
        assert (await js.publish("work.a", b"once", headers={"Nats-Msg-Id": "1"})).duplicate
        pulled = await js.pull_subscribe("work.*", "worker")
        for count in (1, 2):
            [message] = await pulled.fetch(1, timeout=5)
            assert message.metadata.num_delivered == count
            await message.nak()
        [message] = await pulled.fetch(1, timeout=5)
        await message.ack_sync()
        assert (await js.stream_info("work")).state.messages == 0
        await js.delete_stream("work")
        await client.close()

    run(scene)


def test_buckets(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="KV_settings", subjects=["$KV.settings.>"], max_msgs_per_subject=3, deny_delete=True)
        bucket = await js.key_value("settings")
        watcher = await bucket.watch("lamp.*")
        assert await watcher.updates(timeout=5) is None  # all that there was
        revision = await bucket.put("lamp.hall", b"on")
        assert (await bucket.get("lamp.hall")).value == b"on"
        await bucket.update("lamp.hall", b"off", last=revision)
        with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
            await bucket.update("lamp.hall", b"late", last=revision)
        await bucket.delete("lamp.hall")
        with pytest.raises(nats.js.errors.KeyNotFoundError):
            await bucket.get("lamp.hall")
        seen = [await watcher.updates(timeout=5) for _ in range(3)]
        assert [(each.key, each.value, each.operation) for each in seen] == [
            ("lamp.hall", b"on", None),
            ("lamp.hall", b"off", None),
            ("lamp.hall", b"", "DEL"),
        ]
        await watcher.stop()
        await bucket.create("lamp.hall", b"new")
        assert [each.value for each in await bucket.history("lamp.hall")] == [b"off", b"", b"new"]
        assert await bucket.keys() == ["lamp.hall"]
        await js.delete_key_value("settings")
        with pytest.raises(nats.js.errors.BucketNotFoundError):
            await js.key_value("settings")
        await client.close()

    run(scene)


def test_objects(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        js = client.jetstream()
        store = await js.create_object_store("files")
        picture = bytes(range(256)) * 2000
        info = await store.put("picture", io.BytesIO(picture))
        assert (info.size, info.chunks) == (len(picture), 4)
        assert (await store.get("picture")).data == picture
        assert [each.name for each in await store.list()] == ["picture"]
        await store.delete("picture")
        with pytest.raises(nats.js.errors.ObjectNotFoundError):
            await store.get("picture")
        await js.delete_object_store("files")
        await client.close()

    run(scene)


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "fsync")
    monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(tmp_path / "store"))

    async def scene(server: NatsServer) -> None:
        back = asyncio.Event()

        async def again() -> None:
            back.set()

        client = await nats.connect(
            server.url, reconnect_time_wait=0.1, max_reconnect_attempts=-1, reconnected_cb=again
        )
        js = client.jetstream()
        await js.add_stream(name="kept", subjects=["kept.>"])
        pulled = await js.pull_subscribe("kept.>", "reader")
        pushed = await js.subscribe("kept.>", durable="pushed")
        for number in range(3):
            await js.publish("kept.a", b"%d" % number)
        [message] = await pulled.fetch(1, timeout=5)
        await message.ack_sync()
        for _ in range(3):
            await (await pushed.next_msg(timeout=5)).ack_sync()
        server.kill()
        await asyncio.to_thread(server.start)
        await back.wait()
        await js.publish("kept.a", b"3")
        assert [each.data for each in await pulled.fetch(3, timeout=5)] == [b"1", b"2", b"3"]
        assert (await pushed.next_msg(timeout=5)).data == b"3"
        await client.close()

    with running(BROKER, tmp_path) as server:
        run(scene, server)
