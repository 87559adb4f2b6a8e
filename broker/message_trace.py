"""Traces messages: what happened to each message for every subscriber, step by step.

The trace gets its data from hooks. They are registered only while a trace is on, so that it costs nothing while it is
off; while it is on, messages that came together are handled one by one. The number of messages and their bytes are
limited: the oldest are forgotten.
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

    from trunkline.config.node_settings import TraceSettings
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Point
    from trunkline.mqtt.message import Message

#: Reasons for which a message is dropped before it is routed. Some apply to deliveries too.
_BEFORE_ROUTING: Final = frozenset(
    {
        NO_SUBSCRIBERS,
        "not_authorized",
        "hook",
        "receive_maximum",
        "session_ended",
        "await_rel_timeout",
        "payload_too_large",
        "stream_full",
    }
)
#: Number of topics for which it is remembered whether they are traced.
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
        #: Messages with this id or a lower one were published before the trace, or may have been forgotten.
        self._old = 0
        #: The number of the newest message that was published under the trace and forgotten; 0 if none was.
        self.forgotten = 0
        self._topics_known: dict[str, bool] = {}
        self._listeners: list[Callable[[TracedMessage], None]] = []
        self.on = False
        #: The traced clients and topic filters; all messages, if both are empty.
        self.clients: frozenset[str] = frozenset()
        self.topics: tuple[str, ...] = ()
        #: When the trace began, in seconds since the epoch.
        self.since = 0.0

    def __len__(self) -> int:
        return len(self._records)

    # On and off

    def configure(self, settings: TraceSettings) -> None:
        """Begin or end the trace, if the settings say so of other clients and topics than before."""
        former, self._settings = self._settings, settings
        if (former.clients, former.topics) != (settings.clients, settings.topics):
            if settings.on:
                self.start(clients=settings.clients, topics=settings.topics)
            else:
                self.stop()
        self._forget()

    def start(self, *, clients: Iterable[str] = (), topics: Iterable[str] = ()) -> None:
        """Begin a trace, in place of a running one: of messages that these clients publish or are to get, and of
        messages whose topics match one of these filters; of all messages, if both are empty. Messages kept so far are
        forgotten.

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
        for point, callback, args in self._callbacks():
            self._hooks.add(point, callback, priority=TRACE, args=args)

    def stop(self) -> None:
        """End the trace. Its messages stay until `start` or `clear`."""
        self.on = False
        for point, callback, _ in self._callbacks():
            self._hooks.remove(point, callback)

    def clear(self) -> None:
        """Forget all traced messages."""
        self._records.clear()
        self._weight = self.forgotten = 0

    def _callbacks(self) -> Iterator[tuple[Point, Callable[..., None], tuple[str, ...]]]:
        """With the extra arguments that each gets."""
        yield MESSAGE_PUBLISH, self._on_publish, ()
        yield MESSAGE_ROUTED, self._on_routed, ()
        yield MESSAGE_QUEUED, self._note, (QUEUED,)
        yield MESSAGE_DELIVERED, self._note, (DELIVERED,)
        yield MESSAGE_ACKED, self._note, (ACKED,)
        yield DELIVERY_COMPLETED, self._note, (COMPLETED,)
        yield MESSAGE_DROPPED, self._on_dropped, ()

    def listen(self, listener: Callable[[TracedMessage], None]) -> None:
        """Call `callback` with each traced message after each of its steps. It must be short, and not raise."""
        self._listeners = [*self._listeners, listener]

    def unlisten(self, listener: Callable[[TracedMessage], None]) -> None:
        """From any thread: a list that is being iterated over is not changed."""
        self._listeners = [other for other in self._listeners if other != listener]

    # Results

    def records(self) -> list[TracedMessage]:
        """All traced messages, in the order of their first step."""
        return list(self._records.values())

    def record(self, guid: int) -> TracedMessage | None:
        return self._records.get(guid)

    def messages(
        self, *, topic: str = "", client: str = "", before: str = "", limit: int = 100, scan: int = 10_000
    ) -> tuple[list[MessageRow], str | None]:
        """The next messages before the message id `before`, newest first, and the cursor of the next page; None at the
        end. Only messages whose topic matches, if a filter is given, and that the client published or was to get, if
        one is given. It examines at most `scan` messages, so a page may be short or empty without being the last.

        Raises:
            ValueError: the topic filter or message id is invalid.
        """
        topic = _plain(topic) if topic else ""
        guids = sorted(self._records)
        at = bisect_left(guids, from_text(before)) if before else len(guids)
        rows: list[MessageRow] = []
        for guid in reversed(guids[max(0, at - scan) : at]):
            record = self._records[guid]
            at -= 1
            if (not client or record.concerns(client)) and (not topic or _matches(topic, record)):
                rows.append(record.row())
                if len(rows) == limit:
                    break
        return rows, to_text(guids[at]) if at > 0 else None

    def find(self, guid: str) -> TracedMessage:
        """
        Raises:
            ValueError: this is not a message id.
            LookupError: no such message is kept.
        """
        record = self._records.get(from_text(guid))
        if record is None:
            raise LookupError(f"message {guid} is not in the trace: it was not traced, or has been forgotten")
        return record

    def lose(self, guid: int, client_id: str) -> None:
        """Record that a test's fault has lost a message on its way to a client; without a client, on its way to all
        clients."""
        if (record := self._records.get(guid)) is not None:
            self._add(record, client_id, DROPPED, FAULT)

    # Hook callbacks

    def _on_publish(self, client: ClientInfo, message: Message) -> None:
        if message.guid not in self._records and self._wanted(message):
            self._notify(self._begin(message))

    def _on_routed(self, message: Message, receivers: tuple[str, ...], others: tuple[str, ...]) -> None:
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
        if record.whole:
            self._weight += record.go_to(others)
        if receivers or record.others:
            self._add(record, "", ROUTED, at=at)
            for client_id in receivers:
                self._add(record, client_id, ROUTED, at=at)
        else:
            self._add(record, "", DROPPED, NO_SUBSCRIBERS, at=at)

    def _on_dropped(self, client: ClientInfo, message: Message, reason: str) -> None:
        if not self._is_publishers(client, message, reason):
            self._note(client, message, DROPPED, reason)
            return
        record = self._records.get(message.guid)
        if record is None:
            if not self._wanted(message):
                return
            record = self._begin(message)
        if record.reason not in (reason, FAULT):  # that it has no subscribers was recorded when it was routed
            self._add(record, "", DROPPED, reason)

    def _is_publishers(self, client: ClientInfo, message: Message, reason: str) -> bool:
        """Whether the message itself was dropped, and not a delivery to its publisher."""
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
        """Whether a message is traced itself, and not only for some of its subscribers."""
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
        """Forget the oldest messages until there is room; there always is for the newest."""
        settings, records = self._settings, self._records
        while len(records) > 1 and (len(records) > settings.max_messages or self._weight > settings.max_bytes):
            gone = records.pop(next(iter(records)))
            gone.kept = False
            self._weight -= gone.weight
            self.forgotten = gone.number if gone.begun else self.forgotten
            self._old = max(self._old, gone.guid)


def _plain(topic_filter: str) -> str:
    """A filter in the form that topics are compared with.

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
    return matches(topic_filter, record.topic) or matches(topic_filter, record.published_to)
