"""What has come for a session and waits in two places: in the queue in the memory, and in the backlogs of its filters,
which its cursor reads. It leaves in the order in which it came.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trunkline.broker.session.cursor import BacklogCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.backlogs.backlogs import Backlogs
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.cursor import Piece
    from trunkline.broker.session.mqueue import MessageQueue, Queued
    from trunkline.broker.session.replay import Replays
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target


class Arrivals:
    __slots__ = ("_context", "_cursor", "_is_asking", "_known", "_queue", "_waiter", "replays")

    def __init__(
        self, context: SessionContext, queue: MessageQueue[Target[Subscriber]], waiter: Callable[[], None]
    ) -> None:
        self._context = context
        self._queue = queue
        self._waiter = waiter
        #: None where nothing waits in backlogs.
        self._cursor: BacklogCursor | None = None
        #: The retained messages that are on their way, of which some have to come before newer ones of their topic.
        self.replays: Replays | None = None
        #: Of the entries up to this one it is known that everything that came before is in the queue.
        self._known = 0
        #: Is a message in the mailbox that tells of later ones?
        self._is_asking = False

    def open_cursor(self, backlogs: Backlogs) -> BacklogCursor:
        self._cursor = BacklogCursor(self._context, backlogs, self._waiter, self._ask)
        return self._cursor

    @property
    def waits(self) -> bool:
        return self._queue.length > 0 or (self._cursor is not None and self._cursor.waits)

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]]:
        """The next message of both, or the retained one that has to come before it.  # [MQTT-4.6.0-5]"""
        queue, cursor, replays = self._queue, self._cursor, self.replays
        piece = None
        if cursor is not None and cursor.waits:
            piece = cursor.next()
            if piece is None and cursor.reader.is_busy:
                return ()  # what is read may have come before what is in the queue
        if piece is None and not queue.length:
            return ()
        first = queue.first if queue.length else None
        if first is not None and (piece is None or self._is_first(first, piece)):
            piece, topic = None, first[0].topic
        elif piece is None or (first is None and queue.length):
            return queue.take(room, now)  # which has it read: it may have come before
        elif not self._is_next(piece):
            return ()
        else:
            topic = piece.publication.topic
        if replays is not None and replays.waits:
            if not room:
                return ()
            earlier = replays.overtaken_by(topic, now)
            if earlier is not None:
                return (earlier,)
            room = 1  # the next message may have another topic
        return queue.take(room, now) if piece is None or cursor is None else cursor.take(room, now)

    def _is_first(self, queued: Queued[Target[Subscriber]], piece: Piece) -> bool:
        """Ids are in the order of PUBLISH packets, and a message of QoS 2 is routed at its PUBREL."""
        message, _, _, number = queued
        return number <= self._queue.before_backlogs or message.guid < piece.publication.guid

    def _is_next(self, piece: Piece) -> bool:
        """Whether everything that came before it is in the queue; if not, the waiter is called when it is."""
        if piece.sequence > self._known:
            self._ask()
        return piece.sequence <= self._known

    def _ask(self) -> None:
        """Entries of backlogs are seen at once, and messages for the queue when the mailbox has been worked off up to
        them."""
        committer = self._context.services.committer
        if not self._is_asking and committer is not None:
            self._is_asking = True
            self._context.soon(partial(self._answered, committer.publications.number))

    def _answered(self, known: int) -> None:
        self._known, self._is_asking = known, False
        self._waiter()
