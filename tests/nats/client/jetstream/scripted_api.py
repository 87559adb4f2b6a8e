"""A server whose JetStream answers what a test says."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.nats.client.scripted import Peer, serving
from trunkline.nats import connect
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.operations import PING, PONG, Publish, Subscribe

#: An object of JSON, a payload, or a block of headers and a payload; None: nothing.
Answer: TypeAlias = dict[str, Any] | bytes | tuple[bytes, bytes] | None


class Api:
    """`answer` is asked with the subject of each publication, and its payload."""

    def __init__(self, answer: Callable[["Api", str, bytes], Awaitable[Answer]]) -> None:
        self._answer = answer
        self._sids: dict[str, bytes] = {}
        self.peer: Peer | None = None
        #: Subjects of all publications.
        self.asked: list[str] = []

    async def story(self, peer: Peer) -> None:
        self.peer = peer
        await peer.welcome(max_payload=1 << 20)
        while (operation := await peer.next()) is not None:
            if operation is PING:
                await peer.send(PONG.line)
            elif isinstance(operation, Subscribe):
                self._sids[operation.subject.decode()] = operation.sid
            elif isinstance(operation, Publish):
                subject = operation.subject.decode()
                self.asked.append(subject)
                answer = await self._answer(self, subject, operation.payload)
                if answer is not None and operation.reply:
                    await self.reply(operation.reply, answer)

    async def reply(self, to: bytes, answer: Answer) -> None:
        block, payload = b"", answer
        if isinstance(answer, tuple):
            block, payload = answer
        elif isinstance(answer, dict):
            payload = json.dumps(answer).encode()
        assert isinstance(payload, bytes)
        sid = self._sids[f"{to.decode().rpartition('.')[0]}.*"]
        await self.send(encoder.deliver(to, sid, payload, block=block))

    async def deliver(self, inbox: str, subject: str, payload: bytes, ack: str, block: bytes = b"") -> None:
        """To a consumer."""
        await self.send(encoder.deliver(subject.encode(), self._sids[inbox], payload, ack.encode(), block))

    async def send(self, data: bytes) -> None:
        assert self.peer is not None
        await self.peer.send(data)


@asynccontextmanager
async def scripted(
    answer: Callable[[Api, str, bytes], Awaitable[Answer]], seconds: float = 5.0, **settings: Any
) -> AsyncGenerator[tuple[JetStream, Api]]:
    """`seconds` is the timeout of requests."""
    api = Api(answer)
    async with serving(api.story) as port, connect(f"127.0.0.1:{port}", **settings) as client:
        yield client.jetstream(timeout=seconds), api
