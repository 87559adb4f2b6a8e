"""The streams of a node: they get messages in the turn of the publisher, change with the broker's commits, and are
worked off in a task of their own.

Where nothing is durable they are kept in an engine in memory.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trunkline.broker.republishing import Republishing
from trunkline.broker.session.stream_start import CLIENT, FILTER
from trunkline.config.errors import Unusable
from trunkline.mqtt.frames import check_writable
from trunkline.mqtt.message import Message
from trunkline.mqtt.topics import validate_name
from trunkline.store import StoreError, WriteBatch
from trunkline.store.memory import MemoryEngine
from trunkline.streams.errors import FiltersTaken, StreamError
from trunkline.streams.following import Following
from trunkline.streams.interface import Streams
from trunkline.streams.registry import StreamRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from trunkline.broker.committer import Committer
    from trunkline.broker.session.services import Services
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.stored import StoredPublication
    from trunkline.store import Engine
    from trunkline.streams.config import StreamConfig
    from trunkline.streams.consumer import ConsumerCursor
    from trunkline.streams.registry import Logs
    from trunkline.streams.stream import Stream

T = TypeVar("T")

_logger = logging.getLogger("trunkline.streams")

#: Seconds until a store that could not be read is asked again.
RETRY: Final = 1.0


class DeclaredStreamError(Unusable[str]):
    """The streams of the store cannot become what the configuration declares."""


class StreamSink:
    """Takes the messages of one stream in the turn of their publisher."""

    def __init__(self, stream: Stream, keeper: StreamKeeper) -> None:
        self.stream = stream
        self.receiver = f"stream {stream.name}"
        #: Those that the routes know.
        self.filters: tuple[str, ...] = ()
        self._keeper = keeper
        #: It takes what comes, which has been looked at.
        self._is_sure = False

    @contextmanager
    def together(self) -> Generator[None]:
        """For messages for which there is room (`Together`): all that come are taken, and nothing goes in between."""
        stream, self._is_sure = self.stream, True
        try:
            yield
        finally:
            self._is_sure = False
            stream.log.trim(self._keeper.now)
            stream.changed()

    def refusal(self, publication: Publication) -> str:
        return "" if self._is_sure else self.stream.refusal(publication, self._keeper.now)

    def take(self, publication: Publication, sequence: int) -> None:
        del sequence
        if self._is_sure:
            for message in publication.messages:
                self.stream.take_message(self.stream.naming.message(message), self._keeper.now)
        else:
            self.stream.take(publication, self._keeper.now)
        if publication.qos and not self.stream.config.no_ack:
            self._keeper.hold(publication)


def sink_among(sinks: Iterable[object]) -> StreamSink | None:
    """That of the stream that takes what goes to these."""
    return next((sink for sink in sinks if isinstance(sink, StreamSink)), None)


def stream_among(sinks: Iterable[object]) -> Stream | None:
    """The stream that takes what goes to these."""
    sink = sink_among(sinks)
    return None if sink is None else sink.stream


class StreamKeeper:
    #: No actor ends when a stream cannot be written.
    owner = None

    def __init__(self, services: Services, subject_of: Callable[[str], str]) -> None:
        """`subject_of` is NATS's name of a topic."""
        self._services = services
        self.registry = StreamRegistry(services.clock, self._changed, self._stamp)
        self.streams = Streams(self)
        self._committer = services.committer
        #: Where nothing is durable.
        self._engine: Engine = MemoryEngine()
        self.following = Following(self.registry)
        self._republishing = Republishing(services, subject_of, self._wake_up)
        self._sinks: dict[Stream, StreamSink] = {}
        #: Publications whose publishers wait for the commit that is being gathered.
        self._held: list[StoredPublication] = []
        #: Streams that have changed since the task looked; there is something to be written without a change.
        self._busy: dict[Stream, None] = {}
        self._has_more = False
        self._wake = trio.Event()
        #: Of those that have much to look through.
        self._turn = trio.Lock()

    # Its life

    def restore(self, engine: Engine) -> None:
        """Bring back what is stored. In a thread."""
        self.registry.restore(engine)

    def open(self, declared: Iterable[StreamConfig], is_subscribed: Callable[[str, str], bool]) -> None:
        """Take messages; make the streams that the configuration declares, and change those that are otherwise.
        `is_subscribed` says of a client and a filter whether there is such a subscription: of others nothing is kept.

        Raises:
            DeclaredStreamError: some of them cannot become what the configuration says.
        """
        problems: list[str] = []
        for index, config in enumerate(declared):
            try:
                if self.registry.find(config.name) is None:
                    self.registry.create(config, self.now)
                else:
                    known = self.registry.get(config.name).config
                    wanted = config.with_shapes_of(known)
                    if known != wanted:
                        self.registry.update(wanted)
            except StreamError as error:
                other = error.other if isinstance(error, FiltersTaken) else config.name
                problems.append(
                    f"streams[{index}]: in the store {error}: change the entry, or start without it and delete the "
                    f"stream (trunkline streams delete {other})"
                )
        if problems:
            raise DeclaredStreamError(problems)
        for stream in self.registry:
            for cursor in list(stream.consumers):
                about = cursor.config.metadata
                if CLIENT in about and not is_subscribed(about[CLIENT], about.get(FILTER, "")):
                    stream.delete_consumer(cursor)
            self.route(stream)
            self._changed(stream)

    async def run(self) -> None:
        """Work off what limits and acknowledgements demand."""
        while True:
            self._wake = trio.Event()
            if not (self._busy or self._has_more or self.following.is_due or self._republishing.is_due):
                with trio.move_on_at(self._next_due()):
                    await self._wake.wait()
            await trio.lowlevel.checkpoint()
            for stream in self.registry:
                stream.delete_idle(self.now)
            busy, self._busy = {**self._busy, **dict.fromkeys(self._due())}, {}
            for stream in busy:
                try:
                    is_settled = await stream.settle(self, lambda: self.now)
                    if not is_settled and self.registry.find(stream.name) is stream:
                        self._busy[stream] = None
                except StoreError as error:
                    _logger.warning("the stream %s cannot be read: %s", stream.name, error)
                    await trio.sleep(RETRY)
                    self._busy[stream] = None
            await self._pass_on()
            self._commit()

    def _wake_up(self) -> None:
        self._wake.set()

    async def _pass_on(self) -> None:
        """What some streams have taken goes to others, and is published once more."""
        try:
            await self.following.step(self, lambda: self.now)
            await self._republishing.step(self)
        except StoreError as error:
            _logger.warning("a stream that others follow, or that is published once more, cannot be read: %s", error)
            await trio.sleep(RETRY)

    def _commit(self) -> None:
        """Where nothing is durable, what has changed is put away at once; otherwise with the next commit."""
        has_more, self._has_more = self._has_more, False
        if self._committer is None:
            batch = WriteBatch()
            self._has_more = self.registry.write(batch)
            self._engine.commit(batch)
            self._stored(self.registry.take_written())
        elif has_more:
            self._committer.change(self, at_once=True)

    def _due(self) -> list[Stream]:
        return [stream for stream in self.registry if stream.log.aging.next_due <= self.now]

    def _next_due(self) -> float:
        """In node time."""
        due = [min(stream.log.aging.next_due, stream.consumers.next_idle) for stream in self.registry]
        return min(due, default=inf) - self._services.clock.kept_epoch

    # What streams ask for

    def _changed(self, stream: Stream, *, has_work: bool = True) -> None:
        if has_work or self._committer is None:
            self._busy[stream] = None
            self._wake.set()
        self.following.note(stream)
        if self.following.is_due:
            self._wake.set()
        if self._committer is not None:
            self._committer.change(self)

    def write(self, batch: WriteBatch) -> None:
        self._held = []
        self._republishing.gathered()
        if self.registry.write(batch):
            self._has_more = True
            self._wake.set()
        assert self._committer is not None
        self._committer.when_stored(partial(self._stored, self.registry.take_written()))

    def _stored(self, written: Logs) -> None:
        if self.registry.stored(written):
            self._wake.set()

    def hold(self, publication: Publication) -> None:
        """The publisher waits for the commit."""
        committer = self._committer
        if committer is not None:
            stored = committer.publications.of(publication)
            stored.pins += 1
            if not self._held:
                committer.after_commit(partial(self._let_go, committer, self._held))
            self._held.append(stored)

    @staticmethod
    def _let_go(committer: Committer, held: list[StoredPublication]) -> None:
        for stored in held:
            committer.publications.unpin(stored, 1)

    # What the interface needs

    @property
    def now(self) -> float:
        return trio.current_time() + self._services.clock.kept_epoch

    async def read(self, function: Callable[[Engine], T]) -> T:
        if self._committer is not None:
            return await self._committer.read(function)
        await trio.lowlevel.checkpoint()
        return function(self._engine)

    async def pause(self) -> None:
        # one after another: each goes on for as long as others can wait
        async with self._turn:
            await trio.lowlevel.checkpoint()

    async def committed(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._committer is not None:
            stored = trio.Event()
            self._committer.after_commit(stored.set)
            await stored.wait()

    async def routed(self) -> None:
        await trio.lowlevel.checkpoint()
        known = trio.Event()
        self._services.pubsub.when_routed(known.set)
        await known.wait()

    async def changed(self, cursor: ConsumerCursor, until: float) -> None:
        woken = trio.Event()
        cursor.watch(woken.set)
        with trio.move_on_at(until - self._services.clock.kept_epoch):
            await woken.wait()
        cursor.unwatch(woken.set)

    def message(self, topic: str, payload: bytes, qos: int, properties: Properties) -> Message:
        validate_name(topic)
        message = self._stamp(Message(topic, payload, qos, properties=properties))
        check_writable(message)
        return message

    def _stamp(self, message: Message) -> Message:
        return self._services.stamp(message, trio.current_time())

    def publish(self, message: Message) -> int:
        return self._services.pubsub.publish(message, trio.current_time())

    def route(self, stream: Stream) -> None:
        pubsub = self._services.pubsub
        sink = self._sinks.setdefault(stream, StreamSink(stream, self))
        is_there = self.registry.find(stream.name) is stream
        wanted = stream.config.filters if is_there else ()
        for topic_filter in sink.filters:
            pubsub.router.remove_sink(topic_filter, sink)
        for topic_filter in wanted:
            pubsub.router.add_sink(topic_filter, sink)
        for topic_filter in {*sink.filters, *wanted}:
            pubsub.notify_watchers(topic_filter)
        sink.filters = wanted
        self.following.look(stream)
        self._republishing.look(stream, is_there=is_there)
        self._wake.set()
        if not is_there:
            del self._sinks[stream]
            self._busy.pop(stream, None)
