"""How the entries of backlogs are stored: in the order of their sequence, one row for the messages of a publication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.mqtt.packing import pack, unpack
from trunkline.store import Space
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of

if TYPE_CHECKING:
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.stored import IndexEntry

#: Keyed by the number of the backlog: its filter, how much was ever in it, and its last entry.
FILTERS: Final = Space("filters")
#: Keyed by the number of the backlog and the sequence.
ENTRIES: Final = Space("entries")
#: Where earlier versions had what waits for single sessions, keyed by the number of the session and that of the first
#: message, see `trunkline.broker.former_queues`.
QUEUES: Final = Space("queues")


class Entry(NamedTuple):
    """Messages in a row of one publication."""

    sequence: int
    #: The stored publication, the first of its messages that belongs here, and how many do.
    number: int
    first: int
    length: int
    weight: int
    #: Messages that were ever in the backlog, and their bytes, with these.
    total: int
    total_weight: int
    #: Entries of other backlogs that refer to the same publication.
    others: tuple[IndexEntry, ...] = ()
    #: In the private backlog of a session: with which QoS they are sent, and the target as a plain value. It has no
    #: totals, as its head has them.
    own: tuple[int, dict[str, Any]] | None = None

    def is_in(self, publication: Publication) -> bool:
        """Whether the publication has so many messages."""
        return 0 <= self.first <= publication.count - self.length


class StoredBacklog(NamedTuple):
    """A backlog as it was stored."""

    number: int
    filter: str
    total: int
    total_weight: int
    last: int


def entry_key(backlog: int, sequence: int) -> bytes:
    return key_of(backlog) + key_of(sequence)


def place_of(key: bytes) -> tuple[int, int]:
    """The backlog and the sequence of an entry."""
    return number_of(key), number_of(key[NUMBER_SIZE:])


def entry_to_row(entry: Entry) -> bytes:
    return pack(entry[1:-1] if entry.own is None else entry[1:])


def entry_from_row(key: bytes, row: bytes) -> Entry:
    number, first, length, weight, total, total_weight, others, *own = unpack(row)
    _, sequence = place_of(key)
    others = tuple([(backlog, at) for backlog, at in others])
    return Entry(sequence, number, first, length, weight, total, total_weight, others, *map(tuple, own))


def filter_to_row(found: StoredBacklog) -> bytes:
    return pack(found[1:])


def filter_from_row(key: bytes, row: bytes) -> StoredBacklog:
    return StoredBacklog(number_of(key), *unpack(row))
