"""Buckets of objects of any size, in streams (ADR-20).

An object is a number of chunks, and a message that says what it is and where they are. That message is stored when all
chunks are acknowledged, and the chunks of what it replaces are removed behind that: who reads has one or the other.
Those who replace an object at the same time do so one after the other, and the last one stays.
"""

from __future__ import annotations

import os
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import choice, token_hex
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.nats.client.events import ChunksLeft
from trunkline.nats.client.jetstream.chunks import ObjectReader, cut
from trunkline.nats.client.jetstream.object_records import Replacement, find_info, unless_object
from trunkline.nats.client.jetstream.pipeline import Pipeline
from trunkline.nats.client.jetstream.watching import Watch
from trunkline.nats.errors import (
    BadLink,
    BucketMissing,
    NatsError,
    ObjectMissing,
    RequestTimeout,
)
from trunkline.nats.jetstream.buckets import OBJECTS, ObjectStoreConfig, check_bucket
from trunkline.nats.jetstream.configs import ConsumerConfig, DeliverPolicy
from trunkline.nats.jetstream.object_infos import (
    CHUNK_SIZE,
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    digest_text,
    object_info_of,
    subject_of,
)
from trunkline.nats.jetstream.replies import StreamMissing
from trunkline.nats.protocol.headers import Headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from trunkline.nats.client.jetstream.chunks import Source
    from trunkline.nats.client.jetstream.context import JetStream
    from trunkline.nats.client.jetstream.message import JetStreamMessage
    from trunkline.nats.jetstream.replies import StreamInfo

#: Bytes of chunks that wait for their acknowledgements, and how many chunks that are at most.
WINDOW: Final = 4 << 20
MAX_WAITING: Final = 64
#: Links that lead to links: other clients may make them.
MAX_LINKS: Final = 8
#: Seconds that may pass until what is left of a failed attempt is removed, or given up.
CLEAN_UP: Final = 2.0

_NUID: Final = ascii_letters + digits


@dataclass(frozen=True, slots=True)
class ObjectStoreStatus:
    config: ObjectStoreConfig
    #: Bytes, with what is known of the objects.
    size: int
    is_sealed: bool
    info: StreamInfo


class ObjectStore:
    """A bucket of objects; `ObjectStores` makes one."""

    def __init__(self, js: JetStream, bucket: str) -> None:
        self.bucket = bucket
        self._js = js
        self._stream = OBJECTS + bucket

    # Objects

    async def put(
        self,
        name: str,
        source: Source,
        *,
        description: str = "",
        headers: Headers | Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> ObjectInfo:
        """Store bytes, what an asynchronous iterator gives, or a file (a path that is no text) in the place of what has
        this name. `chunk_size` is in bytes, and no more than the server's `max_payload`. The time of the result is
        that of this machine's clock, as the server tells its own only to who asks for what is known of the object.

        Raises:
            ApiError: the store refuses it, as it is full or sealed. What had this name stays.
            NoResponders: the store is gone.
            RequestTimeout, NatsError: not all was acknowledged. What had this name stays, unless the very last
                acknowledgement is missing.
            TypeError: the source is none; text, say, which is no path.
        """
        if chunk_size < 1:
            raise ValueError(f"chunks of {chunk_size} bytes")
        subject_of(self.bucket, name)
        chunk_size = min(chunk_size, self._js.client.server.get("max_payload", chunk_size))
        info = ObjectInfo(
            name=name,
            bucket=self.bucket,
            nuid=_nuid(),
            description=description,
            headers=headers if isinstance(headers, Headers) else Headers(headers or {}),
            metadata=metadata or {},
            options=ObjectOptions(chunk_size=chunk_size),
        )
        replacement = Replacement(self._js, self.bucket, name)
        try:
            info = await self._put_chunks(info, source, chunk_size)
            before = await replacement.run(lambda _: info)
        except BaseException:
            if not replacement.is_in_doubt:
                await self._remove_chunks(info)
            raise
        await self._remove_chunks(before)
        return replacement.info

    async def _put_chunks(self, info: ObjectInfo, source: Source, chunk_size: int) -> ObjectInfo:
        subject = info.chunk_subject
        digest, size, chunks = sha256(), 0, 0
        with Pipeline(self._js, max(1, min(MAX_WAITING, WINDOW // chunk_size))) as pipeline:
            try:
                async with aclosing(cut(source, chunk_size)) as pieces:
                    async for chunk in pieces:
                        await pipeline.publish(subject, chunk)
                        digest.update(chunk)
                        size += len(chunk)
                        chunks += 1
                await pipeline.finish()
            except BaseException:  # those on their way would come behind their removal
                with trio.move_on_after(CLEAN_UP, shield=True), suppress(NatsError, trio.EndOfChannel):
                    await pipeline.settle()
                raise
        return replace(info, size=size, chunks=chunks, digest=digest_text(digest.digest()))

    async def _remove_chunks(self, info: ObjectInfo | None) -> None:
        """Nobody can read them any more."""
        if info is None or info.is_deleted or not info.nuid:
            return
        failure: NatsError = RequestTimeout(f"no answer within {CLEAN_UP:g} s")
        with trio.move_on_after(CLEAN_UP, shield=True):
            try:
                await self._js.purge_stream(self._stream, subject=info.chunk_subject)
            except NatsError as error:
                failure = error
            else:
                return
        self._js.client.tell(ChunksLeft(info.chunk_subject, failure))

    async def get(self, name: str) -> bytes:
        """All of an object, in memory. Raises as `open` and its reader do."""
        async with self.open(name) as reader:
            return b"".join([chunk async for chunk in reader])

    async def get_file(self, name: str, path: os.PathLike[str] | str) -> ObjectInfo:
        """Write an object to a file, which takes the place of one that is there when all is written and found right.
        Raises as `open` and its reader do, and `OSError`."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{token_hex(8)}")
        async with self.open(name) as reader:
            try:
                async with await trio.open_file(part, "xb") as file:
                    async for chunk in reader:
                        await file.write(chunk)
                    await file.flush()
                    await trio.to_thread.run_sync(os.fsync, file.fileno())
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        return reader.info

    @asynccontextmanager
    async def open(self, name: str) -> AsyncGenerator[ObjectReader]:
        """Read an object in chunks: `async with store.open("film") as reader: async for chunk in reader:`. A link is
        followed.

        Raises:
            ObjectMissing: there is none, or it is deleted.
            BadLink: it is a link to a bucket.
        """
        info = await self._followed(name)
        if not info.chunks:
            yield ObjectReader(info, None)
            return
        stream = OBJECTS + info.bucket
        config = ConsumerConfig(filter_subject=info.chunk_subject)
        async with self._js.subscribe_ordered(stream=stream, config=config) as subscription:
            yield ObjectReader(info, Watch(self._js, subscription, _payload))

    async def _followed(self, name: str) -> ObjectInfo:
        bucket, wanted = self.bucket, name
        for _ in range(MAX_LINKS):
            info, _ = await find_info(self._js, bucket, wanted, direct=True)
            if info is None or info.is_deleted:
                raise ObjectMissing(f"{bucket} has no object {wanted!r}")
            if info.link is None:
                return info
            bucket, wanted = info.link.bucket, info.link.name
            if not wanted:
                raise BadLink(f"{info.name!r} of {info.bucket} is a link to the bucket {bucket}, and no object")
        raise BadLink(f"{name!r} of {self.bucket} is a link to a link, {MAX_LINKS} times and more")

    async def delete(self, name: str) -> None:
        """An object that is deleted already is no error, nor is a link.

        Raises:
            ObjectMissing: there never was one.
            ApiError: the store refuses it, as it is sealed.
            RequestTimeout: no answer came. It may be deleted.
        """

        def deleted(before: ObjectInfo | None) -> ObjectInfo:
            if before is None:
                raise ObjectMissing(f"{self.bucket} has no object {name!r}")
            return replace(before, is_deleted=True, size=0, chunks=0, digest="")

        before = await Replacement(self._js, self.bucket, name).run(deleted)
        await self._remove_chunks(before)

    # What is known of them

    async def info(self, name: str, *, deleted: bool = False) -> ObjectInfo:
        """Of an object, or of a link itself; with `deleted` also of one that is deleted. In a cluster a server may
        answer that does not know yet of the very last change.

        Raises:
            ObjectMissing: there is none.
        """
        info, _ = await find_info(self._js, self.bucket, name, direct=True)
        if info is None or info.is_deleted and not deleted:
            raise ObjectMissing(f"{self.bucket} has no object {name!r}")
        return info

    async def update(
        self,
        name: str,
        *,
        new_name: str = "",
        description: str | None = None,
        headers: Headers | Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change what is known of an object or a link, and nothing that is not given. One that gets a new name has both
        for a moment; who replaces or deletes it by its old name just then removes its chunks, too.

        Raises:
            ObjectMissing: there is none.
            ObjectExists: there is another one with the new name.
        """

        def changed(before: ObjectInfo | None) -> ObjectInfo:
            if before is None or before.is_deleted:
                raise ObjectMissing(f"{self.bucket} has no object {name!r}")
            said: dict[str, Any] = {"description": description, "metadata": metadata}
            if headers is not None:
                said["headers"] = headers if isinstance(headers, Headers) else Headers(headers)
            return replace(before, **{key: value for key, value in said.items() if value is not None})

        if not new_name or new_name == name:
            replacement = Replacement(self._js, self.bucket, name)
            await replacement.run(changed)
            return replacement.info
        old, sequence = await find_info(self._js, self.bucket, name)
        info = replace(changed(old), name=new_name)
        replacement = Replacement(self._js, self.bucket, new_name)
        await replacement.run(lambda before: unless_object(before, info))
        with trio.CancelScope(shield=True):  # or it would have two names
            # up to what was renamed: somebody may have stored another object behind it
            await self._js.purge_stream(self._stream, subject=subject_of(self.bucket, name), before=sequence + 1)
        return replacement.info

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """A link to an object of this bucket or another one.

        Raises:
            BadLink: the object is deleted, or a link itself.
            ObjectExists: there is an object of this name, which is no link.
        """
        if target.is_deleted or target.link is not None:
            what = "is deleted" if target.is_deleted else "is a link itself"
            raise BadLink(f"{target.name!r} of {target.bucket} {what}")
        return await self._add_link(name, ObjectLink(bucket=target.bucket, name=target.name))

    async def add_bucket_link(self, name: str, bucket: str) -> ObjectInfo:
        """A link to a bucket.

        Raises:
            ObjectExists: there is an object of this name, which is no link.
        """
        check_bucket(bucket)
        return await self._add_link(name, ObjectLink(bucket=bucket))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=_nuid(), options=ObjectOptions(link=link))
        replacement = Replacement(self._js, self.bucket, name)
        await replacement.run(lambda before: unless_object(before, info))
        return replacement.info

    # All of them

    async def list(self) -> list[ObjectInfo]:
        """What is known of all objects and links."""
        found: dict[str, ObjectInfo] = {}
        async with self.watch() as watch:
            async for info in watch.initial():
                found[info.name] = info
        return [info for info in found.values() if not info.is_deleted]

    @asynccontextmanager
    async def watch(
        self, *, updates_only: bool = False, ignore_deletes: bool = False
    ) -> AsyncGenerator[Watch[ObjectInfo]]:
        """What is known of all objects, and then each change: `async with store.watch() as watch: async for info in
        watch:`."""
        policy = DeliverPolicy.NEW if updates_only else DeliverPolicy.LAST_PER_SUBJECT
        config = ConsumerConfig(deliver_policy=policy, filter_subject=f"$O.{self.bucket}.M.>")

        def read(message: JetStreamMessage) -> ObjectInfo | None:
            info = object_info_of(message.payload, message.origin.time)
            return None if ignore_deletes and info.is_deleted else info

        async with self._js.subscribe_ordered(stream=self._stream, config=config) as subscription:
            yield Watch(self._js, subscription, read, updates_only=updates_only)

    async def seal(self) -> None:
        """Nothing can be changed any more.

        Raises:
            BucketMissing: the store is gone.
        """
        found = await _info(self._js, self.bucket)
        await self._js.update_stream(replace(found.config, sealed=True))

    async def status(self) -> ObjectStoreStatus:
        """
        Raises:
            BucketMissing: the store is gone.
        """
        return _status(await _info(self._js, self.bucket))


class ObjectStores:
    """The object stores of an account: `ObjectStores(client.jetstream())`."""

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def create(self, config: ObjectStoreConfig) -> ObjectStore:
        """One that is there already with this configuration is no error.

        Raises:
            NameTaken: it is there with another one.
            NotSupported: the server does not know all that was asked for; nothing was created.
            BadSubject: it is no name of a bucket.
        """
        await self._js.create_stream(config.stream())
        return ObjectStore(self._js, config.bucket)

    async def update(self, config: ObjectStoreConfig) -> ObjectStore:
        """
        Raises:
            BucketMissing: there is none.
            NotSupported: the server does not know all that was asked for. What it knows is changed.
            ApiError: the store cannot become that.
        """
        found = (await _info(self._js, config.bucket)).config
        wanted = replace(config.stream(), allow_direct=found.allow_direct, unknown=found.unknown)
        await self._js.update_stream(wanted)
        return ObjectStore(self._js, config.bucket)

    async def open(self, bucket: str) -> ObjectStore:
        """One that is there.

        Raises:
            BucketMissing: it is not.
        """
        await _info(self._js, bucket)
        return ObjectStore(self._js, bucket)

    async def delete(self, bucket: str) -> None:
        """With all that is in it.

        Raises:
            BucketMissing: there is none.
        """
        await _info(self._js, bucket)
        await self._js.delete_stream(OBJECTS + bucket)

    async def list(self) -> list[ObjectStoreStatus]:
        """All that there are."""
        infos = await self._js.streams("$O.*.C.>")
        return [_status(info) for info in infos if info.config.name.startswith(OBJECTS)]


async def _info(js: JetStream, bucket: str) -> StreamInfo:
    check_bucket(bucket)
    try:
        return await js.stream(OBJECTS + bucket)
    except StreamMissing as error:
        raise BucketMissing(f"{bucket}: {error}") from error


def _status(info: StreamInfo) -> ObjectStoreStatus:
    return ObjectStoreStatus(ObjectStoreConfig.of(info.config), info.state.bytes, info.config.sealed, info)


def _payload(message: JetStreamMessage) -> bytes:
    return message.payload


def _nuid() -> str:
    return "".join(choice(_NUID) for _ in range(22))
