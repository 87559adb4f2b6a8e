"""A room with one stream, `s` of `s/#`, and clients of NATS that ask for its messages by hand."""

from __future__ import annotations

import json
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from tests.broker.nats.speaking import NatsRoom, Speaker, nats_room
from trunkline.broker.nats.jetstream.stream_configs import KEPT
from trunkline.streams import StreamConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trunkline.broker.nats.jetstream.node import JetStream
    from trunkline.streams.interface import Streams

#: Of a stream that answers direct gets.
READ_DIRECTLY = {"metadata": {KEPT: '{"allow_direct": true}'}}
#: Everything may be asked of the API, and what is below `s/open` read, but nothing else.
OPEN_ALONE = """
[[rule]]
permit = "allow"
topics = ["$JS/API/#", "r/#", "s/open/#"]
[[rule]]
permit = "deny"
topics = ["#"]
"""
MSECOND = 1_000_000
SECOND = 1_000_000_000


class Got(NamedTuple):
    subject: str
    sid: str
    reply: str
    block: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def status(self) -> str:
        return self.block.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").decode().strip()


class Puller:
    """A client with the subscription `r.>`, whose id is 1."""

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker
        #: What came before an answer.
        self._before: deque[Got] = deque()

    async def say(self, *lines: bytes) -> None:
        await self.speaker.say(*lines)

    async def publish(self, subject: str, payload: Any = b"", reply: str = "", **headers: str) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        to = f"{subject} {reply}".rstrip().encode()
        if headers:
            lines = [f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in headers.items()]
            block = b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"
            await self.say(b"HPUB %s %d %d" % (to, len(block), len(block) + len(data)), block + data)
        else:
            await self.say(b"PUB %s %d" % (to, len(data)), data)

    async def got(self) -> Got:
        """The next message."""
        return self._before.popleft() if self._before else await self._read()

    async def _read(self) -> Got:
        try:
            line = await self.speaker.line()
        except trio.TooSlowError:
            raise AssertionError("no message comes") from None
        assert line.startswith((b"MSG ", b"HMSG ")), line
        parts = line.decode().split()
        has_block = parts[0] == "HMSG"
        head, size = (int(parts[-2]) if has_block else 0), int(parts[-1])
        reply = parts[3] if len(parts) == (6 if has_block else 5) else ""
        data = await self.speaker.exactly(size + 2)
        return Got(parts[1], parts[2], reply, data[:head], data[head:-2])

    async def nothing(self) -> None:
        assert await self.speaker.said() == b""

    async def ask(self, subject: str, payload: Any = b"", **headers: str) -> Got:
        await self.publish(subject, payload, "r.x", **headers)
        while (got := await self._read()).subject != "r.x":
            self._before.append(got)
        return got

    async def api(self, verb: str, payload: Any = b"") -> Any:
        return json.loads((await self.ask(f"$JS.API.{verb}", payload)).payload)

    async def consumer(self, name: str = "c", **config: Any) -> Any:
        """A durable one."""
        said = {"durable_name": name, "ack_policy": "explicit", **config}
        made = await self.api(f"CONSUMER.DURABLE.CREATE.s.{name}", {"stream_name": "s", "config": said})
        assert "error" not in made, made
        return made

    async def pull(self, reply: str = "r.p", consumer: str = "c", **asked: Any) -> None:
        await self.publish(f"$JS.API.CONSUMER.MSG.NEXT.s.{consumer}", asked, reply)


class JetStreamRoom:
    def __init__(self, room: NatsRoom) -> None:
        self.room = room
        self.streams: Streams = room.node.streams

    @property
    def jetstream(self) -> JetStream:
        client = self.room.connections[0].client
        assert client is not None
        return client.standing.jetstream

    async def puller(self, **options: Any) -> Puller:
        puller = Puller(await self.room.speaker(**options))
        await puller.say(b"SUB r.> 1")
        await puller.nothing()
        return puller

    async def fill(self, *payloads: bytes, topic: str = "s/a") -> None:
        for payload in payloads:
            await self.streams.publish(topic, payload)


@asynccontextmanager
async def jetstream_room(*, stream: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[JetStreamRoom]:
    async with nats_room(**settings) as room:
        here = JetStreamRoom(room)
        await here.streams.create(StreamConfig(**{"name": "s", "filters": ("s/#",), **(stream or {})}))
        yield here


async def settled() -> None:
    """Everything that was begun is done, as far as it does not wait for the clock."""
    await trio.testing.wait_all_tasks_blocked()
