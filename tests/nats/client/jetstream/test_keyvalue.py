"""Buckets of keys with values, with real servers of two versions."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tests.nats.client.scripted import Told
from tests.nats.client.stores import IN_MEMORY, jetstream, key_values, knows_filters, knows_ttl
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import connect
from trunkline.nats.client.events import Reconnected
from trunkline.nats.client.jetstream import KeyValue, KeyValues, NotSupported, ObjectStores
from trunkline.nats.errors import (
    BadSubject,
    BucketMissing,
    KeyExists,
    KeyMissing,
    NatsError,
    NoResponders,
    WrongRevision,
)
from trunkline.nats.jetstream.buckets import KeyValueConfig, ObjectStoreConfig
from trunkline.nats.jetstream.configs import Republish, StreamConfig, StreamSource
from trunkline.nats.jetstream.entries import Entry, Operation
from trunkline.nats.jetstream.replies import ApiError, NameTaken


def shown(entry: Entry) -> tuple[str, bytes, int, Operation]:
    return entry.key, entry.value, entry.revision, entry.operation


# Values


async def test_put_and_get(server: NatsServer) -> None:
    async with key_values(server) as (_, bucket):
        assert await bucket.put("lamps.kitchen", b"on") == 1
        assert await bucket.put("lamps.kitchen", b"off") == 2
        found = await bucket.get("lamps.kitchen")
        assert found == Entry("settings", "lamps.kitchen", b"off", 2, found.created, 0, Operation.PUT)
        assert found.created > 1_700_000_000
        assert await bucket.put("empty", b"") == 3
        assert (await bucket.get("empty")).value == b""
        with pytest.raises(KeyMissing, match="settings has no value of 'lamps'"):
            await bucket.get("lamps")


@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_revision(server: NatsServer, is_direct: bool) -> None:
    async with key_values(server, history=2) as (js, _):
        stream = (await js.stream("KV_settings")).config
        bucket = KeyValue(js, replace(stream, allow_direct=is_direct))
        for value in (b"1", b"2", b"3"):
            await bucket.put("a", value)
        await bucket.put("b", b"4")
        assert shown(await bucket.get("a", 2)) == ("a", b"2", 2, Operation.PUT)
        for wrong in (1, 4, 9):  # it has gone, is another key's, and is not there yet
            with pytest.raises(KeyMissing):
                await bucket.get("a", wrong)


async def test_create(server: NatsServer) -> None:
    async with key_values(server, history=5) as (_, bucket):
        assert await bucket.create("a", b"1") == 1
        with pytest.raises(KeyExists, match="'a': wrong last sequence: 1"):
            await bucket.create("a", b"2")
        assert (await bucket.get("a")).value == b"1"
        await bucket.delete("a")
        assert await bucket.create("a", b"3") == 3
        await bucket.purge("a")
        assert await bucket.create("a", b"4") == 5


async def test_of_many_that_create_one_does(server: NatsServer) -> None:
    async with key_values(server, history=5) as (_, bucket):
        await bucket.put("leader", b"")
        await bucket.delete("leader")
        done = list[str]()

        async def run_for(name: str) -> None:
            try:
                await bucket.create("leader", name.encode())
            except KeyExists:
                return
            done.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(run_for, str(number))
        assert [(await bucket.get("leader")).value.decode()] == done


async def test_update(server: NatsServer) -> None:
    async with key_values(server) as (_, bucket):
        first = await bucket.put("a", b"1")
        await bucket.put("b", b"1")
        assert await bucket.update("a", b"2", first) == 3
        with pytest.raises(WrongRevision, match=r"'a': wrong last sequence: 3 \(10071\)") as caught:
            await bucket.update("a", b"3", first)
        assert not isinstance(caught.value, KeyExists)
        assert (await bucket.get("a")).value == b"2"


async def test_delete(server: NatsServer) -> None:
    async with key_values(server, history=5) as (_, bucket):
        first = await bucket.put("a", b"1")
        with pytest.raises(WrongRevision):
            await bucket.delete("a", revision=first + 1)
        second = await bucket.delete("a", revision=first)
        with pytest.raises(KeyMissing, match="'a' was deleted, with revision 2"):
            await bucket.get("a")
        assert (await bucket.get("a", first)).value == b"1"
        assert [shown(entry) for entry in await bucket.history("a")] == [
            ("a", b"1", first, Operation.PUT),
            ("a", b"", second, Operation.DELETE),
        ]


async def test_purge(server: NatsServer) -> None:
    async with key_values(server, history=5) as (_, bucket):
        await bucket.put("a", b"1")
        await bucket.put("b", b"1")
        last = await bucket.put("a", b"2")
        with pytest.raises(WrongRevision):
            await bucket.purge("a", revision=1)
        await bucket.purge("a", revision=last)
        with pytest.raises(KeyMissing):
            await bucket.get("a")
        assert [shown(entry) for entry in await bucket.history("a")] == [("a", b"", 4, Operation.PURGE)]
        assert (await bucket.get("b")).value == b"1"


async def test_what_is_deleted_leaves_nothing_behind(server: NatsServer) -> None:
    async with key_values(server, history=5) as (js, bucket):
        for key in ("a", "b", "c"):
            await bucket.put(key, b"1")
        await bucket.delete("a")
        await bucket.delete("b")
        newer = (await bucket.history("b"))[-1].created
        assert await bucket.purge_deletes(before=newer) == 2
        with pytest.raises(KeyMissing):
            await bucket.history("a")
        assert [entry.operation for entry in await bucket.history("b")] == [Operation.DELETE]
        assert await bucket.purge_deletes() == 1
        assert [entry.key for entry in await bucket.history("c")] == ["c"]
        assert (await js.stream("KV_settings")).state.messages == 1


async def test_a_value_behind_a_deletion_stays(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with key_values(server, history=5) as (js, bucket):
        await bucket.put("a", b"1")
        await bucket.delete("a")
        purge = js.purge_stream

        async def late(*args: Any, **named: Any) -> int:
            await bucket.put("a", b"2")
            return await purge(*args, **named)

        monkeypatch.setattr(js, "purge_stream", late)
        await bucket.purge_deletes()
        assert [shown(entry) for entry in await bucket.history("a")] == [("a", b"2", 3, Operation.PUT)]


# What is refused


async def test_names(server: NatsServer) -> None:
    async with key_values(server) as (js, bucket):
        for ask in (bucket.get, bucket.history, bucket.delete, bucket.purge):
            with pytest.raises(BadSubject):
                await ask("a.*")
        with pytest.raises(BadSubject):
            await bucket.put("a b", b"")
        with pytest.raises(BadSubject):
            await bucket.keys("a b")
        for named in (KeyValues(js).open, KeyValues(js).delete):
            with pytest.raises(BadSubject, match="the name of a bucket has"):
                await named("a.b")
        assert (await bucket.status()).values == 0


async def test_a_value_that_is_too_large(server: NatsServer) -> None:
    async with key_values(server, max_value_size=10) as (_, bucket):
        with pytest.raises(ApiError, match="message size exceeds maximum allowed"):
            await bucket.put("a", bytes(1000))


async def test_a_bucket_that_is_full(server: NatsServer) -> None:
    async with key_values(server, max_bytes=1000) as (_, bucket):
        await bucket.put("a", bytes(500))
        with pytest.raises(ApiError, match="maximum bytes exceeded"):
            await bucket.put("b", bytes(500))
        assert len((await bucket.get("a")).value) == 500


async def test_a_bucket_that_is_gone(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.context.RETRY_WAIT", 0.001)
    async with key_values(server) as (js, bucket):
        await KeyValues(js).delete("settings")
        with pytest.raises(NoResponders):
            await bucket.put("a", b"1")
        with pytest.raises(ApiError, match="stream not found"):
            await bucket.history("a")
        with pytest.raises(BucketMissing, match="settings: stream not found"):
            await bucket.status()
        for named in (KeyValues(js).open, KeyValues(js).delete):
            with pytest.raises(BucketMissing):
                await named("settings")
        with pytest.raises(BucketMissing):
            await KeyValues(js).update(KeyValueConfig(bucket="settings"))


async def test_values_with_a_life_of_their_own(server: NatsServer) -> None:
    async with jetstream(server) as js:
        config = KeyValueConfig(bucket="settings", history=5, limit_marker_ttl=1.0, **IN_MEMORY)
        if not knows_ttl(js):
            with pytest.raises(NotSupported, match="does not know allow_msg_ttl, subject_delete_marker_ttl"):
                await KeyValues(js).create(config)
            with pytest.raises(BucketMissing):
                await KeyValues(js).open("settings")
            return
        bucket = await KeyValues(js).create(config)
        assert (await bucket.status()).config.limit_marker_ttl == 1.0
        async with bucket.watch(updates_only=True) as watch:
            first = await bucket.create("a", b"1", ttl=1.0)
            assert shown(await watch.receive()) == ("a", b"1", first, Operation.PUT)
            ended = await watch.receive()  # which the server has left
            assert (ended.key, ended.value, ended.operation) == ("a", b"", Operation.PURGE)
        with pytest.raises(KeyMissing):
            await bucket.get("a")
        again = await bucket.create("a", b"2", ttl=86_400 * 365.0)
        assert (await js.get("KV_settings", again)).headers["Nats-TTL"].startswith("31536000")
        await bucket.purge("a", ttl=1.0)
        with pytest.raises(ApiError):
            await bucket.create("b", b"", ttl=0.1)


async def test_a_life_of_its_own_in_a_bucket_without(server: NatsServer) -> None:
    async with key_values(server) as (js, bucket):
        with pytest.raises(NotSupported, match="in buckets with limit_marker_ttl only"):
            await bucket.create("a", b"1", ttl=5.0)
        await bucket.put("a", b"1")
        with pytest.raises(NotSupported):
            await bucket.purge("a", ttl=5.0)
        assert (await bucket.get("a")).value == b"1"
        if knows_ttl(js):  # the bucket learns it while it is open
            await KeyValues(js).update(KeyValueConfig(bucket="settings", limit_marker_ttl=5.0, **IN_MEMORY))
            await bucket.create("b", b"1", ttl=5.0)


# Many of them


async def test_keys(server: NatsServer) -> None:
    async with key_values(server, history=3) as (js, bucket):
        assert await bucket.keys() == []
        for key in ("a", "b.c", "b.d", "e", "a"):
            await bucket.put(key, b"x" * 1000)
        await bucket.delete("e")
        assert await bucket.keys() == ["b.c", "b.d", "a"]
        assert await bucket.keys("b.*") == ["b.c", "b.d"]
        assert await bucket.keys("z") == []
        if knows_filters(js):
            assert await bucket.keys("a", "b.d") == ["b.d", "a"]
            with pytest.raises(ApiError, match="overlap"):
                await bucket.keys("b.>", "b.c")
        else:
            with pytest.raises(NotSupported, match="this server knows no filter of several subjects"):
                await bucket.keys("a", "b.d")


async def test_a_key_that_is_deleted_while_all_are_told(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes twice then, and has no value at the end."""
    told = [("a", Operation.PUT), ("b", Operation.PUT), ("a", Operation.DELETE), ("b", Operation.PUT)]

    async def initial() -> AsyncIterator[Entry]:
        for revision, (key, operation) in enumerate(told):
            yield Entry("settings", key, b"", revision, 0.0, len(told) - revision, operation)
            await trio.lowlevel.checkpoint()

    async with key_values(server) as (_, bucket):
        watch = nullcontext(SimpleNamespace(initial=initial))
        monkeypatch.setattr(bucket, "watch", lambda *_, **__: watch)
        assert await bucket.keys() == ["b"]


async def test_history(server: NatsServer) -> None:
    async with key_values(server, history=3) as (_, bucket):
        for number in range(5):
            await bucket.put("a", b"%d" % number)
            await bucket.put("b", b"")
        found = await bucket.history("a")
        assert [(entry.value, entry.delta) for entry in found] == [(b"2", 2), (b"3", 1), (b"4", 0)]
        with pytest.raises(KeyMissing, match="settings has nothing of 'c'"):
            await bucket.history("c")


# Changes


async def test_watch(server: NatsServer) -> None:
    async with key_values(server) as (_, bucket):
        await bucket.put("a", b"1")
        await bucket.put("b", b"1")
        await bucket.delete("b")
        async with bucket.watch() as watch:
            assert not watch.is_current
            assert [shown(entry) async for entry in watch.initial()] == [
                ("a", b"1", 1, Operation.PUT),
                ("b", b"", 3, Operation.DELETE),
            ]
            assert watch.is_current
            assert [entry async for entry in watch.initial()] == []
            await bucket.put("c", b"2")
            assert shown(await watch.receive()) == ("c", b"2", 4, Operation.PUT)
            await bucket.purge("a")
            async for entry in watch:
                assert shown(entry) == ("a", b"", 5, Operation.PURGE)
                watch.stop()


async def test_watch_nothing(server: NatsServer) -> None:
    async with key_values(server) as (_, bucket), bucket.watch("a.>") as watch:
        assert watch.is_current
        assert [entry async for entry in watch.initial()] == []
        await bucket.put("b", b"1")
        await bucket.put("a.b", b"2")
        assert (await watch.receive()).value == b"2"


async def test_watch_with_choices(server: NatsServer) -> None:
    async with key_values(server, history=5) as (_, bucket):
        for value in (b"1", b"2"):
            await bucket.put("a", value)
        await bucket.put("b", b"3")
        await bucket.delete("b")

        async def revisions(**choices: Any) -> list[int]:
            async with bucket.watch(**choices) as watch:
                return [entry.revision async for entry in watch.initial()]

        assert await revisions() == [2, 4]
        assert await revisions(include_history=True) == [1, 2, 3, 4]
        assert await revisions(ignore_deletes=True) == [2]
        assert await revisions(resume_from=2) == [2, 3, 4]
        assert await revisions(resume_from=5) == []
        assert await revisions(updates_only=True) == []
        async with bucket.watch(updates_only=True, ignore_deletes=True) as watch:
            await bucket.delete("a")
            await bucket.put("a", b"9")
            assert (await watch.receive()).value == b"9"
        async with bucket.watch("a", meta_only=True) as watch:
            assert shown(await watch.receive()) == ("a", b"", 6, Operation.PUT)
        for wrong in ({"updates_only": True}, {"resume_from": 3}):
            with pytest.raises(ValueError, match="a watch begins with"):
                await revisions(include_history=True, **wrong)


async def test_a_watch_that_begins_with_no_revision(server: NatsServer) -> None:
    async with key_values(server) as (_, bucket):
        for revision in (0, -1):
            with pytest.raises(ValueError, match=f"resume_from is {revision}, and revisions begin with 1"):
                async with bucket.watch(resume_from=revision):
                    pass


async def test_a_watch_that_nobody_reads_ends(server: NatsServer) -> None:
    async with connect(server.url, max_messages=3) as client, key_values(server) as (_, bucket):
        small = await KeyValues(client.jetstream()).open("settings")
        for number in range(50):
            await bucket.put(f"key.{number}", bytes(1000))
        async with small.watch() as watch:
            await small.status()  # all that had room is there
            assert await watch.receive()
            watch.stop()
        async with small.watch() as watch:  # and whoever reads late has all, whatever found no room
            await small.status()
            assert [entry.key async for entry in watch.initial()] == [f"key.{number}" for number in range(50)]


async def test_a_watch_of_a_bucket_that_is_deleted(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.ordered.HEARTBEAT", 0.1)
    async with key_values(server) as (js, bucket), bucket.watch() as watch:
        await KeyValues(js).delete("settings")
        with pytest.raises(NatsError):
            await watch.receive()


# Buckets


async def test_managing(server: NatsServer) -> None:
    async with jetstream(server) as js:
        buckets = KeyValues(js)
        config = KeyValueConfig(bucket="a", history=5, ttl=600.0, description="first")
        await (await buckets.create(config)).put("x", b"1")
        await buckets.create(config)
        with pytest.raises(NameTaken):
            await buckets.create(KeyValueConfig(bucket="a", history=6))
        await buckets.update(replace(config, history=6))
        status = await (await buckets.open("a")).status()
        assert (status.config.history, status.config.ttl, status.values) == (6, 600.0, 1)
        assert status.size > 0
        await buckets.create(KeyValueConfig(bucket="b"))
        await js.create_stream(StreamConfig(name="KV_c", subjects=("$KV.c.>",)))
        with pytest.raises(BucketMissing, match="the stream KV_c is no bucket"):
            await buckets.open("c")
        assert [status.config.bucket for status in await buckets.list()] == ["a", "b"]
        await buckets.delete("a")
        assert [status.config.bucket for status in await buckets.list()] == ["b"]


async def test_whoever_forbids_direct_answers_is_obeyed(server: NatsServer) -> None:
    async with key_values(server) as (js, _):
        stream = (await js.stream("KV_settings")).config
        await js.update_stream(replace(stream, allow_direct=False))
        bucket = await KeyValues(js).update(KeyValueConfig(bucket="settings", description="new", **IN_MEMORY))
        config = (await bucket.status()).info.config
        assert (config.allow_direct, config.description) == (False, "new")
        await bucket.put("a", b"1")
        assert (await bucket.get("a")).value == b"1"


async def test_a_compressed_bucket(server: NatsServer) -> None:
    async with jetstream(server) as js:
        config = KeyValueConfig(bucket="compressed", is_compressed=True)
        if not knows_filters(js):
            with pytest.raises(NotSupported, match="compression"):
                await KeyValues(js).create(config)
            return
        assert (await (await KeyValues(js).create(config)).status()).config.is_compressed


async def test_a_mirror(server: NatsServer) -> None:
    async with key_values(server) as (js, origin):
        await origin.put("a", b"1")
        config = KeyValueConfig(bucket="copy", mirror=StreamSource(name="settings"))
        copy = await KeyValues(js).create(config)
        async with copy.watch() as watch:
            assert shown(await watch.receive()) == ("a", b"1", 1, Operation.PUT)
            await copy.put("b", b"2")  # goes to the origin
            assert (await watch.receive()).key == "b"
        assert (await origin.get("b")).value == b"2"
        assert (await copy.get("b")).value == b"2"
        assert await copy.keys() == ["a", "b"]


async def test_a_mirror_of_what_gives_no_direct_answers(server: NatsServer) -> None:
    async with key_values(server) as (js, _):
        stream = (await js.stream("KV_settings")).config
        await js.update_stream(replace(stream, allow_direct=False))
        for name in ("settings", "KV_settings"):
            with pytest.raises(NotSupported, match="copy: its origin settings allows no direct answers"):
                await KeyValues(js).create(KeyValueConfig(bucket="copy", mirror=StreamSource(name=name)))
        assert [each.config.name for each in await js.streams()] == ["KV_settings"]


async def test_sources(server: NatsServer) -> None:
    async with key_values(server) as (js, first):
        await first.put("a", b"1")
        config = KeyValueConfig(bucket="all", sources=(StreamSource(name="settings"),))
        if not knows_filters(js):
            with pytest.raises(NotSupported, match=r"does not know sources\.subject_transforms"):
                await KeyValues(js).create(config)
            with pytest.raises(BucketMissing):
                await KeyValues(js).open("all")
            return
        everything = await KeyValues(js).create(config)
        async with everything.watch() as watch:
            assert shown(await watch.receive()) == ("a", b"1", 1, Operation.PUT)
        assert (await everything.get("a")).value == b"1"
        await everything.put("b", b"2")
        assert await first.keys() == ["a"]


async def test_values_that_are_published_once_more(server: NatsServer) -> None:
    async with jetstream(server) as js, connect(server.url) as client:
        config = KeyValueConfig(bucket="told", republish=Republish(source=">", destination="told.>"))
        bucket = await KeyValues(js).create(config)
        with client.subscribe("told.>") as told:
            await client.flush()
            await bucket.put("a", b"1")
            message = await told.receive()
        assert (message.subject, message.payload) == ("told.$KV.told.a", b"1")
        # its headers look like those of a direct answer, and are not taken for them
        other = await KeyValues(js).create(KeyValueConfig(bucket="other"))
        await js.publish("$KV.other.b", b"2", headers=message.headers)
        assert shown(await other.get("b")) == ("b", b"2", 1, Operation.PUT)
        assert (await js.get("KV_other", 1, direct=True)).headers["Nats-Subject"] == "$KV.told.a"


@pytest.mark.parametrize("kind", KINDS)
async def test_another_domain(kind: str, tmp_path: Path) -> None:
    conf = tmp_path / "nats.conf"
    conf.write_text(f'jetstream {{ domain: hub, store_dir: "{tmp_path / "js"}" }}')
    with running(kind, tmp_path, "-c", str(conf)) as server:
        async with connect(server.url) as client:
            bucket = await KeyValues(client.jetstream(domain="hub")).create(KeyValueConfig(bucket="far"))
            async with bucket.watch() as watch:
                await bucket.put("a", b"1")
                assert (await watch.receive()).value == b"1"
            assert (await bucket.get("a")).value == b"1"
            await bucket.delete("a")
            assert await bucket.keys() == []
            store = await ObjectStores(client.jetstream(domain="hub")).create(ObjectStoreConfig(bucket="far"))
            await store.put("film", bytes(1_000_000))
            assert len(await store.get("film")) == 1_000_000


@pytest.mark.parametrize("kind", KINDS)
async def test_a_watch_goes_on_behind_a_server_that_ends(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.nats.client.jetstream.ordered.HEARTBEAT", 0.2)
    with running(kind, tmp_path, "-js", "-sd", str(tmp_path / "js")) as server:
        told = Told()
        async with connect(server.url, reconnect_wait=0.02, max_reconnect_wait=0.1, on_event=told) as client:
            bucket = await KeyValues(client.jetstream()).create(KeyValueConfig(bucket="settings", history=20))
            async with bucket.watch() as watch:
                for number in range(5):
                    await bucket.put("a", b"%d" % number)
                assert [(await watch.receive()).revision for _ in range(3)] == [1, 2, 3]
                server.kill()
                server.start()
                while not any(isinstance(event, Reconnected) for event in told.events):
                    await told.wait(len(told.events) + 1)
                for number in range(5):
                    await bucket.put("b", b"%d" % number)
                assert [(await watch.receive()).revision for _ in range(7)] == [4, 5, 6, 7, 8, 9, 10]
