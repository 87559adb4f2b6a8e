"""Streams to servers: TCP, and TLS over it."""

from __future__ import annotations

import ssl
from contextlib import suppress
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import TYPE_CHECKING

import trio

from trunkline.network_errors import NETWORK_ERRORS

if TYPE_CHECKING:
    from trunkline.nats.client.settings import Address


async def open_tcp(address: Address) -> trio.SocketStream:
    """Raises OSError if there is no connection."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    stream.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    return stream


async def encrypt(stream: trio.SocketStream, address: Address, context: ssl.SSLContext | None) -> trio.abc.Stream:
    """Raises one of `NETWORK_ERRORS`; the stream is closed then."""
    encrypted: trio.SSLStream[trio.SocketStream] = trio.SSLStream(
        stream,
        context or ssl.create_default_context(),
        server_hostname=address.tls_name or address.host,
        https_compatible=True,
    )
    try:
        await encrypted.do_handshake()
    except BaseException:
        with suppress(*NETWORK_ERRORS):
            await trio.aclose_forcefully(encrypted)
        raise
    return encrypted
