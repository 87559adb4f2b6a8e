"""What plugins keep: for each a table of keys and plain values, which the broker's store makes durable.

All of it is in memory, as the bytes that are stored: a value is copied when it is put and when it is read, so nobody
changes what is stored by accident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from sortedcontainers import SortedDict

from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trunkline.store import Row, WriteBatch

PLUGINS: Final = Space("plugins")
#: Between a plugin's name and its key, in the key of a row. No name has one.
_BETWEEN: Final = b"\0"


def row_key(plugin: str, key: str) -> bytes:
    return plugin.encode() + _BETWEEN + key.encode()


def key_in_row(row: bytes) -> tuple[str, str]:
    """Of the key of a row: the plugin, and its own key."""
    plugin, _, key = row.partition(_BETWEEN)
    return plugin.decode(), key.decode()


class PluginStoreFull(ValueError):
    """A plugin has as much in its store as it may have. What was there is there still."""


class PluginCommitter(Protocol):
    """What commits the changes."""

    def change(self, part: PluginStores) -> None: ...
    def after_commit(self, action: Callable[[], None]) -> None: ...


class PluginStore:
    """The table of one plugin. What changes is durable with the broker's next commit, a second later at most."""

    def __init__(self, name: str, stores: PluginStores) -> None:
        self._name = name
        self._stores = stores
        self._values: SortedDict[str, bytes] = SortedDict()
        #: Bytes of all keys and values.
        self.size = 0

    @property
    def now(self) -> float:
        """The store's time, in seconds: moments that are kept are noted in it. It goes on while the broker does not
        run, and corrections of the system's clock do not move it, so it is not the calendar's."""
        return self._stores.now()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        packed = self._values.get(key)
        return default if packed is None else unpack(packed)

    def put(self, key: str, value: Any) -> None:
        """Keep a value: None, bool, int of 64 bits, float, str, bytes, and lists and dicts of these. A tuple comes back
        as a list.

        Raises:
            TypeError, ValueError: it is not such a value.
            PluginStoreFull: there is no room for it (`store.max_plugin_bytes`).
        """
        packed = self._packed(key, value)
        old = self._values.get(key)
        if old == packed:
            return
        size = self.size + len(packed) + (len(key.encode()) if old is None else -len(old))
        limit = self._stores.max_bytes
        if 0 < limit < size > self.size:
            raise PluginStoreFull(
                f"the plugin {self._name} would have {size:,} bytes in its store, and {limit:,} is the limit "
                "(store.max_plugin_bytes)"
            )
        self.size = size
        self._values[key] = packed
        self._stores.note(self._name, key)

    def delete(self, key: str) -> bool:
        """False: there was nothing."""
        old = self._values.pop(key, None)
        if old is None:
            return False
        self.size -= len(key.encode()) + len(old)
        self._stores.note(self._name, key)
        return True

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The keys that begin with this, in order, each with its value. What is put or deleted meanwhile may be
        among them or not."""
        for key in list(self._values.irange(prefix)):
            if not key.startswith(prefix):
                return
            packed = self._values.get(key)
            if packed is not None:
                yield key, unpack(packed)

    async def committed(self) -> None:
        """Wait until all that has changed until now is durable. While the disk is full, say, that is long."""
        await self._stores.committed()

    def all_packed(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._values.items())

    def packed(self, key: str) -> bytes | None:
        """The value as it is stored."""
        return self._values.get(key)

    def restore(self, key: str, packed: bytes) -> None:
        self._values[key] = packed
        self.size += len(key.encode()) + len(packed)

    def _packed(self, key: str, value: Any) -> bytes:
        try:
            key.encode()
            return pack(value)
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{self._name} cannot keep {value!r:.80} as {key!r:.80}: {error}") from None


class PluginStores:
    """Of all plugins, those that are not enabled too. A part of what a commit writes."""

    #: No actor ends when a commit cannot be written.
    owner = None

    def __init__(self, max_bytes: int, now: Callable[[], float], committer: PluginCommitter | None = None) -> None:
        """`max_bytes` is what one plugin may keep; 0 is no limit. `now` gives the store's time. Without a `committer`
        nothing is durable."""
        self.max_bytes = max_bytes
        self.now = now
        self._committer = committer
        self._stores: dict[str, PluginStore] = {}
        self._changed: dict[tuple[str, str], None] = {}

    def of(self, plugin: str) -> PluginStore:
        if plugin not in self._stores:
            self._stores[plugin] = PluginStore(plugin, self)
        return self._stores[plugin]

    def note(self, plugin: str, key: str) -> None:
        """A value was put or deleted."""
        if self._committer is not None:
            if not self._changed:
                self._committer.change(self)
            self._changed[plugin, key] = None

    async def committed(self) -> None:
        stored = trio.Event()
        if self._committer is None:
            stored.set()
        else:
            self._committer.after_commit(stored.set)
        await stored.wait()

    def write(self, batch: WriteBatch) -> None:
        changed, self._changed = self._changed, {}
        for plugin, key in changed:
            row, packed = row_key(plugin, key), self._stores[plugin].packed(key)
            if packed is None:
                batch.delete(PLUGINS, row)
            else:
                batch.put(PLUGINS, row, packed)

    def rows(self) -> Iterator[Row]:
        """All that is kept, as it is stored."""
        for plugin, store in self._stores.items():
            yield from ((row_key(plugin, key), packed) for key, packed in store.all_packed())

    def restore(self, rows: Iterable[Row]) -> None:
        """Take in what was stored, whatever the limit is now."""
        for row, packed in rows:
            plugin, key = key_in_row(row)
            self.of(plugin).restore(key, packed)
