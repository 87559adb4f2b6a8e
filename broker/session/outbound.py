"""From the broker to one client: what is sent at once, what waits, and when it may leave.

A message that cannot leave at once waits in one of the session's sources, which are all asked in one way. They stand in
the order in which they have their turns: the window after a reconnect, what came (the queue in the memory and the
cursor of the backlogs, in the order of arrival), what was retained, and streams. A source in which something waits goes
before those behind it and before what comes now: a message is sent at once only while nothing waits anywhere, and
nothing pauses the session.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.broker.metrics import DropReason
from trunkline.broker.session.replay import Replay, Replays
from trunkline.broker.session.sending import Sending
from trunkline.broker.session.slow_consumer import Pressure, too_much
from trunkline.hooks.points import MESSAGE_QUEUED
from trunkline.mqtt.topics import STREAM_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.session.arrivals import Arrivals
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.feeds import Feeds
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.window import Taken
    from trunkline.router import Target

#: Bytes that leave the sources in one turn. More would only wait for the socket.
MAX_SLICE: Final = 262_144


class Source(Protocol):
    """Where messages wait. When something has come that was not there when it was asked last, it calls its waiter."""

    @property
    def waits(self) -> bool:
        """Whether anything waits here, or may: then nothing may be sent that comes behind it."""
        ...

    def take(self, room: int, now: float) -> Sequence[Taken[Target[Subscriber]]] | None:
        """The next messages, of which at most `room` need a place in the window. Nothing: there is none now. None:
        others want their turn first."""
        ...


class PauseReason(IntEnum):
    """Why a session sends nothing of what waits. There may be several reasons at a time."""

    #: No client is there.
    AWAY = 1
    #: Something has to be stored before: the session before its CONNACK, how far an earlier connection came, or a
    #: message with much behind it.
    STORE = 2
    #: Access decisions are awaited.
    ACCESS = 4
    #: The socket is full.
    SOCKET = 8
    #: Others have their turn before the next slice.
    TURN = 16


class Outbound(Sending):
    __slots__ = (
        "_arrivals",
        "_feeds",
        "_pauses",
        "_pressure",
        "_queue",
        "_replays",
        "_sources",
    )

    def __init__(self, context: SessionContext) -> None:
        self._pressure = Pressure(context)
        #: The reasons for a pause, together.
        self._pauses: int = PauseReason.AWAY
        #: None where there are none.
        self._replays: Replays | None = None
        #: None where the session has never had a subscription to a stream.
        self._feeds: Feeds | None = None
        super().__init__(context)

    def bind(self) -> None:
        super().bind()
        session, backlogs = self._context.session, self._services.backlogs
        self._queue = session.queue
        self._arrivals: Arrivals | None = None
        if session.durable is not None and backlogs is not None:
            self._arrivals = self._merged_arrivals()
            session.cursor = self._arrivals.open_cursor(backlogs)
        self.arrange()

    def arrange(self) -> None:
        """Put the sources that there are in their order."""
        arrivals, replays, feeds = self._arrivals, self._replays, self._feeds
        if arrivals is None and replays is not None:
            arrivals = self._merged_arrivals()
        if arrivals is not None:
            arrivals.replays = replays
        came = self._queue if arrivals is None else arrivals
        self._sources: tuple[Source, ...] = tuple(
            [source for source in (self._window, came, replays, feeds) if source is not None]
        )
        self._review()

    def _merged_arrivals(self) -> Arrivals:
        # imported here: where everything is in memory, few need it
        from trunkline.broker.session.arrivals import Arrivals

        return Arrivals(self._context, self._queue, self.wake)

    def _review(self) -> None:
        """Find out whether what comes now may be sent at once."""
        direct = not self._pauses
        for source in self._sources:
            direct = direct and not source.waits
        self.direct = direct

    def pause(self, reason: PauseReason) -> None:
        self._pauses |= reason
        self._review()

    def resume(self, reason: PauseReason) -> None:
        if self._pauses & reason:
            self._pauses &= ~reason
            self.fill()

    # Messages come

    def keep(self, publication: Publication, target: Target[Subscriber]) -> None:
        """Let it wait in the queue, message by message."""
        for message in publication.messages:
            self._enqueue(message, target)

    def _enqueue(self, message: Message, target: Target[Subscriber]) -> None:
        queue, hooks = self._queue, self._hooks
        dropped = queue.push(message, target, self.qos(message, target))
        if hooks.message_queued and not any(gone.message is message and gone.target is target for gone in dropped):
            hooks.notify(MESSAGE_QUEUED, self._session.client, message)
        for gone, _, _, reason in dropped:
            is_there = self.channel is not None
            self.drop(gone, too_much(is_there=is_there) if reason is DropReason.QUEUE_FULL else reason)
        if self.direct:
            self._review()
        pressure = self._pressure
        if self.channel is not None and (queue.length >= pressure.high or queue.byte_size >= pressure.high_bytes):
            pressure.grown(message.publisher, self.now)

    def wake(self) -> None:
        """There may be something in a source that was not there before."""
        self._review()
        self.fill()
        self.flush()

    # Messages leave

    def fill(self) -> None:
        """Send what waits, as far as window and socket allow, one slice in each turn."""
        if self.direct or self._pauses:
            return
        left = MAX_SLICE
        for source in self._sources:
            if source.waits:
                left = self._send_from(source, left)
                if left <= 0:
                    self._pauses |= PauseReason.TURN
                    self._context.next_turn(partial(self.resume, PauseReason.TURN))
                    break
                if source.waits:
                    break
        else:
            self._review()
        if self._replays is not None:
            self._forget_replays()
        if self._pressure.on and self._pressure.eased(self._queue):
            self._pressure.release()

    def _send_from(self, source: Source, left: int) -> int:
        """Send at most so many bytes, and the last message whole. Returns how many are left, 0 if others want their
        turn."""
        window, client_id = self._window, self._session.client_id
        while left > 0:
            taken = source.take(window.room, self.now)
            if taken is None:
                return 0
            if not taken:
                break
            for publication, target, delivery, packet_id in taken:
                left -= publication.weight
                if packet_id:
                    self.resend(publication, target, packet_id)
                elif publication.expires_at <= self.now:
                    self.drop(publication, DropReason.EXPIRED)  # [MQTT-3.3.2-5]
                elif target.no_local and publication.publisher == client_id:
                    self.deliver_own(publication, target, delivery)
                else:
                    self.deliver(publication, target, delivery)
        return left

    # The client comes and goes

    def attach(self, channel: Channel) -> None:
        super().attach(channel)
        self._pauses = self._pauses & PauseReason.TURN | PauseReason.STORE
        if self._session.cursor is not None:
            self._session.cursor.attach()
        if self._context.session.streams:
            self._open_feeds().attach()
        self._window.resume(_largest_window(channel))
        self._review()

    def begin(self, *, stored: bool) -> None:
        """CONNACK is written. What is unacknowledged is sent again, before anything else.  # [MQTT-4.4.0-1]

        How far it has come is `stored` before that.
        """
        durable, channel = self._durable, self.channel
        if durable is not None and not stored and self._window.has_qos2:
            durable.after_commit(lambda: self._context.soon(lambda: self._resume(channel)))
        else:
            self.resume(PauseReason.STORE)

    def _resume(self, channel: Channel | None) -> None:
        if self.channel is channel:
            self.resume(PauseReason.STORE)

    def bound(self) -> None:
        """Let what comes next wait where it is limited, if much is written that waits for a commit."""
        if self._packets is not self.pieces and self.uncommitted > MAX_SLICE:
            self.pause(PauseReason.STORE)

    def committed(self) -> None:
        self.resume(PauseReason.STORE)

    def enter_zone(self) -> None:
        """The session's settings are other ones."""
        self._pressure.enter_zone()
        channel = self.channel
        if channel is not None:
            self._window.limit_messages(_largest_window(channel))

    def detach(self) -> None:
        super().detach()
        self._pauses = self._pauses & PauseReason.TURN | PauseReason.AWAY
        if self._replays is not None:  # how many messages these are is not known, and a walk to count them takes long
            self._services.metrics.messages_retained_cut += len(self._replays)
            self._replays = None
        self._pressure.leave(self.now)
        if self._session.cursor is not None:
            self._session.cursor.detach()
        if self._feeds is not None:
            self._feeds.detach()
        self.arrange()

    def repeat(self, interval: float) -> None:
        """Send again what a 3.x client has not acknowledged for that long."""
        self._window.repeat(self.now, interval)
        self._review()
        self.fill()

    @property
    def empty(self) -> bool:
        """Nothing waits, and nothing is unacknowledged."""
        cursor = self._session.cursor
        return not self._queue.length and not len(self._window) and (cursor is None or not cursor.waits)

    # Retained messages

    def replay(self, grant: Grant, target: Target[Subscriber]) -> None:
        """Send the retained messages that match a new subscription."""
        services = self._services
        retained = services.pubsub.retained
        if self._replays is None:
            self._replays = Replays(retained, services.config.retained.replay_batch)
        self._replays.add(Replay(grant, target, retained, self._may_replay, self.now))
        self.arrange()

    def _may_replay(self, message: Message) -> bool:
        services = self._services
        if not services.access.may_read_retained(self._session.client, message.topic):
            self.drop(message, DropReason.READ_NOT_AUTHORIZED)
            return False
        if services.config.retained.check_retain_source and not services.access.may_still_publish(
            services.publisher_of(message), message
        ):
            self.drop(message, DropReason.NOT_AUTHORIZED)
            return False
        return True

    def unsubscribed(self, filters: Iterable[str]) -> None:
        """Stop sending retained messages, or those of streams, for these subscriptions."""
        of_streams = [filter for filter in filters if filter.startswith(STREAM_PREFIX)]
        if of_streams:
            self._open_feeds().end(of_streams)
        if self._replays is not None:
            self._replays.end(filters)
            self._forget_replays()

    def _forget_replays(self) -> None:
        if self._replays is not None and not self._replays.waits:
            self._replays = None
            self.arrange()

    # Streams

    def begin_feeds(
        self, grants: Iterable[Grant], properties: Properties, begun: Callable[[], object]
    ) -> Iterator[None]:
        """Subscriptions to streams were made, as `Feeds.begin_each`. `feed` sends what there is for one."""
        yield from self._open_feeds().begin_each(grants, properties, begun)

    def feed(self, filter: str) -> None:
        self._open_feeds().wake(filter)
        self._review()

    def _open_feeds(self) -> Feeds:
        if self._feeds is None:
            self._feeds = self._services.feeds.open(self._context, self.wake)
            self.arrange()
        return self._feeds

    def end_feeds(self) -> Iterator[None]:
        """The session has ended: its places in streams go with it, some in each slice."""
        if self._session.streams:
            yield from self._open_feeds().forget()


def _largest_window(channel: Channel) -> int:
    return min(channel.config.session.max_inflight, channel.receive_maximum)
