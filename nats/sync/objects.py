"""Buckets of objects of any size, for any thread. Where nothing else is said, their methods do and raise what those of
`trunkline.nats.client.jetstream` do; `timeout` comes on top of that of one request."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import aclosing, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import trio

from trunkline.actors.trio_thread import limit
from trunkline.nats.client.jetstream.chunks import refuse_text
from trunkline.nats.client.jetstream.objects import ObjectStores as TrioObjectStores
from trunkline.nats.jetstream.object_infos import CHUNK_SIZE
from trunkline.nats.sync.handover import Block, Handover
from trunkline.nats.sync.watching import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from trunkline.actors.answer import Answer
    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.chunks import ObjectReader as TrioObjectReader
    from trunkline.nats.client.jetstream.objects import ObjectStore as TrioObjectStore
    from trunkline.nats.client.jetstream.objects import ObjectStoreStatus
    from trunkline.nats.jetstream.buckets import ObjectStoreConfig
    from trunkline.nats.jetstream.object_infos import ObjectInfo
    from trunkline.nats.protocol.headers import Headers
    from trunkline.nats.sync.jetstream import JetStream

#: What can be put into a store: bytes, pieces of any size, or a file.
Source: TypeAlias = bytes | Iterable[bytes] | os.PathLike[str]

#: Bytes that cross threads at once, where pieces are smaller.
_AT_ONCE: Final = 1 << 18


class ObjectReader(Block):
    """The chunks of an object: `with store.open("film") as reader: for chunk in reader:`. The last one is handed out
    when all of them are found to be what was put into the store. Raises as the reader of the client on trio does."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[TrioObjectReader],
        reader: TrioObjectReader,
        thread: ContextThread,
    ) -> None:
        super().__init__(opening, thread)
        self.info = reader.info
        self._chunks = Handover(thread, reader.__anext__)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            return self._chunks.pick_up(None)
        except StopAsyncIteration:
            raise StopIteration from None


class ObjectStore:
    """A bucket of objects; `ObjectStores` makes one."""

    def __init__(self, store: TrioObjectStore, thread: ContextThread) -> None:
        self.bucket = store.bucket
        self._store = store
        self._thread = thread

    # Objects

    def put(
        self,
        name: str,
        source: Source,
        *,
        description: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_SIZE,
        timeout: float | None = None,
    ) -> ObjectInfo:
        """Store bytes, pieces (which are taken in the calling thread), or a file (a path that is no text) in the place
        of what has this name. What had it stays if this takes longer than `timeout` seconds, or the pieces raise."""

        async def put(source: bytes | AsyncIterable[bytes] | os.PathLike[str]) -> ObjectInfo:
            return await self._store.put(
                name, source, description=description, headers=headers, metadata=metadata, chunk_size=chunk_size
            )

        refuse_text(source)
        if isinstance(source, os.PathLike):
            return self._thread.run(timeout, put, source)
        if isinstance(source, bytes | bytearray | memoryview):
            return self._thread.run(timeout, put, bytes(source))
        return self._put_pieces(put, source, timeout)

    def _put_pieces(
        self,
        put: Callable[[AsyncIterable[bytes]], Awaitable[ObjectInfo]],
        source: Iterable[bytes],
        timeout: float | None,
    ) -> ObjectInfo:
        sender, receiver = trio.open_memory_channel[bytes](0)
        is_complete = False

        async def pieces() -> AsyncGenerator[bytes]:
            async for piece in receiver:
                yield piece
            if not is_complete:
                raise _NotComplete

        async def store() -> ObjectInfo:
            async with receiver, aclosing(pieces()) as all_pieces:
                with trio.move_on_after(inf if timeout is None else limit(timeout)):
                    return await put(all_pieces)
                raise TimeoutError(f"not stored within {timeout:g} s")

        try:
            answer, cancel = self._thread.opened.submit(store)
            try:
                is_complete = self._send(source, sender, answer)
                if is_complete:
                    self._thread.call(sender.close)
                answer.wait()
            except BaseException:
                cancel()
                answer.wait()  # it removes what it has stored
                raise
        finally:  # also if nobody knows the answer
            with suppress(Exception):
                self._thread.call(sender.close)
        return answer.result()

    def _send(self, source: Iterable[bytes], sender: trio.MemorySendChannel[bytes], answer: Answer[ObjectInfo]) -> bool:
        """Whether all was sent: the answer says why not."""
        left = bytearray()
        for piece in source:
            left += piece
            if answer.done:
                return False
            if len(left) >= _AT_ONCE:
                if not self._thread.run(None, _sent, sender, bytes(left)):
                    return False
                left.clear()
        return self._thread.run(None, _sent, sender, bytes(left))

    def get(self, name: str, *, timeout: float | None = None) -> bytes:
        """All of an object, in memory."""
        return self._thread.run(timeout, self._store.get, name)

    def get_file(self, name: str, path: os.PathLike[str] | str, *, timeout: float | None = None) -> ObjectInfo:
        """Write an object to a file, which takes the place of one that is there when all is written and found right."""
        return self._thread.run(timeout, self._store.get_file, name, path)

    def open(self, name: str, *, timeout: float | None = None) -> ObjectReader:
        """Read an object in chunks. A link is followed."""
        opening = self._store.open(name)
        return ObjectReader(opening, self._thread.enter(timeout, opening), self._thread)

    def delete(self, name: str, *, timeout: float | None = None) -> None:
        """An object that is deleted already is no error, nor is a link."""
        self._thread.run(timeout, self._store.delete, name)

    # What is known of them

    def info(self, name: str, *, deleted: bool = False, timeout: float | None = None) -> ObjectInfo:
        """Of an object, or of a link itself; with `deleted` also of one that is deleted."""
        return self._thread.run(timeout, self._store.info, name, deleted=deleted)

    def update(
        self,
        name: str,
        *,
        new_name: str = "",
        description: str | None = None,
        headers: Headers | Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ObjectInfo:
        """Change what is known of an object or a link, and nothing that is not given."""
        update = partial(
            self._store.update, new_name=new_name, description=description, headers=headers, metadata=metadata
        )
        return self._thread.run(timeout, update, name)

    def add_link(self, name: str, target: ObjectInfo, *, timeout: float | None = None) -> ObjectInfo:
        """A link to an object of this bucket or another one."""
        return self._thread.run(timeout, self._store.add_link, name, target)

    def add_bucket_link(self, name: str, bucket: str, *, timeout: float | None = None) -> ObjectInfo:
        """A link to a bucket."""
        return self._thread.run(timeout, self._store.add_bucket_link, name, bucket)

    # All of them

    def list(self, *, timeout: float | None = None) -> list[ObjectInfo]:
        """What is known of all objects and links."""
        return self._thread.run(timeout, self._store.list)

    def watch(
        self, *, updates_only: bool = False, ignore_deletes: bool = False, timeout: float | None = None
    ) -> Watch[ObjectInfo]:
        """What is known of all objects, and then each change: `with store.watch() as watch: for info in watch:`."""
        watching = self._store.watch(updates_only=updates_only, ignore_deletes=ignore_deletes)
        return Watch(watching, self._thread.enter(timeout, watching), self._thread)

    def seal(self, *, timeout: float | None = None) -> None:
        """Nothing can be changed any more."""
        self._thread.run(timeout, self._store.seal)

    def status(self, *, timeout: float | None = None) -> ObjectStoreStatus:
        return self._thread.run(timeout, self._store.status)


class ObjectStores:
    """The object stores of an account: `ObjectStores(client.jetstream())`."""

    def __init__(self, js: JetStream) -> None:
        self._stores = TrioObjectStores(js.inner)
        self._thread = js.thread

    def create(self, config: ObjectStoreConfig, *, timeout: float | None = None) -> ObjectStore:
        """One that is there already with this configuration is no error."""
        return ObjectStore(self._thread.run(timeout, self._stores.create, config), self._thread)

    def update(self, config: ObjectStoreConfig, *, timeout: float | None = None) -> ObjectStore:
        return ObjectStore(self._thread.run(timeout, self._stores.update, config), self._thread)

    def open(self, bucket: str, *, timeout: float | None = None) -> ObjectStore:
        """One that is there."""
        return ObjectStore(self._thread.run(timeout, self._stores.open, bucket), self._thread)

    def delete(self, bucket: str, *, timeout: float | None = None) -> None:
        """With all that is in it."""
        self._thread.run(timeout, self._stores.delete, bucket)

    def list(self, *, timeout: float | None = None) -> list[ObjectStoreStatus]:
        """All that there are."""
        return self._thread.run(timeout, self._stores.list)


class _NotComplete(Exception):
    """The caller has gone, or what gives the pieces has raised."""


async def _sent(sender: trio.MemorySendChannel[bytes], piece: bytes) -> bool:
    """Whether somebody takes it."""
    try:
        await sender.send(piece)
    except trio.BrokenResourceError:
        return False
    return True
