"""Buckets of keys with values, in streams (ADR-8, ADR-48)."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trunkline.nats.client.jetstream.watching import Watch
from trunkline.nats.errors import BucketMissing, KeyExists, KeyMissing, NotSupported, WrongRevision
from trunkline.nats.jetstream.buckets import KEY_VALUES, KeyValueConfig, check_bucket
from trunkline.nats.jetstream.configs import ConsumerConfig, DeliverPolicy
from trunkline.nats.jetstream.entries import (
    OPERATION,
    ROLLUP,
    ROLLUP_SUBJECT,
    Entry,
    Operation,
    check_key,
    check_keys,
    operation_of,
)
from trunkline.nats.jetstream.replies import ApiError, MessageMissing, StreamMissing, WrongLast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trunkline.nats.client.jetstream.context import JetStream
    from trunkline.nats.client.jetstream.message import JetStreamMessage
    from trunkline.nats.jetstream.configs import StreamConfig
    from trunkline.nats.jetstream.replies import StreamInfo

_OWN_DOMAIN: Final = "$JS.API"
_DELETE: Final = {OPERATION: Operation.DELETE.value}
_PURGE: Final = {OPERATION: Operation.PURGE.value, ROLLUP: ROLLUP_SUBJECT}
#: What a server says that ignores several filters, and finds none.
_NO_FILTER: Final = 10094


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    config: KeyValueConfig
    #: With those before the last ones of their keys.
    values: int
    #: Bytes.
    size: int
    info: StreamInfo


class KeyValue:
    """A bucket of keys with values; `KeyValues` makes one.

    Keys are checked before the server is asked: all methods raise `BadSubject` for what is none.
    """

    def __init__(self, js: JetStream, config: StreamConfig) -> None:
        self.bucket = config.name.removeprefix(KEY_VALUES)
        self._js = js
        self._config = config
        self._prefix = f"$KV.{self.bucket}."
        self._write_prefix = _through(js, self._prefix)
        if config.mirror is not None:  # it has the subjects of its origin, and takes nothing itself
            self._prefix = f"$KV.{config.mirror.name.removeprefix(KEY_VALUES)}."
            external = config.mirror.external
            api = external.api if external is not None else ""
            self._write_prefix = f"{api}.{self._prefix}" if api else _through(js, self._prefix)

    # Values

    async def get(self, key: str, revision: int | None = None) -> Entry:
        """The last value of a key, or that of a revision. In a cluster a server may answer that does not know yet of
        the very last one.

        Raises:
            KeyMissing: there is none, or it was deleted.
        """
        found = await self._find(key, revision, direct=self._config.allow_direct)
        if found.operation is not Operation.PUT:
            raise KeyMissing(f"{key!r} was deleted, with revision {found.revision}")
        return found

    async def put(self, key: str, value: bytes) -> int:
        """Its revision.

        Raises:
            ApiError: the bucket refuses it, as it is full, or the value is too large.
            NoResponders: the bucket is gone.
            RequestTimeout: no answer came. The value may have been taken.
        """
        return await self._publish(key, value)

    async def create(self, key: str, value: bytes, *, ttl: float | None = None) -> int:
        """A value of a key that has none, or was deleted. It is gone after `ttl` seconds, 1 at least. Otherwise as
        `put`.

        Raises:
            KeyExists: it has one.
            NotSupported: keys have no TTL of their own, by the configuration of the bucket.
        """
        if ttl is not None:
            await self._check_ttl()
        try:
            return await self._publish(key, value, expected=0, ttl=ttl)
        except WrongRevision as refusal:
            error = refusal
        try:
            last = await self._find(key)
        except KeyMissing:  # it has gone meanwhile
            expected = 0
        else:
            if last.operation is Operation.PUT:
                raise KeyExists(str(error)) from error
            expected = last.revision
        try:
            return await self._publish(key, value, expected=expected, ttl=ttl)
        except WrongRevision as refusal:
            raise KeyExists(str(refusal)) from refusal

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """A value in the place of the one of this revision. Otherwise as `put`.

        Raises:
            WrongRevision: it is not the last one.
        """
        return await self._publish(key, value, expected=revision)

    async def delete(self, key: str, *, revision: int | None = None) -> int:
        """Mark a key as deleted; its values before stay in its history. With a `revision` only if that is the last one.
        Otherwise as `put`.

        Raises:
            WrongRevision: it is not the last one.
        """
        return await self._publish(key, expected=revision, headers=_DELETE)

    async def purge(self, key: str, *, revision: int | None = None, ttl: float | None = None) -> int:
        """Remove all values of a key, and mark it as deleted; the mark is gone after `ttl` seconds. Otherwise as
        `delete`.

        Raises:
            NotSupported: marks have no TTL, by the configuration of the bucket.
        """
        if ttl is not None:
            await self._check_ttl()
        return await self._publish(key, expected=revision, headers=_PURGE, ttl=ttl)

    async def purge_deletes(self, *, before: float | None = None) -> int:
        """Remove all of the keys that are deleted, with their marks; of those that were deleted later than this moment,
        in seconds since the epoch, the marks stay. How many keys there were."""
        async with self.watch(meta_only=True) as watch:
            deleted = [entry async for entry in watch.initial() if entry.operation is not Operation.PUT]
        for entry in deleted:
            is_old = before is None or entry.created < before
            # up to the mark: somebody may have put a value behind it
            first = entry.revision + 1 if is_old else entry.revision
            await self._js.purge_stream(self._config.name, subject=self._prefix + entry.key, before=first)
        return len(deleted)

    # Many of them

    async def keys(self, *patterns: str) -> list[str]:
        """All keys that have a value, or those that match one of the patterns. For a bucket with more keys than there
        is room for: `watch(ignore_deletes=True, meta_only=True)`, and its `initial()`."""
        found: dict[str, None] = {}
        async with self.watch(*patterns, meta_only=True) as watch:
            async for entry in watch.initial():
                if entry.operation is Operation.PUT:
                    found[entry.key] = None
                else:
                    found.pop(entry.key, None)
        return list(found)

    async def history(self, key: str) -> list[Entry]:
        """All that the bucket has of a key, deletions among it, from the oldest on.

        Raises:
            KeyMissing: it has nothing of it.
        """
        check_key(key)
        async with self.watch(key, include_history=True) as watch:
            found = [entry async for entry in watch.initial()]
        if not found:
            raise KeyMissing(f"{self.bucket} has nothing of {key!r}")
        return found

    @asynccontextmanager
    async def watch(
        self,
        *patterns: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from: int | None = None,
    ) -> AsyncGenerator[Watch[Entry]]:
        """The last values of all keys, or of those that match one of the patterns, and then each change: `async with
        bucket.watch("lamps.>") as watch: async for entry in watch:`. In place of the last values it begins with all
        that there are (`include_history`), with what has this revision or a later one (`resume_from`), or with none
        (`updates_only`). With `meta_only` the values are left out.

        Raises:
            ValueError: it is to begin at several places, or with no revision. BadSubject, which is one: a pattern
                is none.
            NotSupported: there are several patterns, which servers before 2.10 do not know.
            ApiError: the server refuses it, as the patterns overlap, or the bucket is gone.
        """
        if sum((include_history, updates_only, resume_from is not None)) > 1:
            raise ValueError("a watch begins with all values, with updates, or with a revision")
        if resume_from is not None and resume_from < 1:
            raise ValueError(f"resume_from is {resume_from}, and revisions begin with 1")
        for pattern in patterns:
            check_keys(pattern)
        policy = DeliverPolicy.LAST_PER_SUBJECT
        if include_history:
            policy = DeliverPolicy.ALL
        elif updates_only:
            policy = DeliverPolicy.NEW
        elif resume_from is not None:
            policy = DeliverPolicy.BY_START_SEQUENCE
        filters = tuple([self._prefix + pattern for pattern in patterns or (">",)])
        is_one = len(filters) == 1
        config = ConsumerConfig(
            deliver_policy=policy,
            start_sequence=resume_from or 0,
            filter_subject=filters[0] if is_one else "",
            filter_subjects=() if is_one else filters,
            headers_only=meta_only,
        )

        def read(message: JetStreamMessage) -> Entry | None:
            entry = self._entry(message)
            return None if ignore_deletes and entry.operation is not Operation.PUT else entry

        async with AsyncExitStack() as stack:
            try:
                subscription = await stack.enter_async_context(
                    self._js.subscribe_ordered(stream=self._config.name, config=config)
                )
            except ApiError as error:
                if error.err_code == _NO_FILTER:
                    raise NotSupported(f"this server knows no filter of several subjects: {error}") from error
                raise
            yield Watch(self._js, subscription, read, updates_only=updates_only)

    async def status(self) -> KeyValueStatus:
        """
        Raises:
            BucketMissing: it is gone.
        """
        return _status(await _info(self._js, self.bucket))

    # Messages

    async def _find(self, key: str, revision: int | None = None, *, direct: bool = False) -> Entry:
        check_key(key)
        subject, stream = self._prefix + key, self._config.name
        try:
            if revision is None:
                found = await self._js.get(stream, last=subject, direct=direct)
            else:
                found = await self._js.get(stream, revision, direct=direct)
        except MessageMissing:
            raise KeyMissing(f"{self.bucket} has no value of {key!r}") from None
        if found.subject != subject:
            raise KeyMissing(f"revision {revision} of {self.bucket} is not one of {key!r}")
        operation = operation_of(found.headers)
        return Entry(self.bucket, key, found.payload, found.sequence, found.time, 0, operation)

    def _entry(self, message: JetStreamMessage) -> Entry:
        origin = message.origin
        return Entry(
            self.bucket,
            message.subject.removeprefix(self._prefix),
            message.payload,
            origin.stream_sequence,
            origin.time,
            origin.pending,
            operation_of(message.headers),
        )

    async def _publish(
        self,
        key: str,
        value: bytes = b"",
        *,
        expected: int | None = None,
        headers: dict[str, str] | None = None,
        ttl: float | None = None,
    ) -> int:
        check_key(key)
        subject = self._write_prefix + key
        try:
            ack = await self._js.publish(
                subject, value, headers=headers, expected_last_subject_sequence=expected, ttl=ttl
            )
        except WrongLast as error:
            raise WrongRevision(f"{key!r}: {error}") from error
        return ack.sequence

    async def _check_ttl(self) -> None:
        """A server before 2.11 would ignore it in silence."""
        if not self._config.allow_message_ttl:
            self._config = (await _info(self._js, self.bucket)).config
        if not self._config.allow_message_ttl:
            raise NotSupported(f"{self.bucket}: keys have a TTL of their own in buckets with limit_marker_ttl only")


class KeyValues:
    """The buckets of an account: `KeyValues(client.jetstream())`."""

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def create(self, config: KeyValueConfig) -> KeyValue:
        """One that is there already with this configuration is no error.

        Raises:
            NameTaken: it is there with another one.
            NotSupported: the server does not know all that was asked for, or the origin of a mirror allows no direct
                answers, so that the mirror would give none; nothing was created.
            ValueError: the configuration is not possible.
        """
        await self._check_origin(config)
        return KeyValue(self._js, (await self._js.create_stream(config.stream())).config)

    async def _check_origin(self, config: KeyValueConfig) -> None:
        """Of a mirror (ADR-8, Creation of Mirrors), if it can be asked. One that is missing is the server's matter."""
        if config.mirror is None or config.mirror.external is not None:
            return
        name = config.mirror.name.removeprefix(KEY_VALUES)
        with suppress(BucketMissing):
            if not (await _info(self._js, name)).config.allow_direct:
                raise NotSupported(f"{config.bucket}: its origin {name} allows no direct answers (allow_direct)")

    async def update(self, config: KeyValueConfig) -> KeyValue:
        """
        Raises:
            BucketMissing: there is none.
            NotSupported: the server does not know all that was asked for. What it knows is changed.
            ValueError, ApiError: the configuration is not possible, or the bucket cannot become that.
        """
        wanted = config.stream()
        found = (await _info(self._js, config.bucket)).config
        # whoever administers the server may forbid direct answers (ADR-8, Buckets)
        wanted = replace(wanted, allow_direct=found.allow_direct, unknown=found.unknown)
        return KeyValue(self._js, (await self._js.update_stream(wanted)).config)

    async def open(self, bucket: str) -> KeyValue:
        """One that is there.

        Raises:
            BucketMissing: it is not.
        """
        return KeyValue(self._js, (await _info(self._js, bucket)).config)

    async def delete(self, bucket: str) -> None:
        """With all that is in it.

        Raises:
            BucketMissing: there is none.
        """
        await _info(self._js, bucket)
        await self._js.delete_stream(KEY_VALUES + bucket)

    async def list(self) -> list[KeyValueStatus]:
        """All that there are, but mirrors."""
        infos = await self._js.streams("$KV.*.>")
        return [_status(info) for info in infos if _is_bucket(info.config)]


def _through(js: JetStream, subject: str) -> str:
    """The subject by which a value reaches a bucket of the domain that is asked: servers have such a mapping for keys,
    and none for objects."""
    return subject if js.prefix == _OWN_DOMAIN else f"{js.prefix}.{subject}"


async def _info(js: JetStream, bucket: str) -> StreamInfo:
    check_bucket(bucket)
    try:
        info = await js.stream(KEY_VALUES + bucket)
    except StreamMissing as error:
        raise BucketMissing(f"{bucket}: {error}") from error
    if not _is_bucket(info.config):
        raise BucketMissing(f"the stream {info.config.name} is no bucket: it keeps all messages of a subject")
    return info


def _is_bucket(config: StreamConfig) -> bool:
    return config.name.startswith(KEY_VALUES) and config.max_messages_per_subject > 0


def _status(info: StreamInfo) -> KeyValueStatus:
    return KeyValueStatus(KeyValueConfig.of(info.config), info.state.messages, info.state.bytes, info)
