"""What the control socket answers.

    POST /operations/NAME    the arguments as a JSON object; answered with the result
    GET /                    which broker this is

A listing is answered with a page, `{"rows", "next"}`: `next` is the argument `after` of the next page, and null at the
end. Who accepts `application/jsonl` gets all rows, a line each. A page is sent before the next one is made, and an
answer before the next request is read: a client that asks for much and reads nothing keeps one page in memory.
"""

from __future__ import annotations

import logging
import os
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from trunkline import __version__
from trunkline.management.control_http import HttpConnection, HttpProblem
from trunkline.management.control_json import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.node.admin import Admin
    from trunkline.management.control_http import HttpRequest
    from trunkline.management.operations.registry import Operation, Page

#: Bytes of rows after which a page is full. A single row may be larger.
PAGE_BYTES: Final = 1_048_576
#: Bytes of lines that are sent at once.
LINES_BYTES: Final = 65_536
OPERATIONS: Final = "/operations/"
LINES: Final = "application/jsonl"
#: By the codes of what operations say instead of being done.
STATUS: Final = {
    "bad_request": HTTPStatus.BAD_REQUEST,
    "not_found": HTTPStatus.NOT_FOUND,
    "refused": HTTPStatus.CONFLICT,
    "elsewhere": HTTPStatus.CONFLICT,
}

_logger = logging.getLogger("trunkline.control")


async def serve(stream: trio.SocketStream, broker: Admin, token: str | None, *, full: bool) -> None:
    """Answer all requests of a connection. Each must have the token, if there is one. One that is too many is told so.

    Raises:
        trio.BrokenResourceError: the client has gone, or reads nothing.
    """
    settings = broker.config.control
    http = HttpConnection(stream, token, settings.max_body_size, settings.idle_timeout)
    try:
        if full:
            text = f"the limit of {settings.max_connections} control connections is reached"
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "unwelcome", text)
        while (request := await http.request()) is not None:
            try:
                await _answer(http, broker, request)
            except HttpProblem as problem:
                if http.has_begun:
                    await http.send_lines(problem.body + b"\n")
                    return  # without the end that a whole answer has
                await http.answer(problem.body, problem)
    except HttpProblem as problem:
        _logger.warning("a control connection is closed: %s", problem)
        await http.end(problem)


async def _answer(http: HttpConnection, broker: Admin, request: HttpRequest) -> None:
    """
    Raises:
        HttpProblem: the answer is this.
    """
    name = request.path.removeprefix(OPERATIONS)
    if request.path == "/":
        _check_method(request, "GET")
        about = {"node": broker.config.node.name, "version": __version__, "pid": os.getpid()}
        await http.answer(to_json({**about, "max_body_size": broker.config.control.max_body_size}).encode())
    elif name == request.path:
        text = f"there is nothing at {request.path:.80}: POST {OPERATIONS}NAME runs an operation"
        raise HttpProblem(HTTPStatus.NOT_FOUND, "not_found", text)
    else:
        _check_method(request, "POST")
        await _operate(http, broker, name, request)


async def _operate(http: HttpConnection, broker: Admin, name: str, request: HttpRequest) -> None:
    # imported only now, for a quick start; in a thread, so that clients do not wait meanwhile
    await trio.to_thread.run_sync(import_module, "trunkline.management.operations")
    from trunkline.management.operations import find
    from trunkline.management.operations.registry import OperationError

    arguments = _arguments(request.body)
    try:
        operation = find(name)
        if operation.listing and LINES in request.headers.get("accept", ""):
            await _answer_lines(http, broker, operation, arguments)
        else:
            await http.answer(await _result(broker, operation, arguments))
    except OperationError as error:
        raise HttpProblem(STATUS[error.code], error.code, str(error)) from error
    except (HttpProblem, trio.BrokenResourceError):
        raise
    except Exception as error:  # a plugin's code may raise anything, and must not end the broker
        _logger.exception("the operation %s crashed", name)
        text = f"{name} crashed: {type(error).__name__}: {error}"
        raise HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", text) from error


def _check_method(request: HttpRequest, allowed: str) -> None:
    if request.method != allowed:
        text = f"{request.path:.80} takes {allowed}, not {request.method:.20}"
        raise HttpProblem(HTTPStatus.METHOD_NOT_ALLOWED, "bad_request", text, Allow=allowed)


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        arguments = from_json(body or b"{}")
    except ValueError as error:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "malformed", f"the arguments are not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "malformed", "the arguments are not a JSON object")
    return cast("dict[str, Any]", arguments)


async def _result(broker: Admin, operation: Operation, arguments: dict[str, Any]) -> bytes:
    result = await operation.run(broker, arguments)
    await trio.lowlevel.checkpoint()
    if operation.listing:
        page = cast("Page[object]", result)
        result = operation.first_of(page, _fitting(page.rows), arguments)
    answer = to_json(result).encode()
    most = broker.config.control.max_body_size
    if len(answer) > most:
        text = f"the answer has {len(answer)} bytes, and control.max_body_size is {most}"
        raise HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, "too_large", text)
    return answer


def _fitting(rows: Sequence[object]) -> int:
    """How many of the rows fit into a page: at least one, if there is one."""
    room = 0
    for count, row in enumerate(rows):
        room += len(to_json(row))
        if room > PAGE_BYTES:
            return max(count, 1)
    return len(rows)


async def _answer_lines(http: HttpConnection, broker: Admin, operation: Operation, arguments: dict[str, Any]) -> None:
    """All rows of a listing, or as many as `limit` says. An error behind the first page is the last line."""
    page = cast("Page[object]", await operation.run(broker, arguments))
    left = arguments.get("limit")
    await http.begin_lines()
    while True:
        lines = bytearray()
        for row in page.rows[:left]:
            lines += to_json(row).encode() + b"\n"
            if len(lines) >= LINES_BYTES:
                await http.send_lines(bytes(lines))
                lines.clear()
        await http.send_lines(bytes(lines))
        left = None if left is None else left - len(page.rows)
        if page.next is None or (left is not None and left <= 0):
            break
        page = cast("Page[object]", await operation.run(broker, {**arguments, "after": page.next}))
    await http.end_lines()
