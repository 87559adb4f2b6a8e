"""Recognises other protocols on an MQTT listener. The log names them, because an MQTT error about their bytes helps no
one."""

import re
from typing import Final

_HTTP: Final = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|PRI) [^ \r\n]+ HTTP/")
_WEBSOCKET: Final = re.compile(rb"\r\nUpgrade:[ \t]*websocket", re.IGNORECASE)
_PROXY_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"


def guess(data: bytes) -> str:
    """Which other protocol a connection that begins with these bytes speaks, in words for the log; empty if none is
    known."""
    if data[:2] == b"\x16\x03" and data[5:6] == b"\x01":
        return "this looks like TLS (a TLS ClientHello on a plain listener)"
    if _HTTP.match(data):
        if _WEBSOCKET.search(data):
            return "this looks like MQTT over WebSocket (a request to upgrade on a plain listener)"
        return "this looks like HTTP"
    if data.startswith((b"PROXY ", _PROXY_V2)):
        return "this looks like a PROXY protocol header (a load balancer is set to send one)"
    if data.startswith(b"SSH-"):
        return "this looks like SSH"
    return ""
