"""How a connection over TLS or WebSocket begins: as with a real server, whichever side speaks first."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from bench.peers import free_port

from tests.nats.servers import KINDS, running
from trunkline import testing

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator
    from pathlib import Path

PATIENCE = 30
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PATIENT: dict[str, Any] = {"handshake_wait": "5m", "handshake_timeout": "10m"}
#: Settings here, those of a server that mean the same, and which servers have them.
ALIKE: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "behind": ({"handshake_first": "never"}, "", KINDS),
    "first": ({"handshake_first": "always"}, "handshake_first: true", ("new",)),
    "either": ({}, "handshake_first: auto", ("new",)),
    "patient": (PATIENT, 'handshake_first: "60s"', ("new",)),
    "mutual": ({"client_certificates": "required"}, "verify: true", KINDS),
}
CASES = [(name, kind) for name, (_, _, kinds) in ALIKE.items() for kind in kinds]


@contextmanager
def both(name: str, kind: str, folder: Path) -> Generator[tuple[ssl.SSLContext, list[tuple[int, int]]]]:
    """A context of clients; and the ports for TLS, and for WebSocket over TLS, of the listener and of a server."""
    tls, words, _ = ALIKE[name]
    below = {"client_certificates": "required"} if name == "mutual" else {}
    listeners = [
        {"name": "tls", "url": "nats+tls://127.0.0.1:0", "tls": tls},
        {"name": "wss", "url": "nats+wss://127.0.0.1:0", "tls": below},
    ]
    with testing.broker(listeners=listeners) as broker:
        files = broker.certificates
        keys = f'cert_file: "{files.server}", key_file: "{files.server_key}", ca_file: "{files.authority}"'
        port, verify = free_port(), words if name == "mutual" else ""
        (folder / "conf").write_text(
            f'tls {{ {keys}, {words} }}\nwebsocket {{ listen: "127.0.0.1:{port}", tls {{ {keys}, {verify} }} }}\n'
        )
        own = (broker.listeners["tls"].port, broker.listeners["wss"].port)
        with running(kind, folder, "-c", str(folder / "conf")) as server:
            context = broker.client_context()
            context.load_cert_chain(files.server, files.server_key)  # Go takes no certificate without a host's name
            yield context, [own, (server.port, port)]


def tls_in(said: bytes) -> dict[str, bool]:
    """What INFO says of it."""
    _, found, info = said.partition(b"INFO ")
    assert found, said
    return {key: value for key, value in json.loads(info).items() if key.startswith("tls")}


def all_said(sock: socket.socket) -> bytes:
    """Until a line ends, or the connection."""
    said = b""
    while not said.endswith(b"\r\n"):
        try:
            data = sock.recv(65_536)
        except ConnectionResetError:
            data = b""
        if not data:
            break
        said += data
    return said


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def secured(context: ssl.SSLContext, sock: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(sock, server_hostname="localhost")


def begins_with_the_handshake(context: ssl.SSLContext, port: int) -> object:
    with secured(context, dial(port)) as sock:
        told = tls_in(all_said(sock))
        sock.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        return told, all_said(sock)


def waits_for_info(context: ssl.SSLContext, port: int) -> object:
    with dial(port) as sock:
        told = tls_in(all_said(sock))
        with secured(context, sock) as inside:
            inside.sendall(b"PING\r\n")
            return told, all_said(inside)


def speaks_in_clear_at_once(context: ssl.SSLContext, port: int) -> object:
    """A server says nothing more; whether INFO was quicker is chance where it does not wait."""
    del context
    with dial(port) as sock:
        sock.sendall(b"CONNECT {}\r\nPING\r\n")
        said = all_said(sock)
        return (said[:5] if said else b"") in (b"", b"INFO "), all_said(sock) if said else b""


def speaks_in_clear_behind_info(context: ssl.SSLContext, port: int) -> object:
    del context
    with dial(port) as sock:
        told = tls_in(all_said(sock))
        sock.sendall(b"CONNECT {}\r\nPING\r\n")
        return told, all_said(sock)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_connection_begins_as_with_a_server(name: str, kind: str, tmp_path: Path) -> None:
    scenes: list[Any] = [speaks_in_clear_at_once]
    if name in ("first", "patient"):
        scenes.append(begins_with_the_handshake)
    else:
        scenes += [waits_for_info, speaks_in_clear_behind_info]
    with both(name, kind, tmp_path) as (context, ports):
        for scene in scenes:
            mine, theirs = (scene(context, port) for port, _ in ports)
            assert mine == theirs, scene.__name__


@pytest.mark.parametrize("name", ["behind", "mutual"])
def test_info_over_websocket_says_what_the_newer_server_says(name: str, tmp_path: Path) -> None:
    def told(context: ssl.SSLContext, port: int) -> object:
        with secured(context, dial(port)) as sock:
            sock.sendall(UPGRADE)
            said = b""
            while b"INFO " not in said or not said.endswith(b"\r\n"):
                said += sock.recv(65_536)
            return tls_in(said)

    with both(name, "new", tmp_path) as (context, ports):
        mine, theirs = (told(context, port) for _, port in ports)
    assert mine == theirs
