"""Whose process is at the other end of a socket between shards.

The folder of these sockets is for the broker's user alone. This holds as well where somebody has changed its mode. More
would be no safer: another process of that user may read and change the memory of a shard.
"""

from __future__ import annotations

import logging
import os
import socket
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:

    class _Socket(Protocol):
        def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


#: Process, user and group.
_CREDENTIALS: Final = Struct("3i")
#: Where the system tells; elsewhere the folder has to do.
_OPTION: Final[int | None] = getattr(socket, "SO_PEERCRED", None)

_logger = logging.getLogger("trunkline.shards")


def is_own_user(sock: _Socket) -> bool:
    """Whether it is one of this user. Another one is named in the log."""
    if _OPTION is None:
        return True
    process, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, _OPTION, _CREDENTIALS.size))
    if user != os.geteuid():
        _logger.error("process %d of the user %d is no worker of this node, and is shut out", process, user)
    return bool(user == os.geteuid())
