"""A control connection whose bytes a test writes, and whose answers h11 reads."""

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h11
import trio


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


def request(name: str, arguments: object = None, *headers: str) -> bytes:
    """That of an operation."""
    body = b"" if arguments is None else json.dumps(arguments).encode()
    head = [f"POST /operations/{name} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


class Raw:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)
        #: What has come of the present answer.
        self.body = b""

    async def send(self, *parts: bytes) -> None:
        await self.stream.send_all(b"".join(parts))

    async def receive(self) -> Answer:
        """The next answer, without what was asked: h11 is told that it was a GET."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._http.send(h11.Request(method="GET", target="/", headers=[("Host", "localhost")]))
        self._http.send(h11.EndOfMessage())
        head: h11.Response | None = None
        self.body = b""
        with trio.fail_after(120):
            while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self.stream.receive_some())
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    self.body += event.data
        assert head is not None
        return Answer(head.status_code, {name.decode(): value.decode() for name, value in head.headers}, self.body)

    async def expect_close(self) -> None:
        with trio.fail_after(120), contextlib.suppress(trio.BrokenResourceError):
            assert await self.stream.receive_some(1) == b""


@asynccontextmanager
async def by_hand(folder: Path) -> AsyncIterator[Raw]:
    async with await trio.open_unix_socket(str(folder / "broker.sock")) as stream:
        yield Raw(stream)
