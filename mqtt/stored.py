"""A publication that is kept in a store, once for all entries that refer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class StoredPublication:
    """What messages have in common that came as one publication. They refer to it, whatever becomes of them."""

    __slots__ = ("first_guid", "held", "number", "publication", "references", "waiting", "written")

    def __init__(self, number: int, first_guid: int, publication: Any) -> None:
        #: Its key in the store. Never given twice.
        self.number = number
        #: A message is found in it by the distance of its GUID from this one.
        self.first_guid = first_guid
        #: What is to be written; None when it was.
        self.publication = publication
        #: Is it in the store? From the batch on that holds it.
        self.written = publication is None
        #: Messages of it in the windows and queues of durable sessions, in memory.
        self.held = 0
        #: Entries in the store that refer to it.
        self.references = 0
        #: Called when no durable session can lose it any more.
        self.waiting: list[Callable[[], None]] = []
