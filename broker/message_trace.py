"""Where each message went: what became of it for every subscriber, step by step.

All of it is learned from hooks. They are registered while a trace is on and gone when it is off, so that what nobody
asks for costs nothing; while it is on, messages that came together are handled one by one. What is kept is bounded by
number and by bytes: the oldest is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from trunkline.broker.guid import from_text, to_text
from trunkline.broker.traced_message import (
    ACKED,
    COMPLETED,
    DELIVERED,
    DROPPED,
    FAULT,
    NO_SUBSCRIBERS,
    QUEUED,
    ROUTED,
    MessageRow,
    Outcome,
    Step,
    TracedMessage,
)
from trunkline.hooks.points import (
    DELIVERY_COMPLETED,
    MESSAGE_ACKED,
    MESSAGE_DELIVERED,
    MESSAGE_DROPPED,
    MESSAGE_PUBLISH,
    MESSAGE_QUEUED,
    MESSAGE_ROUTED,
)
from trunkline.hooks.priorities import TRACE
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import matches, parse_shared, validate_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trunkline.config.settings import TraceSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Point
    from trunkline.mqtt.message import Message

#: Reasons for which a message may go no further than its publisher. Some can befall a delivery too.
_BEFORE_ROUTING: Final = frozenset(
    {
        NO_SUBSCRIBERS,
        "not_authorized",
        "hook",
        "receive_maximum",
        "session_ended",
        "await_rel_timeout",
        "payload_too_large",
    }
)
#: Topics of which is remembered whether they are traced.
_TOPICS: Final = 10_000


class MessageTrace:
    """The traced messages of a node. Off until `start`."""

    def __init__(self, hooks: Hooks, wall: Callable[[], float], settings: TraceSettings) -> None:
        """`wall` is the time in seconds since the epoch."""
        self._hooks = hooks
        self._wall = wall
        self._settings = settings
        self._records: dict[int, TracedMessage] = {}
        self._weight = 0
        self._number = 0
        #: Messages with this id or a lower one are from before the trace, or may have been forgotten.
        self._old = 0
        #: The number of the newest message that was published under the trace and forgotten; 0 if none was.
        self.forgotten = 0
        self._topics_known: dict[str, bool] = {}
        self._listeners: list[Callable[[TracedMessage], None]] = []
        self.on = False
        #: What is traced; all messages, if both are empty.
        self.clients: frozenset[str] = frozenset()
        self.topics: tuple[str, ...] = ()
        #: When the trace began, in seconds since the epoch.
        self.since = 0.0

    def __len__(self) -> int:
        return len(self._records)

    # On and off

    def start(self, *, clients: Iterable[str] = (), topics: Iterable[str] = ()) -> None:
        """Begin a trace, in place of the one that is on: of messages that these clients publish or are to get, and of
        those whose topics match one of these filters; of all, if there are neither. What was kept is forgotten.

        Raises:
            ValueError: a topic filter is invalid.
        """
        filters = tuple(map(_plain, topics))
        self.stop()
        self.clear()
        self.clients, self.topics = frozenset(clients), filters
        self.since = self._wall()
        self._old = int(self.since * 1_000_000) << 64
        self._topics_known.clear()
        self.on = True
        for point, callback in self._callbacks():
            self._hooks.add(point, callback, priority=TRACE)

    def stop(self) -> None:
        """End the trace. What it found stays until `start` or `clear`."""
        self.on = False
        for point, callback in self._callbacks():
            self._hooks.remove(point, callback)

    def clear(self) -> None:
        """Forget what was found."""
        self._records.clear()
        self._weight = self.forgotten = 0

    def _callbacks(self) -> Iterator[tuple[Point, Callable[..., None]]]:
        yield MESSAGE_PUBLISH, self._on_publish
        yield MESSAGE_ROUTED, self._on_routed
        yield MESSAGE_QUEUED, self._on_queued
        yield MESSAGE_DELIVERED, self._on_delivered
        yield MESSAGE_ACKED, self._on_acked
        yield DELIVERY_COMPLETED, self._on_completed
        yield MESSAGE_DROPPED, self._on_dropped

    def listen(self, listener: Callable[[TracedMessage], None]) -> None:
        """Have a callable called with each message that something has become of. It must be short, and not raise."""
        self._listeners = [*self._listeners, listener]

    def unlisten(self, listener: Callable[[TracedMessage], None]) -> None:
        """From any thread: a list that is being gone through stays as it is."""
        self._listeners = [other for other in self._listeners if other != listener]

    # What was found

    def records(self) -> list[TracedMessage]:
        """All that is kept, in the order in which it was first heard of."""
        return list(self._records.values())

    def record(self, guid: int) -> TracedMessage | None:
        return self._records.get(guid)

    def message(self, guid: str) -> MessageRow:
        """
        Raises:
            ValueError: this is no message id.
            LookupError: no such message is kept.
        """
        return self._found(guid).row()

    def messages(
        self, *, topic: str = "#", client: str = "", before: str = "", limit: int = 100, scan: int = 10_000
    ) -> tuple[list[MessageRow], str | None]:
        """The next messages before the message id `before`, newest first, and the cursor of the next page; None at the
        end. Only those whose topic matches, and that the client published or was to get.

        It looks at no more than `scan` messages, so a page may be short, even empty, and yet not be the last.

        Raises:
            ValueError: the topic filter or message id is invalid.
        """
        topic = _plain(topic)
        guids = sorted(self._records)
        at = bisect_left(guids, from_text(before)) if before else len(guids)
        rows: list[MessageRow] = []
        for guid in reversed(guids[max(0, at - scan) : at]):
            record = self._records[guid]
            at -= 1
            if (not client or record.concerns(client)) and _matches(topic, record):
                rows.append(record.row())
                if len(rows) == limit:
                    break
        return rows, to_text(guids[at]) if at > 0 else None

    def outcome(self, guid: str, client_id: str) -> Outcome:
        """
        Raises:
            ValueError: this is no message id.
            LookupError: no such message is kept.
        """
        return self._found(guid).outcome(client_id)

    def outcomes(self, guid: str, *, after: str = "", limit: int = 100) -> tuple[list[Outcome], str | None]:
        """What became of a message for the next subscribers behind the client id `after`, in order of client id, and
        the cursor of the next page; None at the end.

        Raises:
            ValueError: this is no message id.
            LookupError: no such message is kept.
        """
        record = self._found(guid)
        following = sorted([client_id for client_id in record.clients if client_id > after])
        page = [record.outcome(client_id) for client_id in following[:limit]]
        return page, following[limit - 1] if len(following) > limit else None

    def steps(self, guid: str) -> tuple[Step, ...]:
        """What became of a message as a whole.

        Raises:
            ValueError: this is no message id.
            LookupError: no such message is kept.
        """
        return self._found(guid).own_steps

    def _found(self, guid: str) -> TracedMessage:
        record = self._records.get(from_text(guid))
        if record is None:
            raise LookupError(f"no message {guid} is kept: it was not traced, or has been forgotten")
        return record

    def lose(self, guid: int, client_id: str) -> None:
        """Note that a test's fault has lost a message on its way to a client; without a client, on its way to all."""
        if (record := self._records.get(guid)) is not None:
            self._add(record, client_id, DROPPED, FAULT)

    # What the hooks tell

    def _on_publish(self, client: ClientInfo, message: Message) -> None:
        if message.guid not in self._records and self._wanted(message):
            self._notify(self._begin(message))

    def _on_routed(self, message: Message, receivers: tuple[str, ...]) -> None:
        record = self._records.get(message.guid)
        whole = self._wanted(message) if record is None else record.whole
        if not whole:
            receivers = tuple([client_id for client_id in receivers if client_id in self.clients])
            if not receivers:
                return
        if record is None:
            record = self._open(message, whole)
        else:
            self._weight += record.take(message, self._settings.payload_bytes)
        record.begun = record.routed = True
        at = self._wall()
        if receivers:
            self._add(record, "", ROUTED, at=at)
            for client_id in receivers:
                self._add(record, client_id, ROUTED, at=at)
        else:
            self._add(record, "", DROPPED, NO_SUBSCRIBERS, at=at)

    def _on_queued(self, client: ClientInfo, message: Message) -> None:
        self._note(client, message, QUEUED)

    def _on_delivered(self, client: ClientInfo, message: Message) -> None:
        self._note(client, message, DELIVERED)

    def _on_acked(self, client: ClientInfo, message: Message) -> None:
        self._note(client, message, ACKED)

    def _on_completed(self, client: ClientInfo, message: Message) -> None:
        self._note(client, message, COMPLETED)

    def _on_dropped(self, client: ClientInfo, message: Message, reason: str) -> None:
        if not self._is_publishers(client, message, reason):
            self._note(client, message, DROPPED, reason)
            return
        record = self._records.get(message.guid)
        if record is None:
            if not self._wanted(message):
                return
            record = self._begin(message)
        if record.reason not in (reason, FAULT):  # that nobody wants it was seen when it was routed
            self._add(record, "", DROPPED, reason)

    def _is_publishers(self, client: ClientInfo, message: Message, reason: str) -> bool:
        """Is it the message itself that was dropped, and not a delivery to the client that published it?"""
        if reason not in _BEFORE_ROUTING or client.client_id != message.publisher:
            return False
        record = self._records.get(message.guid)
        routed = message.guid <= self._old if record is None else record.routed or not record.begun
        return not routed or reason == NO_SUBSCRIBERS

    def _note(self, client: ClientInfo, message: Message, word: str, reason: str = "") -> None:
        record = self._records.get(message.guid)
        if record is None:
            # it was retained or queued before, or forgotten meanwhile
            whole = self._wanted(message)
            if not whole and client.client_id not in self.clients:
                return
            record = self._open(message, whole)
        elif not record.whole and client.client_id not in self.clients:
            return
        self._add(record, client.client_id, word, reason)

    def _wanted(self, message: Message) -> bool:
        """Is a message traced for its own sake?"""
        if message.publisher in self.clients or not (self.clients or self.topics):
            return True
        if not self.topics:
            return False
        topic = message.topic
        known = self._topics_known.get(topic)
        if known is None:
            if len(self._topics_known) >= _TOPICS:
                self._topics_known.clear()
            known = self._topics_known[topic] = any(matches(filter, topic) for filter in self.topics)
        return known

    def _begin(self, message: Message) -> TracedMessage:
        record = self._open(message, whole=True)
        record.begun = True
        return record

    def _open(self, message: Message, whole: bool) -> TracedMessage:
        self._number += 1
        record = self._records[message.guid] = TracedMessage(message, self._number, self._settings.payload_bytes, whole)
        self._weight += record.weight
        self._forget()
        return record

    def _add(self, record: TracedMessage, client_id: str, word: str, reason: str = "", *, at: float = 0.0) -> None:
        if record.steps < self._settings.max_steps:
            weight = record.add(client_id, at or self._wall(), word, reason)
            if record.kept:
                self._weight += weight
                if self._weight > self._settings.max_bytes:
                    self._forget()
        else:
            record.left_out += 1
        self._notify(record)

    def _notify(self, record: TracedMessage) -> None:
        for listener in self._listeners:
            listener(record)

    def _forget(self) -> None:
        """The oldest, until there is room; the newest always has."""
        settings, records = self._settings, self._records
        while len(records) > 1 and (len(records) > settings.max_messages or self._weight > settings.max_bytes):
            gone = records.pop(next(iter(records)))
            gone.kept = False
            self._weight -= gone.weight
            self.forgotten = gone.number if gone.begun else self.forgotten
            self._old = max(self._old, gone.guid)


def _plain(topic_filter: str) -> str:
    """A filter as topics are compared with it.

    Raises:
        ValueError: it is invalid.
    """
    try:
        validate_filter(topic_filter)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    shared = parse_shared(topic_filter)
    return topic_filter if shared is None else shared[1]


def _matches(topic_filter: str, record: TracedMessage) -> bool:
    return topic_filter == "#" or matches(topic_filter, record.topic) or matches(topic_filter, record.published_to)
