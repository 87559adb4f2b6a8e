"""What waits for a session in the backlogs of its filters, as it would be sent: messages of the session alone.

A new part has sessions of several former ones, and a backlog of each for the same filter, with the same messages in
another order. So nobody is behind in a backlog there: what has waited is in the session's queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.broker.backlogs.backlog import is_kept
from trunkline.broker.backlogs.backlogs import MAX_PAGE, MAX_PAGE_BYTES, UNSAID
from trunkline.broker.backlogs.merge import Merge
from trunkline.broker.routes import Subscriber
from trunkline.broker.session.export import target_to_plain
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.mqtt.topics import matches, parse_shared
from trunkline.router.target import combine, make_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trunkline.broker.backlogs.backlogs import StoredPlace
    from trunkline.broker.backlogs.merge import Read
    from trunkline.mqtt.publication import Publication
    from trunkline.router import Options, Target
    from trunkline.store import Engine


class WaitingMessages(NamedTuple):
    """Messages in a row of one publication."""

    #: The stored publication, the first of its messages, and how many they are.
    number: int
    first: int
    length: int
    weight: int
    #: What they are sent with.
    qos: int
    #: As a plain value.
    target: dict[str, Any]


class BehindSession:
    """One that is behind in backlogs."""

    def __init__(
        self,
        client_id: str,
        subscriptions: Mapping[str, Options],
        place: StoredPlace,
        backlogs: Mapping[str, int],
        *,
        upgrade_qos: bool,
    ) -> None:
        """`backlogs` has the number of that of each filter."""
        self._client_id = client_id
        self._upgrade_qos = upgrade_qos
        subscriber = Subscriber(client_id, _nobody, durable=True)
        self._targets = {
            filter: make_target(subscriber, options, serial)
            for serial, (filter, options) in enumerate(subscriptions.items())
            if parse_shared(filter) is None
        }
        self._first, self._done, begins = place
        #: By the number of its backlog each filter, and the last entry that was read of it.
        self._filters: dict[int, str] = {}
        self._read: list[tuple[int, int]] = []
        self._elsewhere: list[str] = []
        for filter in self._targets:
            begin = begins.get(filter, UNSAID) if is_kept(filter, subscriptions[filter]) else None
            if begin is None:
                self._elsewhere.append(filter)
            elif filter in backlogs:
                self._filters[backlogs[filter]] = filter
                self._read.append((backlogs[filter], max(begin[0], self._first - 1)))
        self._combined: dict[tuple[str, ...], Target[Subscriber]] = {}

    def waiting(self, engine: Engine) -> Iterator[WaitingMessages]:
        """In the order in which they came."""
        merge, woken = Merge(), self._read
        while woken or not merge.drained:
            reads = merge.page(engine, woken, MAX_PAGE, MAX_PAGE_BYTES)
            woken = []
            for read in reads:
                if read.data is not None:
                    yield from self._as_sent(read, publication_from_bytes(read.data, 0.0))

    def _as_sent(self, read: Read, stored: Publication) -> Iterator[WaitingMessages]:
        entry = read.entry
        done = self._done if entry.sequence == self._first else 0
        if done >= entry.length or not entry.is_in(stored):
            return
        publication = stored.part(entry.first + done, entry.first + entry.length)
        target = self._target(read, publication.topic)
        if target.no_local and publication.publisher == self._client_id:
            if target.own is None:
                return
            target = target.own
        qos = target.qos if self._upgrade_qos else min(publication.qos, target.qos)
        weight = entry.weight * publication.count // entry.length
        yield WaitingMessages(
            entry.number,
            entry.first + done,
            publication.count,
            weight,
            qos or _LEAST_QOS,
            target_to_plain(target),
        )

    def _target(self, read: Read, topic: str) -> Target[Subscriber]:
        """Of all its subscriptions that match."""
        filters = (
            *[self._filters[number] for number, _ in read.totals],
            *[filter for filter in self._elsewhere if matches(filter, topic)],
        )
        if filters not in self._combined:
            self._combined[filters] = combine([self._targets[filter] for filter in filters])
        return self._combined[filters]


#: A queue in the store has no messages of QoS 0: one waited in a backlog while `session.upgrade_qos` was set.
_LEAST_QOS: Final = 1


def _nobody(message: object) -> None:
    """Takes nothing: there is no session."""
