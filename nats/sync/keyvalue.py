"""Buckets of keys with values, for any thread. Where nothing else is said, their methods do and raise what those of
`trunkline.nats.client.jetstream` do; `timeout` comes on top of that of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.nats.client.jetstream.keyvalue import KeyValues as TrioKeyValues
from trunkline.nats.sync.watching import Watch

if TYPE_CHECKING:
    from trunkline.actors.context_thread import ContextThread
    from trunkline.nats.client.jetstream.keyvalue import KeyValue as TrioKeyValue
    from trunkline.nats.client.jetstream.keyvalue import KeyValueStatus
    from trunkline.nats.jetstream.buckets import KeyValueConfig
    from trunkline.nats.jetstream.entries import Entry
    from trunkline.nats.sync.jetstream import JetStream


class KeyValue:
    """A bucket of keys with values; `KeyValues` makes one."""

    def __init__(self, values: TrioKeyValue, thread: ContextThread) -> None:
        self.bucket = values.bucket
        self._values = values
        self._thread = thread

    # Values

    def get(self, key: str, revision: int | None = None, *, timeout: float | None = None) -> Entry:
        """The last value of a key, or that of a revision."""
        return self._thread.run(timeout, self._values.get, key, revision)

    def put(self, key: str, value: bytes, *, timeout: float | None = None) -> int:
        """Its revision. After `TimeoutError` the value may have been taken, as with all that change something."""
        return self._thread.run(timeout, self._values.put, key, value)

    def create(self, key: str, value: bytes, *, ttl: float | None = None, timeout: float | None = None) -> int:
        """A value of a key that has none, or was deleted. It is gone after `ttl` seconds, 1 at least."""
        return self._thread.run(timeout, self._values.create, key, value, ttl=ttl)

    def update(self, key: str, value: bytes, revision: int, *, timeout: float | None = None) -> int:
        """A value in the place of the one of this revision."""
        return self._thread.run(timeout, self._values.update, key, value, revision)

    def delete(self, key: str, *, revision: int | None = None, timeout: float | None = None) -> int:
        """Mark a key as deleted; its values before stay in its history."""
        return self._thread.run(timeout, self._values.delete, key, revision=revision)

    def purge(
        self, key: str, *, revision: int | None = None, ttl: float | None = None, timeout: float | None = None
    ) -> int:
        """Remove all values of a key, and mark it as deleted; the mark is gone after `ttl` seconds."""
        return self._thread.run(timeout, self._values.purge, key, revision=revision, ttl=ttl)

    def purge_deletes(self, *, before: float | None = None, timeout: float | None = None) -> int:
        """Remove all of the keys that are deleted, with their marks; of those that were deleted later than this moment,
        in seconds since the epoch, the marks stay. How many keys there were."""
        return self._thread.run(timeout, self._values.purge_deletes, before=before)

    # Many of them

    def keys(self, *patterns: str, timeout: float | None = None) -> list[str]:
        """All keys that have a value, or those that match one of the patterns."""
        return self._thread.run(timeout, self._values.keys, *patterns)

    def history(self, key: str, *, timeout: float | None = None) -> list[Entry]:
        """All that the bucket has of a key, deletions among it, from the oldest on."""
        return self._thread.run(timeout, self._values.history, key)

    def watch(
        self,
        *patterns: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from: int | None = None,
        timeout: float | None = None,
    ) -> Watch[Entry]:
        """The last values of all keys, or of those that match one of the patterns, and then each change: `with
        bucket.watch("lamps.>") as watch: for entry in watch:`."""
        watching = self._values.watch(
            *patterns,
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            meta_only=meta_only,
            resume_from=resume_from,
        )
        return Watch(watching, self._thread.enter(timeout, watching), self._thread)

    def status(self, *, timeout: float | None = None) -> KeyValueStatus:
        return self._thread.run(timeout, self._values.status)


class KeyValues:
    """The buckets of an account: `KeyValues(client.jetstream())`."""

    def __init__(self, js: JetStream) -> None:
        self._buckets = TrioKeyValues(js.inner)
        self._thread = js.thread

    def create(self, config: KeyValueConfig, *, timeout: float | None = None) -> KeyValue:
        """One that is there already with this configuration is no error."""
        return KeyValue(self._thread.run(timeout, self._buckets.create, config), self._thread)

    def update(self, config: KeyValueConfig, *, timeout: float | None = None) -> KeyValue:
        return KeyValue(self._thread.run(timeout, self._buckets.update, config), self._thread)

    def open(self, bucket: str, *, timeout: float | None = None) -> KeyValue:
        """One that is there."""
        return KeyValue(self._thread.run(timeout, self._buckets.open, bucket), self._thread)

    def delete(self, bucket: str, *, timeout: float | None = None) -> None:
        """With all that is in it."""
        self._thread.run(timeout, self._buckets.delete, bucket)

    def list(self, *, timeout: float | None = None) -> list[KeyValueStatus]:
        """All that there are, but mirrors."""
        return self._thread.run(timeout, self._buckets.list)
