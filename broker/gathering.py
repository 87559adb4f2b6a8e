"""What one end of a turn has gathered for the store: it is stored as a whole, and those who wait for it are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.stored import StoredPublication
    from trunkline.store import WriteBatch


class Gathering:
    __slots__ = ("batch", "number", "unsafe", "waiting")

    def __init__(
        self,
        number: int,
        batch: WriteBatch,
        unsafe: dict[StoredPublication, None],
        waiting: list[Callable[[], None]],
    ) -> None:
        self.number = number
        self.batch = batch
        #: Publications that wait for it, and who else does.
        self.unsafe = unsafe
        self.waiting = waiting

    def take_in(self, later: Gathering) -> None:
        """Be stored together with the next one."""
        self.number = later.number
        self.batch.add(later.batch)
        self.unsafe |= later.unsafe
        self.waiting += later.waiting
