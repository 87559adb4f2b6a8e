"""A layer that takes the header of the PROXY protocol off a connection: the client is not the load balancer at the
other end of the socket, but the one that the header names.

Only listed addresses may send a header, because it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from trunkline.broker.net.proxy_header import HeaderError, ProxyHeader, read_header
from trunkline.broker.net.transport import Failed, Layer
from trunkline.hooks.client import read_address
from trunkline.hooks.identity import Certificate, Identity

if TYPE_CHECKING:
    from socket import socket

    from trunkline.actors import Actor, Timer
    from trunkline.broker.net.admission import Admission
    from trunkline.broker.net.transport import Event, Receiver, Transport
    from trunkline.config.layer_settings import ProxyProtocolSettings


class ProxyProtocolLayer(Layer):
    __slots__ = ("_admission", "_entered", "_over", "_settings", "_start", "_timer", "header")

    def __init__(self, below: Transport, settings: ProxyProtocolSettings, admission: Admission) -> None:
        super().__init__(below)
        self._settings = settings
        self._admission = admission
        #: The client's address is counted.
        self._entered = False
        #: None until it has come.
        self.header: ProxyHeader | None = None
        #: The beginning of the header.
        self._start = b""
        self._over = False
        self._timer: Timer

    @property
    def peer(self) -> tuple[str, int] | None:
        """The client, as soon as it is known. A header without an address leaves it at the load balancer."""
        peer = None if self.header is None else self.header.peer
        return peer or self.below.peer

    @property
    def identity(self) -> Identity | None:
        """What the load balancer knows of the client's TLS connection, which ends there."""
        header = self.header
        if header is None or not (header.server_name or header.alpn or header.common_name):
            return self.below.identity
        certificate = Certificate(common_name=header.common_name) if header.common_name else None
        username = header.common_name if self._settings.username_from == "cn" else ""
        return Identity(certificate, username=username, server_name=header.server_name, protocol=header.alpn)

    @property
    def bare(self) -> socket | None:
        return None if self.header is None or self._over else self.below.bare

    def start(self, receiver: Receiver, owner: Actor[Any]) -> None:
        self._timer = owner.call_at(trio.current_time() + self._settings.timeout, self._too_late)
        super().start(receiver, owner)
        if not self._trusts():
            self._fail("a PROXY protocol header is not accepted from this address")

    def _trusts(self) -> bool:
        if self.below.peer is None:
            return True  # a local socket, whose file's permissions say who may connect
        address = read_address(self.below.peer[0])
        return any(address in network for network in self._settings.trusted)

    def receive(self, event: Event) -> None:
        if not isinstance(event, bytes):
            self.above(event)
        elif self._over:
            pass
        elif self.header is not None:
            self.above(event)
        else:
            self._read(self._start + event)

    def _read(self, data: bytes) -> None:
        try:
            found = read_header(data)
        except HeaderError as error:
            self._fail("the PROXY protocol header is not valid", str(error))
            return
        if found is None:
            self._start = data
            return
        self.header, size = found
        self._start = b""
        self._timer.cancel()
        refusal = "" if self.header.local or self.peer is None else self._admission.refusal_of(self.peer[0])
        if refusal:
            self._fail(refusal)
            return
        if not self.header.local:
            self._entered = True
            self._admission.enter(self.peer)
        if size < len(data):
            self.above(data[size:])

    def _too_late(self) -> None:
        self._fail("the PROXY protocol header did not come in time")

    def _fail(self, problem: str, detail: str = "") -> None:
        self._over = True
        self._timer.cancel()
        self.above(Failed(problem, detail))

    def close(self) -> None:
        self._timer.discard()
        if self._entered:
            self._entered = False
            self._admission.leave(self.peer)
        super().close()
