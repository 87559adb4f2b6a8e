"""A connection of the control socket: requests, one after the other, each answered before the next is read.

h11 knows HTTP. Here are the stream, and the bounds of size and time.
"""

from __future__ import annotations

import hmac
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import h11
import trio

from trunkline.management.control_json import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Bytes of a request's first line and headers.
MAX_HEAD: Final = 16_384
#: Seconds that a new connection has to send its first request, and the other side to read why its connection ends.
GREETING_TIME: Final = 5.0
#: Bytes of one read.
READ_SIZE: Final = 65_536

_logger = logging.getLogger("trunkline.control")


class HttpProblem(Exception):
    """A request that cannot be answered. The text is for whoever asked, `code` for programs."""

    def __init__(self, status: HTTPStatus, code: str, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.headers = headers

    @property
    def body(self) -> bytes:
        """As RFC 9457 says."""
        told = {"title": self.status.phrase, "status": self.status, "detail": str(self), "code": self.code}
        return to_json(told).encode()


class HttpRequest(NamedTuple):
    method: str
    path: str
    #: Names are lowercase.
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    def __init__(self, stream: trio.SocketStream, token: str | None, max_body: int, idle_timeout: float) -> None:
        """Each request must have the token, if there is one."""
        self._stream = stream
        self._token = token
        self._max_body = max_body
        self._idle_timeout = idle_timeout
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        #: Seconds to wait for what comes next.
        self._patience = min(GREETING_TIME, idle_timeout)

    async def request(self) -> HttpRequest | None:
        """The next request; None if there is none.

        Raises:
            HttpProblem: it cannot be read. `end` tells the other side.
        """
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None  # the last request was to be the last
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        self._check_token(headers.get("authorization", ""))
        body = bytearray()
        while isinstance(part := await self._next_event(), h11.Data):
            body += part.data
            if len(body) > self._max_body:
                text = f"the request has more than {self._max_body} bytes (control.max_body_size)"
                raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", text)
        return HttpRequest(head.method.decode(), head.target.decode("latin-1"), headers, bytes(body))

    def _check_token(self, given: str) -> None:
        if self._token is not None and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            text = "its token is not the one in the file"
            raise HttpProblem(HTTPStatus.UNAUTHORIZED, "unwelcome", text, **{"WWW-Authenticate": "Bearer"})

    async def _next_event(self) -> object:
        """None if nothing comes in time."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                with trio.move_on_after(self._patience) as scope:
                    self._http.receive_data(await self._stream.receive_some(READ_SIZE))
                if scope.cancelled_caught:
                    if self._http.their_state is h11.IDLE and not self._http.trailing_data[0]:
                        return None
                    text = f"the rest of the request has not come for {self._patience:g} s"
                    raise HttpProblem(HTTPStatus.REQUEST_TIMEOUT, "malformed", text)
        except h11.RemoteProtocolError as error:
            raise HttpProblem(HTTPStatus(error.error_status_hint), "malformed", f"not HTTP: {error}") from None
        self._patience = self._idle_timeout
        return event

    async def answer(self, body: bytes, problem: HttpProblem | None = None) -> None:
        kind = "application/json" if problem is None else "application/problem+json"
        status = HTTPStatus.OK if problem is None else problem.status
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        headers += [] if problem is None else list(problem.headers.items())
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase)
        await self._send(response, h11.Data(data=body), h11.EndOfMessage())

    @property
    def has_begun(self) -> bool:
        """Whether lines were sent, and not their end."""
        return self._http.our_state is h11.SEND_BODY

    async def begin_lines(self) -> None:
        """The answer comes in parts, which `send_lines` sends; `end_lines` follows."""
        headers = [("Content-Type", "application/jsonl")]
        await self._send(h11.Response(status_code=HTTPStatus.OK, headers=headers, reason=HTTPStatus.OK.phrase))

    async def send_lines(self, lines: bytes) -> None:
        await self._send(h11.Data(data=lines))

    async def end_lines(self) -> None:
        await self._send(h11.EndOfMessage())

    async def end(self, problem: HttpProblem) -> None:
        """Answer with a problem, and read nothing more."""
        problem.headers["Connection"] = "close"
        with trio.move_on_after(GREETING_TIME):
            await self.answer(problem.body, problem)
            await self._stream.send_eof()
            while await self._stream.receive_some(READ_SIZE):  # closing with unread bytes would discard the answer
                pass

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join([self._http.send(event) or b"" for event in events])
        with trio.move_on_after(self._idle_timeout) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            _logger.warning("a control connection is closed: it read nothing for %g s", self._idle_timeout)
            raise trio.BrokenResourceError
