"""The queue of a session as rows in the store, read a page at a time: a start knows only how much there is.

Rows are read in the engine's thread, and messages made of them in that of the loop.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.mqueue import QueueHead
from trunkline.broker.stored_publications import queued_rows, stored_bytes
from trunkline.mqtt.packing import pack, unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.store import Space
from trunkline.store.engine import NUMBER_SIZE, key_of, number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.mqueue import MessageQueue, Queued
    from trunkline.broker.stored_publications import StoredPublications
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.stored import Place, StoredPublication
    from trunkline.router import Target
    from trunkline.store import Engine

    T: TypeAlias = Target[Subscriber]

QUEUES: Final = Space("queues")

#: Rows that are read in one step, and about so many bytes of their publications.
ROWS_AT_ONCE: Final = 256
MAX_PAGE_BYTES: Final = 1 << 18

#: Of runs of which some messages have left the queue: the first message that there was, and the first that there is.
Begun: TypeAlias = "list[tuple[int, int]]"


#: Where nothing waits.
NO_QUEUE: Final[tuple[Begun, QueueHead | None]] = ([], None)


class Run(NamedTuple):
    """Messages in a row, in the queue as in the publication."""

    first: int
    last: int
    stored: StoredPublication


def head_to_row(last_id: int, begun: Begun, head: QueueHead | None) -> bytes:
    """What is one of a kind in a session's window and in its queue."""
    return pack((last_id, begun, head and (head.last, head.byte_size, list(head.lengths.items()))))


def head_from_row(row: bytes) -> tuple[int, Begun, QueueHead | None]:
    """The packet id that was given last, and what `head_to_row` was given besides."""
    last_id, pairs, *rest = unpack(row)  # version 1 did not say how much waits
    begun = [(first, left) for first, left in pairs]
    if not rest or rest[0] is None:
        return last_id, begun, None
    ((last, byte_size, lengths),) = rest
    return last_id, begun, QueueHead(last, byte_size, dict(lengths))


class QueueRow(NamedTuple):
    #: The number of its first message in the queue.
    first: int
    place: Place
    qos: int
    target: Mapping[str, Any]


class Page(NamedTuple):
    rows: list[QueueRow]
    #: Of each of their publications: the bytes, unless they are lost, and what the store says of its rows.
    publications: dict[int, tuple[bytes | None, int]]


class QueueRows:
    """Of one session, and what was made of them."""

    def __init__(
        self,
        session: int,
        head: QueueHead,
        begun: Begun,
        queue: MessageQueue[T],
        target: Callable[[Mapping[str, Any]], T],
        publications: StoredPublications | None,
        epoch: float,
    ) -> None:
        """`session` is its number. Without `publications`, what is read is stored nowhere from now on. `epoch` turns
        node time into that of the store."""
        self.head = head
        self._session = key_of(session)
        self._queue = queue
        self._target = target
        self._publications = publications
        self._epoch = epoch
        self.begun = dict(begun)
        self._read = 0
        #: In order.
        self.entries: list[Queued[T]] = []
        #: The rows, by priority.
        self.runs: dict[int, deque[Run]] = {}
        #: Messages that are not in the queue any more, and why.
        self.gone: list[tuple[Message, DropReason]] = []
        self.lost = 0
        #: Whether the rows have to be written anew: some are lost, or the settings give messages other priorities.
        self.is_mixed = False

    def page(self, engine: Engine) -> Page:
        """The next rows. There are none behind an empty page."""
        low, high = (self._session + key_of(number + 1) for number in (self._read, self.head.last))
        found: list[QueueRow] = []
        publications: dict[int, tuple[bytes | None, int]] = {}
        weight = 0
        for key, value in engine.scan(QUEUES, low, high, limit=ROWS_AT_ONCE):
            row = QueueRow(number_of(key[NUMBER_SIZE:]), *unpack(value))
            number = row.place[0]
            if number not in publications:
                data = stored_bytes(engine, number)
                publications[number] = data, queued_rows(engine, number)
                weight += len(data or b"")
            found.append(row)
            if weight >= MAX_PAGE_BYTES:
                break
        return Page(found, publications)

    def take(self, page: Page, now: float) -> bool:
        """Returns whether there may be more."""
        number, publication = 0, None
        for row in page.rows:
            if row.first <= self._read:
                continue  # another task, of a session that has crashed meanwhile, had begun with it
            if row.place[0] != number:
                number = row.place[0]
                publication = self._made(row.place, *page.publications[number])
            self._read = row.first
            _, first, count, _ = row.place
            if publication is None or not 0 <= first <= publication.count - count:
                self.lost += count
                self.is_mixed = True
            else:
                self._add(row, publication.part(first, first + count), now)
        return bool(page.rows)

    def read_all(self, engine: Engine, now: float) -> None:
        while self.take(self.page(engine), now):
            pass

    def _made(self, place: Place, data: bytes | None, noted: int) -> Publication | None:
        if data is None:
            return None
        publication = publication_from_bytes(data, self._epoch)
        if self._publications is not None:
            number, _, _, entries = place
            publication.stored = self._publications.found(number, publication.guid, entries, noted, in_queue=True)
        return publication

    def _add(self, row: QueueRow, some: Publication, now: float) -> None:
        queue, target = self._queue, self._target(row.target)
        left = self.begun.get(row.first, row.first)
        for number, message in enumerate(some.messages[left - row.first :], left):
            if message.expires_at <= now:  # it would take the place of one that has not expired
                self.gone.append((message, DropReason.EXPIRED))
            else:
                self.entries.append((message, target, row.qos, number))
        priority = queue.priority_of(some.topic)
        self.is_mixed = self.is_mixed or any(queue.priority_of(topic) != priority for topic in some.topics)
        if some.stored is not None:
            self.runs.setdefault(priority, deque()).append(Run(row.first, row.first + some.count - 1, some.stored))
