"""A stream to the server, by the settings: TCP or a Unix socket, TLS and WebSocket over it."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import TYPE_CHECKING, TypeAlias

import trio

from trunkline.client.errors import ConnectFailed
from trunkline.client.settings import ConnectionSettings
from trunkline.client.settings_sources import MAX_FILE
from trunkline.config.files import read_text
from trunkline.network_errors import NETWORK_ERRORS, reason_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from trunkline.client.websocket import WebSocketStream

#: Opens a stream in place of the one that the settings name, as to a broker in the same process: an async function, or
#: a plain one that does not have to wait.
OpenStream: TypeAlias = Callable[[ConnectionSettings], Awaitable[trio.abc.Stream] | trio.abc.Stream]


async def open_stream(settings: ConnectionSettings) -> trio.abc.Stream:
    """Files are read anew at each call.

    Raises:
        ConnectFailed: there is no connection.
    """
    try:
        return await _opened(settings)
    except NETWORK_ERRORS as error:
        raise ConnectFailed(f"cannot connect to {settings.url}: {reason_of(error)}") from error


@contextmanager
def _naming(file: Path | None) -> Generator[None]:
    """Errors of the TLS library do not name the file."""
    try:
        yield
    except ssl.SSLError as error:
        raise OSError(f"{file}: {(error.reason or 'is not PEM').lower().replace('_', ' ')}") from None
    except OSError as error:
        raise OSError(f"{file}: {error.strerror or error}") from None


@contextmanager
def _naming_pair(certificate: Path, key: Path | None) -> Generator[None]:
    """Nor do they say which of two files it is, or that the other one is missing. `_naming` has the certificate."""
    try:
        yield
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"is not the certificate of the key in {key or certificate}"
        elif not error.reason and b"-----BEGIN CERTIFICATE-----" in certificate.read_bytes():
            why = f"the key in {key} is not PEM" if key else "holds no private key: name its file, too"
        else:
            raise
        raise OSError(why) from None


async def _opened(settings: ConnectionSettings) -> trio.abc.Stream:
    stream: trio.abc.Stream
    context = tls_context(settings) if settings.is_encrypted else None
    if settings.transport == "unix":
        stream = await trio.open_unix_socket(settings.path)
    else:
        tcp = await trio.open_tcp_stream(settings.host, settings.actual_port)
        tcp.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        stream = tcp
    try:
        if context is not None:
            name = settings.server_name or settings.host
            stream = encrypted = trio.SSLStream(stream, context, server_hostname=name, https_compatible=True)
            await encrypted.do_handshake()
        if settings.transport in ("ws", "wss"):
            stream = await _websocket(stream, settings)
    except BaseException:
        with suppress(*NETWORK_ERRORS):
            await trio.aclose_forcefully(stream)
        raise
    return stream


async def _websocket(stream: trio.abc.Stream, settings: ConnectionSettings) -> WebSocketStream:
    from trunkline.client.websocket import WebSocketStream  # brings wsproto

    host = settings.host.partition("%")[0]  # a zone means nothing elsewhere
    host = f"[{host}]" if ":" in host else host
    websocket = WebSocketStream(stream)
    await websocket.handshake(f"{host}:{settings.actual_port}", settings.resource)
    return websocket


def tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    """
    Raises:
        OSError: a file cannot be read, or does not hold what it should.
    """
    with _naming(settings.ca_file):
        context = ssl.create_default_context(cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.transport == "tls":
        context.set_alpn_protocols(["mqtt"])
    if not (settings.verify and settings.verify_name):
        context.check_hostname = False
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
    if settings.certificate is not None:
        password = settings.key_password_file
        with _naming(settings.certificate), _naming_pair(settings.certificate, settings.key):
            context.load_cert_chain(
                settings.certificate,
                settings.key,
                "" if password is None else lambda: read_text(password, MAX_FILE).rstrip("\r\n"),
            )
    return context
