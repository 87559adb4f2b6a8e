"""The listening sockets of a node, which its supervisor has and its workers share.

Where the system spreads connections over sockets of one address, each worker gets one of its own, and the supervisor
keeps the address. Elsewhere, and of Unix sockets and those of systemd, they all accept from the same one. What nobody
has open any more is given up.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from trunkline.broker.net.listening_sockets import SocketsWanted, again, open_sockets
from trunkline.broker.shards.homes import FIRST
from trunkline.config.addresses import NATS

if TYPE_CHECKING:
    import socket
    from collections.abc import Hashable

    from trunkline.broker.net.listening_sockets import BoundSocket, SocketSettings
    from trunkline.config.addresses import ListenerAddress

    Key: TypeAlias = tuple[str, ListenerAddress, str]

#: Whether sockets with SO_REUSEPORT share the connections that come. Elsewhere the last one gets them all.
SPREADS: Final = sys.platform == "linux"


class SharedSockets:
    def __init__(self) -> None:
        self._opened: dict[Key, list[BoundSocket]] = {}
        #: Who has them open.
        self._holders: dict[Key, set[Hashable]] = {}
        #: Workers ask at the same time, and an address can be bound once.
        self._opening = trio.Lock()

    async def reserve(self, settings: SocketSettings) -> None:
        """Before a worker asks for them, so that what is wrong is found once.

        Raises:
            OSError: an address cannot be listened on.
        """
        await self._open(SocketsWanted.of(settings))

    async def take(self, wanted: SocketsWanted, holder: Hashable) -> list[socket.socket]:
        """Sockets for a worker, to be closed here when it has them; none, if what is spoken there is for another one.

        Raises:
            OSError: the address cannot be listened on.
        """
        if wanted.address.scheme in NATS and holder != FIRST:
            return []
        opened = await self._open(wanted)
        self._holders.setdefault(_key(wanted), set()).add(holder)
        taken: list[socket.socket] = []
        try:
            for bound in opened:
                taken.append(again(bound) if _spreads(wanted) else bound.sock.dup())
        except OSError:
            for each in taken:
                each.close()
            raise
        return taken

    async def _open(self, wanted: SocketsWanted) -> list[BoundSocket]:
        key = _key(wanted)
        async with self._opening:
            opened = self._opened.get(key)
            if opened is None:
                opened = self._opened[key] = await open_sockets(wanted, reserve=_spreads(wanted))
            return opened

    def give_up(self, wanted: SocketsWanted, holder: Hashable) -> None:
        """It has closed its sockets."""
        key = _key(wanted)
        holders = self._holders.get(key, set[object]())
        holders.discard(holder)
        if not holders:
            self._holders.pop(key, None)
            for bound in self._opened.pop(key, []):
                bound.close()

    def close(self) -> None:
        for opened in self._opened.values():
            for bound in opened:
                bound.close()
        self._opened.clear()
        self._holders.clear()


def _spreads(wanted: SocketsWanted) -> bool:
    return SPREADS and wanted.address.scheme != "unix" and not wanted.systemd_socket


def _key(wanted: SocketsWanted) -> Key:
    """Listeners whose port the system chooses have one each."""
    address = wanted.address
    is_open = not address.port and address.scheme != "unix"
    return wanted.systemd_socket, address, wanted.label if is_open else ""
