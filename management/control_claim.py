"""Claims the path of a control socket: a socket that a dead broker left is removed, a running broker keeps its own."""

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.broker.net.listening_sockets import bind_file
from trunkline.config.folder_lock import alone
from trunkline.management.control_place import (
    PlaceError,
    Port,
    check_folder,
    check_place,
    is_socket,
    make_private_folder,
    write_port,
)

#: Seconds that a running broker has to answer with its name.
ANSWER_TIME: Final = 1.0


class PlaceTaken(PlaceError):
    """A running broker has it."""


@dataclass(slots=True, eq=False)
class Claim:
    """A claimed path, with the listening socket."""

    path: Path
    socket: socket.socket
    #: The token that clients must send, if any user of this machine can connect.
    token: str | None
    _identity: tuple[int, int]

    def release(self) -> None:
        """Close the socket, and remove the file unless it belongs to another broker by now."""
        self.socket.close()
        with suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def claim(path: Path, *, tcp: bool, private: bool) -> Claim:
    """Listen at a path; `private` creates the folder, for its owner alone. This may take up to `ANSWER_TIME`.

    Raises:
        PlaceTaken: a running broker has it.
        PlaceError: it cannot be trusted or created.
    """
    if private:
        make_private_folder(path.parent)
    check_folder(path.parent)
    try:
        with alone(path.parent):  # two brokers that start together must not both find a third one dead
            check_place(path, "tcp" if tcp else "unix")
            _clear(path)
            return _listen(path, tcp)
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror or error}") from error


def _clear(path: Path) -> None:
    if not os.path.lexists(path):
        return
    from trunkline.management.control_client import ControlClient, ControlError, NoBroker  # few find something there

    unix = is_socket(path)
    try:
        with ControlClient(path, ANSWER_TIME) as other:
            raise PlaceTaken(f"{path} belongs to the broker {other.node!r} that runs as process {other.pid}")
    except ControlError as error:
        raise PlaceTaken(f"{path} belongs to a running broker: {error}") from error
    except NoBroker as error:
        cause = error.__cause__
        refused = isinstance(cause, ConnectionRefusedError)
        # a port may belong to another program by now, a socket may not
        if not refused and (unix or isinstance(cause, TimeoutError)):
            raise PlaceTaken(f"{path} belongs to a running broker that does not answer") from error
    path.unlink()


def _listen(path: Path, tcp: bool) -> Claim:
    listening, token = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX), None
    try:
        if tcp:
            listening.bind(("127.0.0.1", 0))
        else:
            bind_file(listening, path)
        listening.listen()
        listening.setblocking(False)
        if tcp:
            token = secrets.token_urlsafe(32)
            write_port(path, Port(listening.getsockname()[1], token))
        return Claim(path, listening, token, _identity(path))
    except OSError:
        listening.close()
        raise


def _identity(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_dev, info.st_ino
