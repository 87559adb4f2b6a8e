"""Recognises a protocol that a listener does not speak. The log names it, because an error about its bytes helps no
one."""

import re
from typing import Final

_HTTP: Final = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|PRI) [^ \r\n]+ HTTP/")
_WEBSOCKET: Final = re.compile(rb"\r\nUpgrade:[ \t]*websocket", re.IGNORECASE)
_PROXY_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_NATS: Final = re.compile(rb"(?:CONNECT[ \t]+\{|PING\r?\n)", re.IGNORECASE)
_MQTT: Final = re.compile(rb"\x10[\x80-\xff]{0,3}[\0-\x7f]\0(?:\x04MQTT|\x06MQIsdp)")


def guess(data: bytes) -> str:
    """Which other protocol a connection that begins with these bytes speaks, in words for the log; empty if none is
    known."""
    if data[:2] == b"\x16\x03" and data[5:6] == b"\x01":
        return "this looks like TLS (a TLS ClientHello on a plain listener)"
    if _HTTP.match(data):
        if _WEBSOCKET.search(data):
            return "this looks like MQTT over WebSocket (its listeners have ws:// or wss:// URLs)"
        return "this looks like HTTP"
    if data.startswith((b"PROXY ", _PROXY_V2)):
        return "this looks like a PROXY protocol header (a listener with `proxy_protocol.trusted` takes one, not two)"
    if data.startswith(b"SSH-"):
        return "this looks like SSH"
    if _NATS.match(data):
        return "this looks like NATS (its listeners have nats:// URLs)"
    return ""


def guess_in_clear(data: bytes) -> str:
    """As `guess`, where TLS comes first."""
    if data[0] == 0x10 and b"MQ" in data[:8]:
        return "this looks like MQTT without TLS"
    if _NATS.match(data):
        return "this looks like NATS without TLS"
    return guess(data)


def guess_beside_nats(data: bytes) -> str:
    """As `guess`, where NATS comes first, of which `data` may be a part."""
    if _MQTT.match(data):
        return "this looks like MQTT (its listeners have tcp:// URLs)"
    if _HTTP.match(data) and _WEBSOCKET.search(data):
        return "this looks like WebSocket (its listeners have nats+ws:// or nats+wss:// URLs)"
    return "" if _NATS.match(data) else guess(data)


def guess_unwrapped(data: bytes) -> str:
    """As `guess`, where something else than MQTT comes first."""
    if _MQTT.match(data):
        return "this looks like MQTT without anything around it (its listeners have tcp:// URLs)"
    return guess(data)
