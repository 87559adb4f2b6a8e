"""Which worker's start is the latest: each has a term, and a later one has a higher.

A file beside the stores keeps the last one, and how many workers these stores are of. It is locked as the store of a
single process would be, so that nobody has both. A file that is lost does no harm, as a term is no less than the time.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from trunkline.config.store_place import make_store_folder, shard_path, store_path, workers_path
from trunkline.store import StoreCorrupt, StoreUnavailable
from trunkline.store.format import publish, touch
from trunkline.store.lock import FileLock, give_to_owner
from trunkline.store.replacing import finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trunkline.config.config import Config

_logger = logging.getLogger("trunkline.workers")

FORMAT: Final = 1


class StartTerms:
    """Of the workers of one node. Without a store, nothing remembers former terms."""

    def __init__(self, config: Config, count: int, now: Callable[[], float] = time.time) -> None:
        """
        Raises:
            StoreError: the stores are another node's, or of another number of workers.
        """
        self._count = count
        self._now = now
        self._last = 0
        self._path: Path | None = None
        self._lock: FileLock | None = None
        if config.durability(standalone=True) != "memory":
            store = store_path(config.store, config.node).absolute()
            make_store_folder(config.store, store)
            self._lock = FileLock(store)
            try:
                self._last = self._read(store)
            except BaseException:
                self._lock.discard()
                raise
            self._path = workers_path(store)

    def _read(self, store: Path) -> int:
        """The last term."""
        finish(store)
        again = f"divide it anew with `trunkline store reshard {self._count}`"
        if store.exists():
            raise StoreUnavailable(
                f"the store {store} is that of one process, and node.workers is {self._count}: {again}, or start it "
                "with node.workers = 1, or give another store.path"
            )
        recorded = read_workers(workers_path(store))
        if recorded is None:
            if shard_path(store, self._count).exists():
                raise StoreUnavailable(
                    f"there are parts of more than {self._count} workers beside {store}, and "
                    f"{workers_path(store).name}, which would say of how many, is gone: put a backup in their place, "
                    "or give another store.path"
                )
            return 0
        count, last = recorded
        if count != self._count:
            raise StoreUnavailable(
                f"the store {store} is that of {count} workers, and node.workers is {self._count}: {again}, or start "
                f"it with node.workers = {count}, or give another store.path"
            )
        parts = [shard_path(store, number) for number in range(count)]
        missing = [part for part in parts if not part.exists()]
        if len(missing) < count:  # none: the first start failed
            for part in missing:
                _logger.warning("%s, a part of the store, is gone: its worker begins without sessions", part)
        return last

    def next(self) -> int:
        """A term for a start. It is on the disk when this returns, unless that is full: the time will do then.

        Raises:
            OSError: nothing can be written there at all.
        """
        self._last = max(self._last + 1, int(self._now()))
        if self._path is not None:
            try:
                _replace(self._path, content(self._count, self._last))
            except OSError as error:
                if not self._path.exists():
                    raise
                _logger.warning("%s cannot be written: %s", self._path, error.strerror)
        return self._last

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()


def read_workers(path: Path) -> tuple[int, int] | None:
    """How many workers there are, and the last term; None if there is no such file.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        kept: Any = json.loads(path.read_bytes())
        if kept["format"] != FORMAT:
            raise StoreUnavailable(f"{path} was written by a later version")
        return int(kept["workers"]), int(kept["term"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} is damaged: it says how many workers the stores beside it are of") from error


def content(workers: int, term: int) -> str:
    """Of the file: how many workers there are, and the last term."""
    return json.dumps({"format": FORMAT, "workers": workers, "term": term})


def _replace(path: Path, text: str) -> None:
    """In one step, which outlives a power cut."""
    new = path.with_name(f"{path.name}-new")
    touch(new)
    new.write_text(text, encoding="utf-8")
    give_to_owner(new, path)
    publish(new, path)
