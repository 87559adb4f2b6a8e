"""The transports of connections that go from one shard of a node to another.

Bytes are counted once, where they come from a client or go to one. What a client had sent before its connection was
passed was counted by the shard that read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.metrics import Metrics
from trunkline.broker.net.transport import SocketTransport

if TYPE_CHECKING:
    from socket import socket

    from trunkline.actors import Actor
    from trunkline.broker.net.passed import PassedConnection
    from trunkline.broker.net.poller import Poller
    from trunkline.broker.net.transport import Receiver
    from trunkline.hooks.identity import Identity

#: Nobody reads it.
_UNCOUNTED: Final = Metrics()


class PassedTransport(SocketTransport):
    """A client's own socket, which another shard has accepted, and read the beginning from."""

    __slots__ = ("_first", "identity")

    was_passed = True

    def __init__(self, passed: PassedConnection, poller: Poller) -> None:
        super().__init__(passed.sock, None, poller)  # its options are set
        self.peer = passed.peer
        self.identity: Identity | None = passed.identity
        #: What comes before all that the socket brings.
        self._first = passed.first

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self.receiver = receiver
        self.owner = owner.ref
        owner.call_at(trio.current_time(), self._begin)

    def _begin(self) -> None:
        first, self._first = self._first, b""
        self.receiver(first)
        self._watch()

    def _watch(self) -> None:
        if not self._first:
            super()._watch()

    def read_now(self) -> None:
        if not self._first:
            super().read_now()


class RelayTransport(SocketTransport):
    """One end of a pair: between the shard that has a client's connection with its layers, and the client's home."""

    __slots__ = ("_counted", "identity")

    was_passed = True

    def __init__(
        self, sock: socket, poller: Poller, peer: tuple[str, int] | None = None, identity: Identity | None = None
    ) -> None:
        super().__init__(sock, None, poller)
        self.peer = peer
        self.identity: Identity | None = identity
        self._counted = self._metrics
        self._metrics = _UNCOUNTED

    def ready(self, events: int, limit: int) -> bytes | None:
        data = super().ready(events, limit)
        if data:
            self._counted.bytes_received -= len(data)  # the poller counts whatever it reads
        return data


def transport_of(passed: PassedConnection, poller: Poller) -> SocketTransport:
    if passed.relayed:
        return RelayTransport(passed.sock, poller, passed.peer, passed.identity)
    return PassedTransport(passed, poller)
