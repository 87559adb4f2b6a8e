"""Buckets of objects, with real servers of two versions."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.nats.client.scripted import Told
from tests.nats.client.stores import IN_MEMORY, jetstream, objects
from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.events import ChunksLeft
from trunkline.nats.client.jetstream import JetStream, ObjectStore, ObjectStores
from trunkline.nats.client.jetstream.chunks import ObjectReader
from trunkline.nats.client.jetstream.objects import MAX_LINKS
from trunkline.nats.errors import (
    BadLink,
    BadSubject,
    BucketMissing,
    ClientClosed,
    NatsError,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    RequestTimeout,
)
from trunkline.nats.jetstream.buckets import ObjectStoreConfig
from trunkline.nats.jetstream.configs import ConsumerConfig
from trunkline.nats.jetstream.object_infos import ObjectInfo, ObjectLink, ObjectOptions, digest_text, subject_of
from trunkline.nats.jetstream.replies import ApiError, NameTaken

FILM = bytes(range(256)) * 1000


async def messages(js: JetStream) -> int:
    return (await js.stream("OBJ_films")).state.messages


def pieces(*sizes: int) -> AsyncIterator[bytes]:
    async def each() -> AsyncIterator[bytes]:
        begin = 0
        for size in sizes:
            await trio.lowlevel.checkpoint()
            yield FILM[begin : begin + size]
            begin += size

    return each()


# In and out


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, len(FILM)])
async def test_put_and_get(server: NatsServer, size: int) -> None:
    async with objects(server) as (js, store):
        info = await store.put("intro", FILM[:size], chunk_size=1000)
        assert (info.size, info.chunks) == (size, -(-size // 1000))
        assert info.digest == digest_text(sha256(FILM[:size]).digest())
        assert await store.get("intro") == FILM[:size]
        assert await messages(js) == info.chunks + 1


async def test_what_is_said_of_it(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        put = await store.put("a/b ä", b"x", description="an intro", headers={"a": "b"}, metadata={"c": "d"})
        info = await store.info("a/b ä")
        assert info.modified > 1_700_000_000
        assert put.modified == pytest.approx(info.modified, abs=60)
        assert (info.name, info.bucket, info.size, info.chunks) == ("a/b ä", "films", 1, 1)
        assert (info.description, dict(info.headers), info.metadata) == ("an intro", {"a": "b"}, {"c": "d"})
        assert info.options.chunk_size == 128 * 1024


@pytest.mark.parametrize("sizes", [(), (1,), (1000, 1000), (999, 2, 0, 2999, 1), (256_000,)])
async def test_put_pieces(server: NatsServer, sizes: tuple[int, ...]) -> None:
    async with objects(server) as (_, store):
        info = await store.put("intro", pieces(*sizes), chunk_size=1000)
        assert (info.size, info.chunks) == (sum(sizes), -(-sum(sizes) // 1000))
        assert await store.get("intro") == FILM[: sum(sizes)]


async def test_files(server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(FILM)
    async with objects(server) as (_, store):
        await store.put("intro", tmp_path / "in", chunk_size=1000)
        (tmp_path / "out").write_bytes(b"before")
        info = await store.get_file("intro", tmp_path / "out")
        assert info.size == len(FILM)
        assert (tmp_path / "out").read_bytes() == FILM
        await store.put("again", trio.Path(tmp_path / "out"))
        await store.get_file("again", str(tmp_path / "third"))
        assert (tmp_path / "third").read_bytes() == FILM
        assert sorted(os.listdir(tmp_path)) == ["in", "out", "third"]


async def test_read_in_chunks(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        await store.put("intro", FILM, chunk_size=100_000)
        async with store.open("intro") as reader:
            assert reader.info.chunks == 3
            assert [len(chunk) async for chunk in reader] == [100_000, 100_000, 56_000]
            assert [chunk async for chunk in reader] == []
        async with store.open("intro") as reader:
            async for chunk in reader:
                assert len(chunk) == 100_000
                break


async def test_much_is_never_in_memory_at_once(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for acknowledgements is bounded, as is what waits to be read."""
    monkeypatch.setattr("trunkline.nats.client.jetstream.objects.WINDOW", 1 << 20)
    size = 64 << 20
    made = 0

    async def each() -> AsyncIterator[bytes]:
        nonlocal made
        while made < size:
            made += 1 << 20
            yield bytes(1 << 20)

    async with jetstream(server, max_bytes=4 << 20, max_pending=1 << 20, on_event=lambda _: None) as js:
        store = await ObjectStores(js).create(ObjectStoreConfig(bucket="films", **IN_MEMORY))
        info = await store.put("long", each())
        assert info.size == size
        read = 0
        async with store.open("long") as reader:
            async for chunk in reader:
                read += len(chunk)
        assert read == size


# Replacing


async def test_a_replaced_object_leaves_no_chunks(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        first = await store.put("intro", FILM, chunk_size=1000)
        await store.put("other", b"o")
        second = await store.put("intro", b"new", description="second")
        assert first.nuid != second.nuid
        assert await store.get("intro") == b"new"
        assert await messages(js) == 4
        assert await store.get("other") == b"o"


async def broken(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece
    raise OSError("the disk is gone")


async def test_what_had_the_name_stays_until_all_of_the_new_one_is_there(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        await store.put("intro", b"first")

        async def looking() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield bytes(1000)
                assert await store.get("intro") == b"first"

        await store.put("intro", looking(), chunk_size=500)
        assert len(await store.get("intro")) == 3000
        before = await messages(js)
        with pytest.raises(OSError, match="the disk is gone"):
            await store.put("intro", broken(pieces(1000, 1000)), chunk_size=100)
        assert len(await store.get("intro")) == 3000
        assert await messages(js) == before


async def test_a_cancelled_put_leaves_nothing(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        await store.put("intro", b"first")
        with trio.CancelScope() as scope:

            async def endless() -> AsyncIterator[bytes]:
                for _ in range(100):
                    yield bytes(1000)
                scope.cancel()
                await trio.sleep_forever()

            await store.put("intro", endless(), chunk_size=100)
        assert scope.cancelled_caught
        assert await messages(js) == 2
        assert await store.get("intro") == b"first"


@pytest.mark.parametrize("what", ["put", "delete", "rename"])
async def test_a_cancellation_at_the_last_moment_leaves_nothing_half_done(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It waits for the answer, and for what must follow it."""
    calls: dict[str, Callable[[ObjectStore], Awaitable[object]]] = {
        "put": lambda store: store.put("intro", FILM, chunk_size=100_000),
        "delete": lambda store: store.delete("intro"),
        "rename": lambda store: store.update("intro", new_name="start"),
    }
    async with objects(server) as (js, store):
        await store.put("intro", b"first")
        publish = js.publish

        async def cancelling(*args: Any, **named: Any) -> Any:
            scope.cancel()
            return await publish(*args, **named)

        monkeypatch.setattr(js, "publish", cancelling)
        with trio.CancelScope() as scope:
            await calls[what](store)
        monkeypatch.undo()
        assert scope.cancel_called
        left = {info.name: info.chunks for info in await store.list()}
        assert left == {"put": {"intro": 3}, "delete": {}, "rename": {"start": 1}}[what]
        assert await messages(js) == 1 + sum(left.values())


async def test_text_is_no_source(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        with pytest.raises(TypeError, match=r"give the path of a file as a pathlib\.Path"):
            await store.put("intro", "intro.mp4")  # type: ignore[arg-type]


async def test_a_put_of_which_nobody_knows_whether_it_was_the_last_stays(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with objects(server) as (js, store):
        await store.put("intro", b"first")
        publish = js.publish

        async def unanswered(*args: Any, **named: Any) -> Any:
            await publish(*args, **named)
            raise RequestTimeout("no answer")

        monkeypatch.setattr(js, "publish", unanswered)
        with pytest.raises(RequestTimeout):
            await store.put("intro", b"second")
        assert await store.get("intro") == b"second"


async def test_a_refused_put_leaves_nothing(server: NatsServer) -> None:
    async with jetstream(server) as js:
        store = await ObjectStores(js).create(ObjectStoreConfig(bucket="films", max_bytes=20_000, **IN_MEMORY))
        await store.put("intro", b"first")
        with pytest.raises(ApiError, match="maximum bytes exceeded"):
            await store.put("intro", FILM, chunk_size=1000)
        assert await store.get("intro") == b"first"
        assert await messages(js) == 2


async def test_of_those_who_replace_at_the_same_time_one_stays_and_no_chunks_of_the_others(server: NatsServer) -> None:
    async with objects(server) as (js, store):

        async def put(number: int) -> None:
            await store.put("intro", bytes([number]) * 1000, chunk_size=100)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(put, number)
        found = await store.get("intro")
        assert (len(found), len(set(found))) == (1000, 1)
        assert await messages(js) == 11


async def test_chunks_that_cannot_be_removed_are_told_of(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    async with jetstream(server, on_event=told) as js:
        store = await ObjectStores(js).create(ObjectStoreConfig(bucket="films", **IN_MEMORY))
        first = await store.put("intro", b"first")

        async def refuse(*_: Any, **named: Any) -> int:
            raise RequestTimeout("no answer")

        monkeypatch.setattr(js, "purge_stream", refuse)
        await store.put("intro", b"second")
        event = (await told.wait())[0]
        assert isinstance(event, ChunksLeft)
        assert event.subject == first.chunk_subject
        assert await store.get("intro") == b"second"


# Removing


async def test_delete(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        with pytest.raises(ObjectMissing, match="films has no object 'intro'"):
            await store.delete("intro")
        await store.put("intro", FILM, description="an intro")
        await store.delete("intro")
        await store.delete("intro")
        assert await messages(js) == 1
        ask: Callable[[str], Any]
        for ask in (store.get, store.info):
            with pytest.raises(ObjectMissing, match="films has no object 'intro'"):
                await ask("intro")
        info = await store.info("intro", deleted=True)
        assert (info.is_deleted, info.size, info.chunks, info.digest) == (True, 0, 0, "")
        await store.put("intro", b"again")
        assert await store.get("intro") == b"again"


async def test_an_object_that_lost_a_chunk(server: NatsServer, tmp_path: Path) -> None:
    async with objects(server) as (js, store):
        await store.put("intro", FILM, chunk_size=1000)
        await js.delete_message("OBJ_films", 100)
        words = "films has 255000 of 256000 bytes of 'intro', in 255 of 256 chunks"
        with pytest.raises(ObjectDamaged, match=words):
            await store.get("intro")
        (tmp_path / "out").write_bytes(b"before")
        with pytest.raises(ObjectDamaged):
            await store.get_file("intro", tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == b"before"
        assert os.listdir(tmp_path) == ["out"]
        await js.purge_stream("OBJ_films", subject="$O.films.C.>")
        with pytest.raises(ObjectDamaged, match="0 of 256000"):
            await store.get("intro")


@pytest.mark.parametrize("wrong", [b"y", b"xy", b""])
async def test_an_object_of_other_bytes_is_not_handed_out_whole(server: NatsServer, wrong: bytes) -> None:
    async with objects(server) as (js, store):
        info = await store.put("intro", FILM[:3000] + b"x", chunk_size=1000)
        await js.delete_message("OBJ_films", 4)
        await js.publish(info.chunk_subject, wrong)
        async with store.open("intro") as reader:
            assert b"".join([await anext(reader) for _ in range(3)]) == FILM[:3000]
            with pytest.raises(ObjectDamaged):
                await anext(reader)


# What is known of them


async def test_update(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        await store.put("intro", b"film", description="old", headers={"a": "b"}, metadata={"c": "d"})
        info = await store.update("intro", description="new", headers={})
        assert (info.description, dict(info.headers), info.metadata) == ("new", {}, {"c": "d"})
        assert (await store.info("intro")).description == "new"
        assert await store.get("intro") == b"film"
        await store.update("intro", metadata={})
        assert (await store.info("intro")).metadata == {}
        with pytest.raises(ObjectMissing):
            await store.update("other", description="new")
        await store.delete("intro")
        with pytest.raises(ObjectMissing):
            await store.update("intro", new_name="other")


async def test_a_new_name(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        await store.put("old", b"film")
        await store.put("other", b"other")
        with pytest.raises(ObjectExists, match="films has an object 'other'"):
            await store.update("old", new_name="other")
        info = await store.update("old", new_name="new", description="renamed")
        assert (info.name, info.description) == ("new", "renamed")
        assert await store.get("new") == b"film"
        with pytest.raises(ObjectMissing):
            await store.info("old", deleted=True)
        await store.delete("other")
        await store.update("new", new_name="other")
        assert await store.get("other") == b"film"
        assert await messages(js) == 2


async def test_a_name_that_is_taken_again_meanwhile(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with objects(server) as (js, store):
        await store.put("old", b"film")
        purge = js.purge_stream

        async def not_now(*_: Any, **__: Any) -> int:
            return 0

        async def late(name: str, **named: Any) -> int:
            monkeypatch.setattr(js, "purge_stream", not_now)
            await store.put("old", b"another")
            return await purge(name, **named)

        monkeypatch.setattr(js, "purge_stream", late)
        await store.update("old", new_name="new")
        assert await store.get("old") == b"another"
        assert await store.get("new") == b"film"


async def test_links(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        other = await ObjectStores(js).create(ObjectStoreConfig(bucket="other", **IN_MEMORY))
        film = await store.put("film", FILM)
        link = await store.add_link("link", film)
        assert link.link == ObjectLink(bucket="films", name="film")
        await other.add_link("far", film)
        assert await store.get("link") == FILM
        assert await other.get("far") == FILM
        assert (await store.info("link")).link == link.link
        await store.add_bucket_link("link", "other")
        assert (await store.info("link")).link == ObjectLink(bucket="other")
        with pytest.raises(BadLink, match="'link' of films is a link to the bucket other, and no object"):
            await store.get("link")
        with pytest.raises(BadLink, match="'link' of films is a link itself"):
            await store.add_link("second", await store.info("link"))
        with pytest.raises(ObjectExists):
            await store.add_link("film", film)
        with pytest.raises(ObjectExists):
            await store.add_bucket_link("film", "other")
        await store.delete("film")
        with pytest.raises(ObjectMissing, match="films has no object 'film'"):
            await other.get("far")
        with pytest.raises(BadLink, match="is deleted"):
            await store.add_link("second", await store.info("film", deleted=True))
        await store.add_link("film", await other.put("x", b"x"))
        assert await store.get("film") == b"x"
        await store.delete("film")
        await other.put("far", b"here")  # in the place of a link
        assert await other.get("far") == b"here"


async def test_links_in_a_circle(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        for name, to in (("a", "b"), ("b", "a")):
            info = ObjectInfo(
                name=name, bucket="films", options=ObjectOptions(link=ObjectLink(bucket="films", name=to))
            )
            await js.publish(info.subject, info.encode())
        with pytest.raises(BadLink, match=f"'a' of films is a link to a link, {MAX_LINKS} times and more"):
            await store.get("a")


async def test_list_and_watch(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        assert await store.list() == []
        for name in ("a", "b", "c"):
            await store.put(name, b"x")
        await store.delete("b")
        assert [info.name for info in await store.list()] == ["a", "c"]
        async with store.watch() as watch, store.watch(updates_only=True, ignore_deletes=True) as news:
            assert [(info.name, info.is_deleted) async for info in watch.initial()] == [
                ("a", False),
                ("c", False),
                ("b", True),
            ]
            await store.delete("c")
            await store.put("d", b"y")
            assert (await watch.receive()).is_deleted
            assert (await watch.receive()).name == "d"
            found = await news.receive()
            assert (found.name, found.size) == ("d", 1)
            assert found.modified == (await store.info("d")).modified


# Buckets


async def test_what_is_changed_has_the_time_of_the_change(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of this machine; what is stored has none, and who asks gets that of the server."""
    clock = count(1_000.0)
    monkeypatch.setattr("trunkline.nats.client.jetstream.object_records.time", lambda: next(clock))
    async with objects(server) as (js, store):
        film = await store.put("film", b"x")
        changed = await store.update("film", description="new")
        moved = await store.update("film", new_name="other")
        link = await store.add_link("link", moved)
        far = await store.add_bucket_link("far", "films")
        assert [each.modified for each in (film, changed, moved, link, far)] == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
        for name in ("other", "link", "far"):
            stored = await js.get("OBJ_films", last=subject_of("films", name))
            assert b"mtime" not in stored.payload
            assert (await store.info(name)).modified == stored.time


async def test_seal(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        await store.put("intro", b"film")
        assert not (await store.status()).is_sealed
        await store.seal()
        assert (await store.status()).is_sealed
        for ask in (store.put("intro", b"x"), store.delete("intro"), store.update("intro", description="x")):
            with pytest.raises(ApiError, match="sealed"):
                await ask
        assert await store.get("intro") == b"film"


async def test_managing(server: NatsServer) -> None:
    async with jetstream(server) as js:
        stores = ObjectStores(js)
        config = ObjectStoreConfig(bucket="managed", description="first", ttl=600.0)
        await (await stores.create(config)).put("intro", b"film")
        await stores.create(config)
        with pytest.raises(NameTaken):
            await stores.create(ObjectStoreConfig(bucket="managed"))
        await stores.create(ObjectStoreConfig(bucket="second"))
        assert [status.config.bucket for status in await stores.list()] == ["managed", "second"]
        await stores.update(ObjectStoreConfig(bucket="managed", description="changed", ttl=600.0))
        status = await (await stores.open("managed")).status()
        assert (status.config.description, status.config.ttl) == ("changed", 600.0)
        assert status.size > 0
        await stores.delete("managed")
        for named in (stores.open, stores.delete):
            with pytest.raises(BucketMissing, match="managed: stream not found"):
                await named("managed")
            with pytest.raises(BadSubject):
                await named("a.b")
        with pytest.raises(BucketMissing):
            await stores.update(config)


async def test_what_is_not_possible(server: NatsServer) -> None:
    async with objects(server) as (_, store):
        with pytest.raises(ValueError, match="the name of an object is empty"):
            await store.put("", b"x")
        with pytest.raises(ValueError, match="chunks of 0 bytes"):
            await store.put("a", b"x", chunk_size=0)
        info = await store.put("a", bytes(3 << 20), chunk_size=1 << 30)  # as large as the server takes them
        assert info.chunks == 3
        with pytest.raises(NatsError):
            await store.put("n" * 3000, b"x")


async def test_reading_leaves_no_consumers(server: NatsServer) -> None:
    async with objects(server) as (js, store):
        await store.put("intro", FILM, chunk_size=1000)
        for _ in range(3):
            await store.get("intro")
            await store.list()
        left = ConsumerConfig(durable="other")
        await js.create_consumer("OBJ_films", left)
        while [info.name for info in await js.consumers("OBJ_films")] != ["other"]:
            await trio.lowlevel.checkpoint()


async def test_a_client_that_is_closed_meanwhile(server: NatsServer) -> None:
    async with objects(server) as (_, store), connect(server.url) as client:
        await store.put("intro", FILM, chunk_size=1000)
        await store.put("short", b"x")
        mine = await ObjectStores(client.jetstream()).open("films")

        async def closing() -> AsyncGenerator[bytes]:
            yield bytes(1000)
            await client.drain()
            yield bytes(1000)

        async with aclosing(closing()) as parts:
            with pytest.raises(ClientClosed):
                await mine.put("short", parts, chunk_size=10)
        async with store.open("intro") as reader:
            pass
        with pytest.raises(ClientClosed, match="'intro' is not read to its end"):
            await drained(reader)
        assert await store.get("short") == b"x"


async def drained(reader: ObjectReader) -> None:
    async for _ in reader:
        pass
