"""The new parts of a store while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from trunkline.store import WriteBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.store import Space

#: Bytes of memory that are committed at a time, of all parts together.
BATCH: Final = 16 << 20


class PartFile(Protocol):
    """What is needed of the engine of a new part."""

    def commit(self, batch: WriteBatch) -> None: ...
    def maintain(self) -> None: ...


class NewPart:
    def __init__(self, engine: PartFile, batch_size: int) -> None:
        self._engine = engine
        self._batch = WriteBatch()
        self._batch_size = batch_size
        #: How many sessions it has: each has the next number.
        self.sessions = 0

    def put(self, space: Space, key: bytes, value: bytes) -> None:
        self._batch.put(space, key, value)
        if self._batch.memory >= self._batch_size:
            self.flush()

    def flush(self) -> None:
        batch, self._batch = self._batch, WriteBatch()
        self._engine.commit(batch)
        self._engine.maintain()


class NewParts:
    def __init__(self, engines: Sequence[PartFile], home_of: Callable[[str], int]) -> None:
        """`home_of` gives the number of the part that a client id has its session in."""
        self.all = [NewPart(engine, BATCH // len(engines)) for engine in engines]
        self.home_of = home_of

    def __len__(self) -> int:
        return len(self.all)

    def home(self, client_id: str) -> NewPart:
        return self.all[self.home_of(client_id)]

    def put_in_all(self, space: Space, key: bytes, value: bytes) -> None:
        for part in self.all:
            part.put(space, key, value)

    def flush(self) -> None:
        for part in self.all:
            part.flush()
