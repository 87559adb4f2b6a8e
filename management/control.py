"""The control socket: operations on a running broker, for `trunkline ctl` and scripts.

It runs beside the message flow and never in its way. A connection's requests are handled one after the other, and an
answer is sent before the next request is read, so a client that requests much and reads nothing keeps no more than one
page in memory. A listing comes in pages, each requested separately.
"""

from __future__ import annotations

import hmac
import logging
import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from trunkline import __version__
from trunkline.management.control_claim import Claim, PlaceTaken, claim
from trunkline.management.control_frames import (
    FAILED,
    LENGTH,
    MALFORMED,
    MAX_GREETING,
    PROTOCOL,
    TOO_LARGE,
    UNWELCOME,
    FrameError,
    frame,
    pack,
    unpack,
)
from trunkline.management.control_place import PORT, SOCKET, PlaceError, default_path, takes_port

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trunkline.config.node_settings import ControlSettings
    from trunkline.management.operations.registry import Administered

_logger = logging.getLogger("trunkline.control")

#: Seconds that a connection has to send its greeting.
GREETING_TIME: Final = 5.0
#: Brokers of one user with the same node name that can have a control socket.
MAX_SAME_NAME: Final = 16
#: Bytes of rows after which a page is full. A single row may be larger.
PAGE_BYTES: Final = 1_048_576


class ControlSocketError(Exception):
    """The control socket cannot be opened. The text says why."""


class _Bad(Exception):
    """A connection has to end, and the error that is sent to it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Control:
    """The control socket of a broker."""

    def __init__(self, broker: Administered) -> None:
        self._broker = broker
        self._claim: Claim | None = None
        self.connections = 0

    @property
    def _settings(self) -> ControlSettings:
        return self._broker.config.control

    @property
    def path(self) -> Path:
        """The open socket, or the file with port and token."""
        assert self._claim is not None
        return self._claim.path

    async def open(self) -> None:
        """Claim the path and listen.

        Raises:
            ControlSocketError: it belongs to another broker, or cannot be trusted.
        """
        try:
            self._claim = await trio.to_thread.run_sync(self._take)
        except PlaceError as error:
            cure = (
                "" if self._settings.path else ": set control.path to one in a folder that only its owner can write to"
            )
            raise ControlSocketError(f"no control socket: {error}{cure}") from error
        _logger.info("control socket %s", self.path)

    def _take(self) -> Claim:
        tcp = takes_port(self._settings.transport)
        if self._settings.path is not None:
            return claim(self._settings.path.absolute(), tcp=tcp, private=False)
        node, suffix = self._broker.config.node.name, PORT if tcp else SOCKET
        taken: PlaceTaken | None = None
        for number in range(1, MAX_SAME_NAME + 1):
            name = node if number == 1 else f"{node}-{number}"
            try:
                found = claim(default_path(name, suffix).absolute(), tcp=tcp, private=True)
            except PlaceTaken as error:
                taken = taken or error
            else:
                if taken is not None:
                    text = "%s, so use `trunkline ctl --node %s` for this broker, or give it a node.name of its own"
                    _logger.warning(text, taken, name)
                return found
        assert taken is not None
        raise taken

    def close(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    async def run(self) -> None:
        """Serve until cancelled. After a crash it may be called again, and claims the path anew.

        Raises:
            ControlSocketError: it belongs to another broker now.
        """
        if self._claim is None:
            await self.open()
        assert self._claim is not None
        try:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._claim.socket))
            async with trio.open_nursery() as nursery:
                await trio.serve_listeners(self._serve, [listener], handler_nursery=nursery)
        finally:
            self.close()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            try:
                if self.connections > self._settings.max_connections:
                    raise _Bad(
                        UNWELCOME, f"the limit of {self._settings.max_connections} control connections is reached"
                    )
                await self._greet(stream)
                # imported only now, for a quick start; in a thread, so that clients do not wait meanwhile
                await trio.to_thread.run_sync(import_module, "trunkline.management.operations")
                while (packed := await self._receive(stream, self._settings.max_frame_size)) is not None:
                    await self._send(stream, await self._answer(packed))
            except _Bad as bad:
                _logger.warning("a control connection is closed: %s", bad)
                with trio.move_on_after(GREETING_TIME):
                    await self._send(stream, pack({"id": None, "error": bad.code, "message": str(bad)}))
                    await stream.send_eof()
                    while await stream.receive_some(65_536):  # closing with unread bytes would discard the answer
                        pass
        except trio.BrokenResourceError:
            pass  # it has gone
        except Exception:  # any error ends this connection and not the broker
            _logger.exception("a control connection crashed")
        finally:
            self.connections -= 1
            with suppress(trio.BrokenResourceError):
                await trio.aclose_forcefully(stream)

    async def _greet(self, stream: trio.SocketStream) -> None:
        assert self._claim is not None
        with trio.move_on_after(GREETING_TIME):
            packed = await self._receive(stream, MAX_GREETING)
            if packed is None:
                raise trio.BrokenResourceError
            greeting = _content(packed)
            token = greeting.get("token", "")
            if self._claim.token is not None and not (
                isinstance(token, str)
                and hmac.compare_digest(token.encode(errors="replace"), self._claim.token.encode())
            ):
                raise _Bad(UNWELCOME, "its token is not the one in the file")
            if greeting.get("protocol") != PROTOCOL:
                raise _Bad(
                    UNWELCOME,
                    f"it speaks protocol {greeting.get('protocol')!r:.20}; this broker, trunkline {__version__}, "
                    "speaks "
                    f"{PROTOCOL}",
                )
            answer = {
                "protocol": PROTOCOL,
                "node": self._broker.config.node.name,
                "version": __version__,
                "pid": os.getpid(),
                "max_frame_size": self._settings.max_frame_size,
            }
            await self._send(stream, pack(answer))
            return
        raise _Bad(UNWELCOME, f"it sent no greeting for {GREETING_TIME:g} s")

    async def _receive(self, stream: trio.SocketStream, most: int) -> bytes | None:
        """The next frame; None when the client has closed."""
        head = await self._read(stream, LENGTH.size)
        if not head:
            return None
        if len(head) == LENGTH.size:
            (length,) = LENGTH.unpack(head)
            if length > most:
                raise _Bad(TOO_LARGE, f"a frame of {length} bytes; at most {most} are allowed")
            packed = await self._read(stream, length)
            if len(packed) == length:
                return packed
        raise _Bad(MALFORMED, "it ended in the middle of a frame")

    async def _read(self, stream: trio.SocketStream, count: int) -> bytes:
        """`count` bytes; fewer if the client has closed."""
        parts = bytearray()
        while len(parts) < count:
            with trio.move_on_after(self._settings.idle_timeout) as scope:
                part = await stream.receive_some(min(count - len(parts), 65_536))
                if not part:
                    break
                parts += part
            if scope.cancelled_caught:
                raise _Bad(UNWELCOME, f"it sent nothing for {self._settings.idle_timeout:g} s")
        return bytes(parts)

    async def _send(self, stream: trio.SocketStream, packed: bytes) -> None:
        with trio.move_on_after(self._settings.idle_timeout) as scope:
            await stream.send_all(frame(packed))
        if scope.cancelled_caught:
            _logger.warning("a control connection is closed: it read nothing for %g s", self._settings.idle_timeout)
            raise trio.BrokenResourceError

    # Requests

    async def _answer(self, packed: bytes) -> bytes:
        from trunkline.management.operations import find
        from trunkline.management.operations.registry import OperationError, Page

        request = _content(packed)
        number, name, arguments = request.get("id"), request.get("operation"), _arguments(request)
        if not (isinstance(number, int | str) and isinstance(name, str) and arguments is not None):
            raise _Bad(MALFORMED, "a request is a map of id (a number or text), operation (text) and arguments (a map)")
        try:
            operation = find(name)
            result = await operation.run(self._broker, arguments)
            await trio.lowlevel.checkpoint()
            if isinstance(result, Page):
                whole = cast("Page[object]", result)
                page = operation.first_of(whole, _fitting(whole.rows), arguments)
                result = {"rows": page.rows, "next": page.next}
            answer = pack({"id": number, "result": result})
        except OperationError as error:
            return pack({"id": number, "error": error.code, "message": str(error)})
        except Exception as error:  # a plugin's code may raise anything, and must not end the broker
            _logger.exception("the operation %s crashed", name)
            return pack({"id": number, "error": FAILED, "message": f"{name} crashed: {type(error).__name__}: {error}"})
        if len(answer) > self._settings.max_frame_size:
            text = f"the answer has {len(answer)} bytes, and control.max_frame_size is {self._settings.max_frame_size}"
            return pack({"id": number, "error": TOO_LARGE, "message": text})
        return answer


async def open_control(broker: Administered, required: bool) -> Control | None:
    """The control socket of a broker. If it is not required and cannot be opened, the broker goes on without it.

    Raises:
        ControlSocketError: it is required, and belongs to another broker or cannot be trusted.
    """
    control = Control(broker)
    try:
        await control.open()
    except ControlSocketError as error:
        if required:
            raise
        _logger.error("%s", error)
        return None
    return control


def _content(packed: bytes) -> dict[str, Any]:
    try:
        return unpack(packed)
    except FrameError as error:
        raise _Bad(MALFORMED, str(error)) from None


def _arguments(request: dict[str, Any]) -> dict[str, Any] | None:
    arguments = request.get("arguments", {})
    if isinstance(arguments, dict) and all(isinstance(name, str) for name in cast("dict[object, object]", arguments)):
        return cast("dict[str, Any]", arguments)
    return None


def _fitting(rows: Iterable[object]) -> int:
    """How many of the rows fit into a page: at least one, if there is one."""
    count = room = 0
    for count, row in enumerate(rows, 1):
        room += len(pack(row))
        if room > PAGE_BYTES:
            return max(count - 1, 1)
    return count
