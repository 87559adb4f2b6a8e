"""Streams over an engine, without a broker: time and commits are the test's."""

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.store.clocks import clock_at
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.store import Engine, WriteBatch
from trunkline.store.memory import MemoryEngine
from trunkline.streams import blocks, deadlines, deleted, log, registry, tidying, topics
from trunkline.streams.config import StreamConfig
from trunkline.streams.registry import StreamRegistry
from trunkline.streams.stream import Stream

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

T = TypeVar("T")


@contextmanager
def small_sizes() -> Generator[None]:
    """Blocks, pages, chunks and steps of a few messages, so that a few messages need all of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (deleted, tidying):
            patch.setattr(module, "CHUNK", 8)
        patch.setattr(deleted, "FULL", 0xFF)
        patch.setattr(deleted, "_UNTIDY", (4, 7, 8))
        patch.setattr(blocks, "MAX_MESSAGES", 4)
        patch.setattr(blocks, "PAGE_ROWS", 2)
        patch.setattr(log, "MAX_KEPT", 1)
        for module in (log, registry):
            patch.setattr(module, "MAX_ERASED", 7)
        patch.setattr(deadlines, "MAX_IN_ROW", 2)
        patch.setattr(deadlines, "PAGE_ROWS", 2)
        patch.setattr(deadlines, "MIN_ADDED", 3)
        patch.setattr(topics, "MAX_ROWS", 3)
        patch.setattr(topics, "REWRITTEN_AT_ONCE", 2)
        yield


def burst(topics: list[str], payloads: list[bytes]) -> PublishBatch:
    """PUBLISH packets of MQTT 3.1.1 at QoS 0, of one topic or each of its own."""
    packets = [
        bytes([0x30, 2 + len(topic) + len(payload), 0, len(topic)]) + topic.encode() + payload
        for topic, payload in zip(topics if len(topics) > 1 else topics * len(payloads), payloads, strict=True)
    ]
    starts = [sum(map(len, packets[:number])) for number in range(len(packets))]
    batch = PublishBatch(topics, 0x30, Version.V311, b"".join(packets), starts, ())
    batch.guid = 1
    return batch


def single(topic: str, payload: bytes = b"", message_id: str | None = None, rollup: str = "", ttl: str = "") -> Message:
    given = {"Nats-Msg-Id": message_id, "Nats-Rollup": rollup, "Nats-TTL": ttl}
    properties: Properties = {"user_property": [(name, value) for name, value in given.items() if value]}
    if not properties["user_property"]:
        properties = {}
    return Message(topic, payload, 1, properties=properties)


class World:
    """Time begins at 1,000 seconds. What is awaited is done at once."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine if engine is not None else MemoryEngine()
        self.now = 1000.0
        self.registry = self._open()

    def _open(self) -> StreamRegistry:
        registry = StreamRegistry(clock_at(0.0), lambda stream, *, has_work: None)
        registry.restore(self.engine)
        return registry

    async def read(self, function: Callable[[Engine], T]) -> T:
        return function(self.engine)

    async def pause(self) -> None:
        pass

    def create(self, *filters: str, name: str = "s", **settings: Any) -> Stream:
        return self.registry.create(StreamConfig(name=name, filters=filters, **settings), self.now)

    def take(self, publication: Publication) -> dict[int, str]:
        stream = self.registry.of_topic(publication.topic)
        assert stream is not None
        refused: dict[int, str] = {}
        if publication.count > 1 and not stream.refusal(publication, self.now):
            stream.take(publication, self.now)
        else:
            for number, message in enumerate(publication.messages):
                refusal = stream.refusal(message, self.now)
                if refusal:
                    refused[number] = refusal
                else:
                    stream.take(message, self.now)
        self.settle()
        return refused

    def publish(self, topic: str, *payloads: bytes) -> None:
        for payload in payloads or (b"",):
            assert not self.take(single(topic, payload))

    def settle(self) -> None:
        for stream in self.registry:
            self.settle_one(stream)

    def settle_one(self, stream: Stream) -> None:
        while not done(stream.settle(self, lambda: self.now)):
            pass

    def commit(self) -> None:
        """Everything; garbage, too."""
        while True:
            batch = WriteBatch()
            more = self.registry.write(batch)
            self.engine.commit(batch)
            is_sooner = self.registry.stored(self.registry.take_written())
            if not more and not is_sooner:
                return
            self.settle()

    def reopen(self) -> None:
        """What was not committed is lost, and nothing is done yet."""
        self.registry = self._open()

    def crash(self) -> None:
        """What was not committed is lost."""
        self.reopen()
        self.settle()

    def restart(self) -> None:
        self.commit()
        self.crash()

    @property
    def stream(self) -> Stream:
        return self.registry.get("s")

    def do(self, request: Coroutine[Any, Any, T]) -> T:
        found = done(request)
        self.settle()
        return found


def done(request: Coroutine[Any, Any, T]) -> T:
    try:
        request.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits for something")
