"""Buckets of objects for threads, with real servers of two versions."""

import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.nats.client.stores import IN_MEMORY
from tests.nats.servers import NatsServer
from tests.nats.sync.interrupts import interrupt_behind
from trunkline.nats import sync
from trunkline.nats.errors import BadLink, BucketMissing, ClientClosed, ObjectExists, ObjectMissing
from trunkline.nats.jetstream.buckets import ObjectStoreConfig
from trunkline.nats.jetstream.replies import ApiError, NameTaken

#: Seconds for what should come.
SOON = 60.0
FILM = bytes(range(256)) * 2000


@pytest.fixture
def js(server: NatsServer) -> Iterator[sync.JetStream]:
    with sync.connect(server.url) as client:
        yield client.jetstream(timeout=SOON)


@pytest.fixture
def stores(js: sync.JetStream) -> Iterator[sync.ObjectStores]:
    stores = sync.ObjectStores(js)
    yield stores
    for status in stores.list(timeout=SOON):
        stores.delete(status.config.bucket, timeout=SOON)


@pytest.fixture
def films(stores: sync.ObjectStores) -> sync.ObjectStore:
    return stores.create(ObjectStoreConfig(bucket="films", **IN_MEMORY), timeout=SOON)


def messages(js: sync.JetStream) -> int:
    return js.stream("OBJ_films").state.messages


def test_in_and_out(films: sync.ObjectStore, tmp_path: Path) -> None:
    assert films.bucket == "films"
    info = films.put("intro", FILM, description="black", headers={"a": "b"}, metadata={"c": "d"}, chunk_size=1000)
    assert (info.size, info.chunks, info.description, dict(info.headers)) == (len(FILM), 512, "black", {"a": "b"})
    assert info.metadata == {"c": "d"}
    assert films.get("intro", timeout=SOON) == FILM
    assert films.get_file("intro", tmp_path / "intro", timeout=SOON).size == len(FILM)
    assert films.put("again", tmp_path / "intro", timeout=SOON).digest == info.digest
    with films.open("intro", timeout=SOON) as reader:
        assert reader.info.digest == info.digest
        assert [len(chunk) for chunk in reader] == [1000] * 512
        assert list(reader) == []
    assert films.put("empty", bytearray()).size == 0
    assert films.get("empty") == b""
    assert films.put("view", memoryview(b"abc")).size == 3


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [300_000], [1000] * 500])
def test_pieces(films: sync.ObjectStore, sizes: list[int]) -> None:
    here = threading.current_thread()

    def pieces() -> Iterator[bytes]:
        begin = 0
        for size in sizes:
            assert threading.current_thread() is here
            yield FILM[begin : begin + size]
            begin += size

    info = films.put("intro", pieces(), chunk_size=1000, timeout=SOON)
    assert (info.size, info.chunks) == (sum(sizes), -(-sum(sizes) // 1000))
    assert films.get("intro") == FILM[: sum(sizes)]


def endless() -> Iterator[bytes]:
    while True:
        yield FILM


def broken() -> Iterator[bytes]:
    yield FILM
    yield FILM
    raise OSError("the tape is torn")


def torn() -> Iterator[bytes]:
    yield b"half"
    raise trio.BrokenResourceError("the reel is torn")


def interrupted() -> Iterator[bytes]:
    yield FILM
    raise KeyboardInterrupt


def too_late() -> Iterator[bytes]:
    raise TimeoutError("the tape is not there")
    yield b""


@pytest.mark.parametrize(
    ("pieces", "error", "match"),
    [
        (broken, OSError, "the tape is torn"),
        (torn, trio.BrokenResourceError, "the reel is torn"),
        (interrupted, KeyboardInterrupt, None),
        (too_late, TimeoutError, "the tape is not there"),
        (endless, TimeoutError, r"not stored within 0\.3 s"),
        (lambda: "a path", TypeError, "pathlib"),
        (lambda: ["text"], TypeError, "bytearray"),
    ],
)
def test_what_is_not_stored_leaves_nothing(
    js: sync.JetStream,
    films: sync.ObjectStore,
    pieces: Callable[[], Iterator[bytes]],
    error: type[BaseException],
    match: str | None,
) -> None:
    films.put("intro", b"old")
    with pytest.raises(error, match=match):
        films.put("intro", pieces(), timeout=0.3 if pieces is endless else None)
    assert films.get("intro") == b"old"
    assert messages(js) == 2


@pytest.mark.parametrize("piece", [b"", b"1"])
def test_the_time_is_over_however_small_the_pieces_are(
    js: sync.JetStream, films: sync.ObjectStore, piece: bytes
) -> None:
    films.put("intro", b"old")
    with pytest.raises(TimeoutError, match=r"not stored within 0\.05 s"):
        films.put("intro", repeat(piece), timeout=0.05)
    assert films.get("intro") == b"old"
    assert messages(js) == 2


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_as_it_begins_or_ends_leaves_nothing_at_work(
    films: sync.ObjectStore, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    thread = films._thread.opened

    def tasks() -> int:
        return thread.call(lambda: len(thread._nursery.child_tasks))

    before = tasks()
    submit = thread.submit

    def interrupted(function: Callable[[], Awaitable[object]]) -> Any:
        found = submit(function)
        if begun:
            monkeypatch.setattr(found[0], "wait", interrupting)
            return found
        raise KeyboardInterrupt

    def interrupting() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    films.put("intro", b"old")
    monkeypatch.setattr(thread, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        films.put("intro", iter([b"1", b"2"]))
    monkeypatch.undo()
    while tasks() > before:
        films.info("intro")  # it ends meanwhile
    assert films.get("intro") in ((b"old", b"12") if begun else (b"old",))


def test_pieces_of_what_is_refused(stores: sync.ObjectStores, films: sync.ObjectStore) -> None:
    """The error says why, also where more pieces would come."""
    with pytest.raises(ValueError, match="is empty"):
        films.put("", endless())
    with pytest.raises(ValueError, match="negative"):
        films.put("intro", endless(), timeout=-1)
    full = stores.create(ObjectStoreConfig(bucket="full", max_bytes=100_000, **IN_MEMORY))
    with pytest.raises(ApiError, match="maximum bytes"):
        full.put("intro", endless())


def test_pieces_for_a_client_that_is_closed(server: NatsServer, films: sync.ObjectStore) -> None:
    client = sync.connect(server.url).open(timeout=SOON)
    store = sync.ObjectStores(client.jetstream()).open("films")

    def pieces() -> Iterator[bytes]:
        yield FILM
        client.close(timeout=SOON)
        yield FILM

    with pytest.raises(ClientClosed):
        store.put("intro", pieces())
    with pytest.raises(ObjectMissing):
        films.get("intro")


def test_what_is_known_of_them(films: sync.ObjectStore, stores: sync.ObjectStores) -> None:
    intro = films.put("intro", b"1")
    films.put("outro", b"22")
    assert films.update("intro", new_name="start", description="black", timeout=SOON).name == "start"
    assert films.info("start", timeout=SOON).description == "black"
    with pytest.raises(ObjectExists):
        films.update("start", new_name="outro")
    with pytest.raises(ObjectMissing):
        films.info("intro")
    assert films.add_link("link", films.info("outro"), timeout=SOON).options.link is not None
    assert films.get("link") == b"22"
    stores.create(ObjectStoreConfig(bucket="others", **IN_MEMORY))
    films.add_bucket_link("others", "others", timeout=SOON)
    with pytest.raises(BadLink):
        films.open("others")
    assert sorted(each.name for each in films.list(timeout=SOON)) == ["link", "others", "outro", "start"]
    films.delete("start", timeout=SOON)
    assert films.info("start", deleted=True).is_deleted
    with pytest.raises(ObjectMissing):
        films.delete("nothing")
    assert intro.size == 1


def test_watch(films: sync.ObjectStore) -> None:
    films.put("intro", b"1")
    with films.watch(timeout=SOON) as watch:
        assert [each.name for each in watch.initial()] == ["intro"]
        films.delete("intro")
        assert watch.receive(timeout=SOON).is_deleted
    with films.watch(ignore_deletes=True) as watch:
        assert list(watch.initial()) == []
    with films.watch(updates_only=True) as watch:
        assert watch.is_current


def test_stores(stores: sync.ObjectStores, films: sync.ObjectStore) -> None:
    films.put("intro", b"1")
    with pytest.raises(NameTaken):
        stores.create(ObjectStoreConfig(bucket="films", description="another", **IN_MEMORY))
    stores.update(ObjectStoreConfig(bucket="films", description="old", **IN_MEMORY), timeout=SOON)
    assert stores.open("films", timeout=SOON).status(timeout=SOON).config.description == "old"
    assert [each.config.bucket for each in stores.list(timeout=SOON)] == ["films"]
    films.seal(timeout=SOON)
    assert films.status().is_sealed
    with pytest.raises(ApiError):
        films.put("outro", b"2")
    stores.delete("films", timeout=SOON)
    for missing in (stores.open, stores.delete):
        with pytest.raises(BucketMissing):
            missing("films")


def test_an_interrupt_takes_no_chunk(films: sync.ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    films.put("intro", FILM, chunk_size=1000)
    with films.open("intro") as reader:
        first = next(reader)
        interrupt_behind(reader, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            next(reader)
        monkeypatch.undo()
        assert first + b"".join(reader) == FILM


def test_a_reader_that_is_closed(js: sync.JetStream, films: sync.ObjectStore) -> None:
    films.put("intro", FILM, chunk_size=1000)
    with films.open("intro") as reader:
        next(reader)
    with pytest.raises(ClientClosed, match="not read to its end"):
        list(reader)
    assert js.consumers("OBJ_films") == []


def test_a_block_may_outlive_the_client(server: NatsServer, films: sync.ObjectStore) -> None:
    films.put("intro", FILM, chunk_size=1000)
    client = sync.connect(server.url).open(timeout=SOON)
    with sync.ObjectStores(client.jetstream()).open("films").open("intro") as reader:
        client.close(timeout=SOON)
        with pytest.raises(ClientClosed):
            list(reader)
