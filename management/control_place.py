"""Where control sockets are, and whether they can be trusted.

A node's socket is `NODE.sock` in a folder that only its user can enter. Where there are no Unix sockets it is
`NODE.port`, a file that only its user can read, with a loopback port and a token.
"""

import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, unquote

from pydantic import Field, TypeAdapter, ValidationError

SOCKET: Final = ".sock"
PORT: Final = ".port"
#: The folder of a node with several workers: each has a socket in it.
WORKERS: Final = ".workers"
#: Bytes of a Unix socket's path: `sun_path` with its closing zero has 108, on macOS and the BSDs 104.
MAX_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103


class PlaceError(Exception):
    """A control socket or its folder is missing or cannot be trusted. The text names it."""


class Port(NamedTuple):
    """The content of the file that stands in for a Unix socket."""

    port: Annotated[int, Field(gt=0, lt=65_536)]
    token: str


_PORT: Final = TypeAdapter(Port)


def has_unix_sockets() -> bool:
    return hasattr(socket, "AF_UNIX")


def takes_port(transport: str) -> bool:
    """Whether the setting `control.transport` means a port here."""
    return transport == "tcp" or (transport == "auto" and not has_unix_sockets())


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders for the sockets of this user's brokers; a broker uses the first one.

    Raises:
        PlaceError: the system has no such folder.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    found = [Path(runtime) / "trunkline"] if runtime and Path(runtime).is_dir() else []
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        if not found:
            raise PlaceError(str(error.strerror)) from error
        return found
    return [*found, temporary / (f"trunkline-{os.getuid()}" if hasattr(os, "getuid") else "trunkline")]


def file_name(node: str, suffix: str) -> str:
    return quote(node, safe=" ") + suffix


def default_path(node: str, suffix: str) -> Path:
    """The default path of the control socket for this node name."""
    return folders()[0] / file_name(node, suffix)


def find(node: str) -> Path:
    """The control socket of the running broker with this node name.

    Raises:
        PlaceError: there is none.
    """
    there = sockets()
    if node in there:
        return there[node]
    others = ", ".join(sorted(there))
    hint = f"; there is {others}: name it with --node" if others else ""
    missing = [str(folder / file_name(node, SOCKET)) for folder in folders()]
    where = f"neither {' nor '.join(missing)}" if len(missing) > 1 else f"no {missing[0]}"
    raise PlaceError(f"no broker {node!r} runs here: there is {where}{hint}")


def sockets() -> dict[str, Path]:
    """The control sockets in the usual folders, and the folders of nodes with several workers, by node name.

    Raises:
        PlaceError: as `folders` does.
    """
    found: dict[str, Path] = {}
    for folder in reversed(folders()):
        with suppress(OSError):  # it is missing, or belongs to another user
            places = list(folder.iterdir())
            for kind in ((SOCKET, PORT), (WORKERS,)):
                found.update(
                    (unquote(path.name.removesuffix(path.suffix)), path)
                    for path in places
                    if path.suffix in kind and (path.suffix != WORKERS or worker_sockets(path))
                )
    return found


def worker_sockets(folder: Path) -> list[Path]:
    """Those of a node with several workers, in the order of these; none if the folder is something else."""
    try:
        found = [each for each in folder.iterdir() if each.suffix == SOCKET and each.stem.isdecimal()]
    except OSError:
        return []
    return sorted(found, key=lambda each: int(each.stem))


def make_private_folder(folder: Path) -> None:
    """Create the folder, or check that it belongs to this user alone.

    Raises:
        PlaceError: others can enter it.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise PlaceError(f"{folder} cannot be created: {error.strerror or error}") from error
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise PlaceError(f"{folder} is not a folder")
    if hasattr(os, "getuid"):
        if info.st_uid != os.getuid():
            raise PlaceError(f"{folder} belongs to another user")
        if stat.S_IMODE(info.st_mode) & 0o077:
            raise PlaceError(f"{folder} is accessible to other users: set its mode to 700")


def check_folder(folder: Path) -> None:
    """Check that no other user can write to the folder.

    Raises:
        PlaceError: another user can, or the folder is missing.
    """
    try:
        info = folder.stat()
    except OSError as error:
        raise PlaceError(f"{folder}: {error.strerror or error}") from error
    if hasattr(os, "getuid"):
        if info.st_uid not in (os.getuid(), 0):
            raise PlaceError(f"{folder} belongs to another user")
        if stat.S_IMODE(info.st_mode) & 0o022:
            raise PlaceError(f"other users can write to {folder}: a control socket needs a folder of its own")


def check_place(path: Path, transport: str) -> None:
    """Check that a broker may use this path, if no other broker has it.

    Raises:
        PlaceError: it may not.
    """
    check_folder(path.parent)
    if os.path.lexists(path):
        check_file(path)
        if not is_socket(path):
            read_port(path)  # otherwise it is another file of the user
    if not takes_port(transport) and len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise PlaceError(f"{path} is too long for a Unix socket: set control.path to another one")


def check_file(path: Path) -> None:
    """Check that a broker of this user, or of the system, has made the file.

    Raises:
        PlaceError: it is missing, or something else.
    """
    try:
        info = path.lstat()
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror or error}") from error
    if stat.S_ISLNK(info.st_mode):
        raise PlaceError(f"{path} is a symbolic link, which brokers do not create")
    if not (stat.S_ISSOCK(info.st_mode) or stat.S_ISREG(info.st_mode)):
        raise PlaceError(f"{path} is not a control socket")
    if hasattr(os, "getuid"):
        if os.getuid() not in (info.st_uid, 0) and info.st_uid != 0:
            raise PlaceError(f"{path} belongs to another user")
        if stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077:
            raise PlaceError(f"{path} is readable by other users: its token is not secret")


def is_socket(path: Path) -> bool:
    return stat.S_ISSOCK(path.lstat().st_mode)


def read_port(path: Path) -> Port:
    """Raises PlaceError if the file holds something else."""
    try:
        return _PORT.validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror or error}") from error
    except ValidationError:
        raise PlaceError(f"{path} is not a control socket: it does not hold a port and token") from None


def write_port(path: Path, port: Port) -> None:
    """Write the file, which must not exist yet.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(port._asdict(), file)
