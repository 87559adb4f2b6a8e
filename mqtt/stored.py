"""A publication that is kept in a store, once for all entries that refer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

#: An entry of a backlog: the number of the backlog, and the place in the sequence.
IndexEntry: TypeAlias = tuple[int, int]

#: Where messages are stored: the number of the publication, the first of its messages and how many they are, and the
#: entries of backlogs that refer to it, too.
Place: TypeAlias = tuple[int, int, int, tuple[IndexEntry, ...]]


class StoredPublication:
    """What messages have in common that came as one publication. They refer to it, whatever becomes of them."""

    __slots__ = (
        "__weakref__",
        "entries",
        "first_guid",
        "noted",
        "number",
        "pins",
        "publication",
        "queued",
        "references",
        "waiting",
        "written",
    )

    def __init__(self, number: int, first_guid: int, publication: Any) -> None:
        #: Its key in the store. Never given twice.
        self.number = number
        #: A message is found in it by the distance of its GUID from this one.
        self.first_guid = first_guid
        #: What is to be written; None when it was.
        self.publication = publication
        #: Is it in the store? From the batch on that holds it.
        self.written = publication is None
        #: Messages of it in the windows and queues of durable sessions, in memory: while there are any, whoever
        #: published it waits for the commit.
        self.pins = 0
        #: Rows of sessions in the store that refer to it, how many of them are those of queues, and what the store says
        #: of the latter; 0: nothing.
        self.references = self.queued = self.noted = 0
        #: Entries of backlogs that refer to it.
        self.entries: tuple[IndexEntry, ...] = ()
        #: Called when no durable session can lose it any more.
        self.waiting: list[Callable[[], None]] = []

    def place(self, guid: int, count: int) -> Place:
        """Of `count` messages in a row, the first of which has this GUID."""
        return self.number, guid - self.first_guid, count, self.entries
