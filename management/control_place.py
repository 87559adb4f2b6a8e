"""Where control sockets are, and whether what is there can be trusted.

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
from typing import Final, NamedTuple, cast
from urllib.parse import quote, unquote

SOCKET: Final = ".sock"
PORT: Final = ".port"
#: Bytes of a Unix socket's path: `sun_path` with its closing zero has 108, on macOS and the BSDs 104.
MAX_SOCKET_PATH: Final = 107 if sys.platform == "linux" else 103


class PlaceError(Exception):
    """Something is not where it should be, or cannot be trusted. The text names it."""


class Port(NamedTuple):
    """What is written to a file in place of a socket."""

    port: int
    token: str


def has_unix_sockets() -> bool:
    return hasattr(socket, "AF_UNIX")


def takes_port(transport: str) -> bool:
    """Whether the setting `control.transport` means a port here."""
    return transport == "tcp" or (transport == "auto" and not has_unix_sockets())


def folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where brokers of this user have their sockets; a broker takes the first one.

    Raises:
        PlaceError: there is no folder for such things.
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
    """Where a broker with this name of a node has its control socket, when nobody says otherwise."""
    return folders()[0] / file_name(node, suffix)


def find(node: str) -> Path:
    """Where the broker with this name of a node is.

    Raises:
        PlaceError: nowhere.
    """
    looked = [folder / file_name(node, suffix) for folder in folders() for suffix in (SOCKET, PORT)]
    for path in looked:
        if os.path.lexists(path):
            return path
    others = sorted(sockets().keys() - {node})
    hint = f"; there is {', '.join(others)}: name it with --node" if others else ""
    missing = [str(path) for path in looked if path.suffix == SOCKET]
    where = f"neither {' nor '.join(missing)}" if len(missing) > 1 else f"no {missing[0]}"
    raise PlaceError(f"no broker {node!r} runs here: there is {where}{hint}")


def sockets() -> dict[str, Path]:
    """What there is where control sockets would be, by the name of its node.

    Raises:
        PlaceError: as `folders` does.
    """
    found: dict[str, Path] = {}
    for folder in reversed(folders()):
        with suppress(OSError):  # it is not there, or another user's
            found.update(
                (unquote(path.name.removesuffix(path.suffix)), path)
                for path in folder.iterdir()
                if path.suffix in (SOCKET, PORT)
            )
    return found


def make_private_folder(folder: Path) -> None:
    """Make the folder, or see that nobody else has made it.

    Raises:
        PlaceError: others can enter it.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise PlaceError(f"{folder} cannot be made: {error.strerror or error}") from error
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise PlaceError(f"{folder} is not a folder")
    if hasattr(os, "getuid"):
        if info.st_uid != os.getuid():
            raise PlaceError(f"{folder} belongs to another user")
        if stat.S_IMODE(info.st_mode) & 0o077:
            raise PlaceError(f"{folder} is open to other users: only its owner may enter it (mode 700)")


def check_folder(folder: Path) -> None:
    """See that no other user can put something into the folder.

    Raises:
        PlaceError: somebody can, or it is not there.
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
    """See that a broker may take this path, unless another one has it.

    Raises:
        PlaceError: it may not.
    """
    check_folder(path.parent)
    if os.path.lexists(path):
        check_file(path)
        if not is_socket(path):
            read_port(path)  # else it is a file of the user's own
    if not takes_port(transport) and len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise PlaceError(f"{path} is too long for a Unix socket: set control.path to another one")


def check_file(path: Path) -> None:
    """See that the file is what a broker of this user, or of the system, has made.

    Raises:
        PlaceError: it is not there, or something else.
    """
    try:
        info = path.lstat()
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror or error}") from error
    if stat.S_ISLNK(info.st_mode):
        raise PlaceError(f"{path} is a symbolic link, which no broker has made")
    if not (stat.S_ISSOCK(info.st_mode) or stat.S_ISREG(info.st_mode)):
        raise PlaceError(f"{path} is no control socket")
    if hasattr(os, "getuid"):
        if os.getuid() not in (info.st_uid, 0) and info.st_uid != 0:
            raise PlaceError(f"{path} belongs to another user")
        if stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077:
            raise PlaceError(f"{path} is open to other users: its token is no secret")


def is_socket(path: Path) -> bool:
    return stat.S_ISSOCK(path.lstat().st_mode)


def read_port(path: Path) -> Port:
    """Raises PlaceError: the file holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlaceError(f"{path}: {error.strerror or error}") from error
    except ValueError:
        content = None
    if isinstance(content, dict):
        table = cast("dict[str, object]", content)
        port, token = table.get("port"), table.get("token")
        if isinstance(port, int) and 0 < port < 65_536 and isinstance(token, str):
            return Port(port, token)
    raise PlaceError(f"{path} is no control socket: it holds no port and token")


def write_port(path: Path, port: Port) -> None:
    """Write the file, which must not be there.

    Raises:
        OSError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump({"port": port.port, "token": port.token}, file)
