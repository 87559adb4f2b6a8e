"""The other end of the control socket: plain sockets without an event loop, for commands and scripts."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trunkline.management.control_frames import (
    LENGTH,
    MAX_GREETING,
    PROTOCOL,
    FrameError,
    frame,
    pack,
    unpack,
)
from trunkline.management.control_place import PlaceError, check_file, is_socket, read_port

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

#: Seconds for the broker to accept the connection, and to answer.
CONNECT_TIME = 5.0
ANSWER_TIME = 60.0


class NoBroker(Exception):
    """No broker answers at this path, which the text names."""


class ControlError(Exception):
    """The broker refuses the operation. `code` is for programs: `not_found`, `refused`, `bad_request`, `failed`, …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ControlClient:
    """A connection to a running broker.

    with ControlClient(path) as broker:
        for client in broker.rows("clients.list", prefix="sensor"):
            broker.call("clients.kick", client_id=client["client_id"])
    """

    def __init__(self, path: str | os.PathLike[str], connect_time: float = CONNECT_TIME) -> None:
        """
        Raises:
            NoBroker: nothing listens there, or it cannot be trusted.
            ControlError: the broker accepts no connection now.
        """
        self.path = Path(path)
        self._number = 0
        try:
            check_file(self.path)
            token = self._connect(connect_time)
        except PlaceError as error:
            raise NoBroker(f"no broker: {error}") from error
        except ConnectionRefusedError as error:
            raise NoBroker(f"no broker at {self.path}: the broker that made this file has ended") from error
        except OSError as error:
            raise NoBroker(f"no broker at {self.path}: {error.strerror or error}") from error
        try:
            self._send({"protocol": PROTOCOL, **({} if token is None else {"token": token})})
            self._max_frame_size = MAX_GREETING
            greeting = _answered(self._receive())
            #: Of the broker: name of its node, version and process.
            self.node, self.version, self.pid = str(greeting["node"]), str(greeting["version"]), int(greeting["pid"])
            self._max_frame_size = int(greeting["max_frame_size"])
        except (KeyError, TypeError, ValueError):
            self.close()
            raise NoBroker(f"no broker at {self.path}: the listening process is not a broker") from None
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(ANSWER_TIME)

    def _connect(self, timeout: float) -> str | None:
        if is_socket(self.path):
            self._socket = socket.socket(socket.AF_UNIX)
            address: Any = str(self.path)
            token = None
        else:
            port = read_port(self.path)
            self._socket = socket.socket(socket.AF_INET)
            address, token = ("127.0.0.1", port.port), port.token
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise
        return token

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, operation: str, **arguments: object) -> Any:
        """Run an operation, and return its result.

        Raises:
            ControlError: the broker says no.
            NoBroker: the broker is gone.
        """
        self._number += 1
        self._send({"id": self._number, "operation": operation, "arguments": arguments})
        return _answered(self._receive())["result"]

    def pages(self, operation: str, **arguments: object) -> Iterator[list[dict[str, Any]]]:
        """The rows of a listing, page by page. Each page is requested when it is needed.

        Raises:
            ControlError: the broker says no.
            NoBroker: the broker is gone.
        """
        while True:
            page = self.call(operation, **arguments)
            if page["rows"]:
                yield page["rows"]
            if page["next"] is None:
                return
            arguments["after"] = page["next"]

    def rows(self, operation: str, **arguments: object) -> Iterator[dict[str, Any]]:
        """All rows of a listing, one by one; as `pages`."""
        for page in self.pages(operation, **arguments):
            yield from page

    def _send(self, content: dict[str, object]) -> None:
        with suppress(OSError):  # the broker may have sent a reason before it closed, which `_receive` reads
            self._socket.sendall(frame(pack(content)))

    def _receive(self) -> dict[str, Any]:
        try:
            (length,) = LENGTH.unpack(self._read(LENGTH.size))
            if length > self._max_frame_size:
                raise FrameError(f"a frame of {length} bytes; at most {self._max_frame_size} are allowed")
            return unpack(self._read(length))
        except TimeoutError:
            raise NoBroker(f"the broker at {self.path} does not answer") from None
        except OSError as error:
            raise NoBroker(f"the broker at {self.path} is gone: {error.strerror or error}") from error
        except FrameError as error:
            raise NoBroker(f"no broker at {self.path}: the listening process is not a broker: {error}") from None

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionResetError(0, "it closed the connection")
            parts += part
        return bytes(parts)


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise ControlError(str(answer["error"]), str(answer.get("message", "")))
    return answer
