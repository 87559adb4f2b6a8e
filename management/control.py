"""The control socket: operations on a running broker over HTTP, for `trunkline ctl`, curl and scripts.

It runs beside the message flow and never in its way. Here are its place and its connections; `control_answers` says
what is asked on them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from trunkline.management.control_claim import Claim, PlaceTaken, claim
from trunkline.management.control_place import PORT, SOCKET, PlaceError, default_path, takes_port

if TYPE_CHECKING:
    from pathlib import Path

    from trunkline.broker.node.admin import Admin
    from trunkline.config.node_settings import ControlSettings

_logger = logging.getLogger("trunkline.control")

#: Brokers of one user with the same node name that can have a control socket.
MAX_SAME_NAME: Final = 16


class ControlSocketError(Exception):
    """The control socket cannot be opened. The text says why."""


class Control:
    """The control socket of a broker."""

    def __init__(self, broker: Admin) -> None:
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
            # imported only now, for a quick start; in a thread, so that clients do not wait meanwhile
            await trio.to_thread.run_sync(import_module, "trunkline.management.control_answers")
            from trunkline.management.control_answers import serve

            assert self._claim is not None
            full = self.connections > self._settings.max_connections
            await serve(stream, self._broker, self._claim.token, full=full)
        except trio.BrokenResourceError:
            pass  # it has gone
        except Exception:  # any error ends this connection and not the broker
            _logger.exception("a control connection crashed")
        finally:
            self.connections -= 1
            with suppress(trio.BrokenResourceError):
                await trio.aclose_forcefully(stream)


async def open_control(broker: Admin, required: bool) -> Control | None:
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
