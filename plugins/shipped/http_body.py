"""The body of a request. Only who has httpx can import this."""

from typing import Self

import httpx


class Body(httpx.AsyncByteStream):
    """httpx's own is an asynchronous generator, which stays open when the request is cut while the body is written: the
    collector closes it then, with a warning."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._is_given = False

    def __aiter__(self) -> Self:
        self._is_given = False
        return self

    async def __anext__(self) -> bytes:
        if self._is_given:
            raise StopAsyncIteration
        self._is_given = True
        return self._content
