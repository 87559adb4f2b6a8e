"""A connection that one shard of a node has accepted and another one is to serve."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_WR
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from socket import socket

    from trunkline.hooks.identity import Identity

#: Most bytes that are passed with a connection; more than a first read. One that has sent more is relayed.
MAX_FIRST: Final = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class PassedConnection:
    """Whoever has it closes it, or hands it on."""

    #: Without a time-out. Its client's own, or the end of a pair whose other end relays the client's bytes.
    sock: socket
    #: The name of the listener that has accepted it.
    listener: str
    #: The client, as the accepting shard knows it.
    peer: tuple[str, int] | None
    identity: Identity | None
    #: What has been read and nobody has handled: the connection's first read.
    first: bytes
    #: The accepting shard stays between, with its layers.
    relayed: bool
    #: The packet that refuses the client, for whoever cannot pass it on.
    refusal: bytes = b""

    def refuse(self) -> None:
        """Close it with the packet that refuses the client, which is sent as far as it can be without waiting."""
        with suppress(OSError):
            self.sock.send(self.refusal)
            self.sock.shutdown(SHUT_WR)
            self.sock.recv(MAX_FIRST)  # what is closed with unread bytes may take the refusal back
        self.close()

    def close(self) -> None:
        with suppress(OSError):  # some systems report here that the peer is gone
            self.sock.close()
