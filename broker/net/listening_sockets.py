"""The sockets of a listener: bound to its addresses, files, or passed by systemd."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import trio

from trunkline.config.addresses import ANY_HOST, ListenerAddress
from trunkline.config.folder_lock import alone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: The first descriptor that systemd passes.
FIRST_PASSED: Final = 3
#: Seconds that a Unix socket's present owner has to answer.
ANSWER_TIME: Final = 1.0
#: What a system without IPv4 or without IPv6 says.
_NO_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class SocketSettings(Protocol):
    """What the settings of a listener say about its sockets."""

    @property
    def label(self) -> str: ...
    @property
    def address(self) -> ListenerAddress: ...
    @property
    def backlog(self) -> int: ...
    @property
    def reuse_port(self) -> bool: ...
    @property
    def systemd_socket(self) -> str: ...
    @property
    def mode_bits(self) -> int: ...


class SocketsWanted(NamedTuple):
    """The same, without the listener."""

    label: str
    address: ListenerAddress
    backlog: int
    reuse_port: bool
    systemd_socket: str
    mode_bits: int

    @classmethod
    def of(cls, settings: SocketSettings) -> SocketsWanted:
        return cls(*[getattr(settings, name) for name in cls._fields])


@dataclass(slots=True, eq=False)
class BoundSocket:
    """A socket that listens, and the file that the broker has made for it."""

    sock: socket.socket
    path: Path | None = None
    _identity: tuple[int, int] | None = None
    #: Is called when it is closed.
    when_closed: Callable[[], None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, or the file of a Unix socket and 0."""
        name = self.sock.getsockname()
        return (name, 0) if isinstance(name, str) else name[:2]

    def close(self) -> None:
        """The file goes, unless it belongs to another broker by now."""
        self.sock.close()
        if self.when_closed is not None:
            self.when_closed()
        if self.path is not None:
            with suppress(OSError):
                if _identity(self.path) == self._identity:
                    self.path.unlink()


#: Raises OSError.
OpenSockets: TypeAlias = "Callable[[SocketSettings], Awaitable[list[BoundSocket]]]"


async def open_sockets(settings: SocketSettings, *, reserve: bool = False) -> list[BoundSocket]:
    """Those of TCP do not listen yet if they only `reserve` their addresses, for `again` to share.

    Raises:
        OSError: the address cannot be listened on, or systemd has not passed such a socket.
    """
    address = settings.address
    if settings.systemd_socket:
        return passed_sockets(settings.systemd_socket, unix=address.scheme == "unix", environ=os.environ)
    if address.scheme == "unix":
        return [await trio.to_thread.run_sync(_bind_file, Path(address.path), settings.mode_bits, settings.backlog)]
    everywhere = address.host == ANY_HOST
    host = None if everywhere else address.host
    found = await trio.socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[BoundSocket] = []
    try:
        for family, _, _, _, at in found:
            if bound:  # all addresses of a name get the same port
                at = (at[0], bound[0].address[1], *at[2:])
            try:
                bound.append(BoundSocket(_bind(family, at, settings.reuse_port)))
            except OSError as error:
                if not everywhere or error.errno not in _NO_FAMILY:
                    raise
        if not bound:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        for each in bound:
            if reserve:
                # not before it was bound: so nobody else has the address, who may have it from now on
                each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            else:
                each.sock.listen(settings.backlog)
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def again(reserved: BoundSocket) -> socket.socket:
    """One more socket at an address that is reserved. It does not listen yet.

    Raises:
        OSError: no descriptor is left, for example.
    """
    return _bind(reserved.sock.family, reserved.sock.getsockname(), reuse_port=True)


def _bind(family: int, address: Any, reuse_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows: REUSEADDR would let others take the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            if not hasattr(socket, "SO_REUSEPORT"):
                raise OSError(errno.ENOPROTOOPT, "this system does not have reuse_port")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


# Files


def _bind_file(path: Path, mode: int, backlog: int) -> BoundSocket:
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets")
    with alone(path.parent):  # two brokers that start together must not both find a third one dead
        _remove_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind_file(sock, path, mode)
            sock.setblocking(False)
            sock.listen(backlog)
            return BoundSocket(sock, path, _identity(path))
        except OSError as error:
            sock.close()
            if error.errno is None:  # Python's own words for a path that is too long
                raise OSError(errno.ENAMETOOLONG, str(error)) from error
            raise


def bind_file(sock: socket.socket, path: Path, mode: int = 0o600) -> None:
    """The file has this mode from the beginning.

    Raises:
        OSError
    """
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that is gone.

    Raises:
        OSError: a process listens there, or the file is no socket.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, f"{path} is not a socket, and stays")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_TIME)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except (TimeoutError, BlockingIOError):
            pass  # its backlog is full
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _identity(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_dev, info.st_ino


# systemd


def passed_sockets(
    name: str, *, unix: bool, environ: Mapping[str, str], first: int = FIRST_PASSED
) -> list[BoundSocket]:
    """The sockets that systemd passes under this name (sd_listen_fds(3)). They stay open when these are closed.

    Raises:
        OSError: there is none, or it is of another kind.
    """
    count = int(environ.get("LISTEN_FDS", "0")) if environ.get("LISTEN_PID") == str(os.getpid()) else 0
    names = environ.get("LISTEN_FDNAMES", "").split(":") if "LISTEN_FDNAMES" in environ else ["unknown"] * count
    found: list[BoundSocket] = []
    for descriptor, called in zip(range(first, first + count), names, strict=False):
        os.set_inheritable(descriptor, False)
        if called != name:
            continue
        sock = socket.socket(fileno=os.dup(descriptor))
        families = [socket.AF_UNIX] if unix else [socket.AF_INET, socket.AF_INET6]
        if sock.family not in families or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.close()
            for each in found:
                each.close()
            kind = "a Unix socket" if unix else "a TCP socket"
            raise OSError(errno.EINVAL, f"the socket {name!r} of systemd is not {kind} that listens")
        sock.setblocking(False)
        found.append(BoundSocket(sock))
    if not found:
        there = f"it passes {', '.join(names[:count])}" if count else "it passes none"
        raise OSError(errno.ENOENT, f"systemd passes no socket {name!r}: {there}")
    return found
