"""The other end of the control socket: plain sockets without an event loop, for commands and scripts."""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.management.control_json import from_json, to_json
from trunkline.management.control_place import PlaceError, check_file, is_socket, read_port

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

#: Seconds for the broker to accept the connection, and to answer.
CONNECT_TIME: Final = 5.0
ANSWER_TIME: Final = 60.0
#: Bytes of the first answer: whoever gives it is not known yet.
MAX_GREETING: Final = 4096


class NoBroker(Exception):
    """No broker answers at this path, which the text names."""


class ControlError(Exception):
    """The broker refuses the operation. `code` is for programs: `not_found`, `refused`, `bad_request`, `failed`, …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


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
        self._headers: dict[str, str] = {}
        self._most = MAX_GREETING
        try:
            check_file(self.path)
            self._http = self._connection(connect_time)
        except PlaceError as error:
            raise NoBroker(f"no broker: {error}") from error
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        try:
            self._http.connect()
        except ConnectionRefusedError as error:
            raise NoBroker(f"no broker at {self.path}: the broker that made this file has ended") from error
        except OSError as error:
            raise NoBroker(f"no broker at {self.path}: {error.strerror or error}") from error
        about = self._ask("GET", "/")
        try:
            #: Of the broker: name of its node, version and process.
            self.node, self.version, self.pid = str(about["node"]), str(about["version"]), int(about["pid"])
            self._most = int(about["max_body_size"])
            self._http.sock.settimeout(ANSWER_TIME)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._no_broker("another answer was expected") from None

    def _connection(self, timeout: float) -> HTTPConnection:
        if is_socket(self.path):
            return _UnixConnection(self.path, timeout)
        port = read_port(self.path)
        self._headers["Authorization"] = f"Bearer {port.token}"
        return HTTPConnection("127.0.0.1", port.port, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def call(self, operation: str, **arguments: object) -> Any:
        """Run an operation, and return its result.

        Raises:
            ControlError: the broker says no.
            NoBroker: the broker is gone.
        """
        return self._ask("POST", f"/operations/{operation}", to_json(arguments).encode())

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

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            self._http.request(method, path, body, self._headers)
            with self._http.getresponse() as response:
                content = self._content(response)
        except TimeoutError as error:
            raise NoBroker(f"the broker at {self.path} does not answer") from error
        except OSError as error:
            raise NoBroker(f"the broker at {self.path} is gone: {error.strerror or error}") from error
        except (HTTPException, ValueError) as error:
            raise self._no_broker(str(error)) from None
        if response.status < 400:
            return content
        try:
            code, detail = str(content["code"]), str(content["detail"])
        except (KeyError, TypeError):
            raise self._no_broker(f"it answers {response.status}") from None
        raise ControlError(code, detail)

    def _content(self, response: HTTPResponse) -> Any:
        if response.getheader("Content-Type") not in ("application/json", "application/problem+json"):
            raise self._no_broker(f"it answers {response.status}, and not with JSON")
        answer = response.read(self._most + 1)
        if len(answer) > self._most:
            raise self._no_broker(f"its answer has more than {self._most} bytes")
        if response.length:
            raise ConnectionResetError("it closed the connection")
        return from_json(answer)

    def _no_broker(self, why: str) -> NoBroker:
        return NoBroker(f"no broker at {self.path}: the listening process is not a broker: {why}")
