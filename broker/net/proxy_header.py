"""The header of the PROXY protocol, versions 1 and 2: with it a load balancer says who the client is.

Offsets and values are those of https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt, sections 2.1 and 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from trunkline.broker.net.other_protocols import guess_unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of a header of version 1 with its line end, and of one of version 2 after its first 16 bytes. The latter may
#: hold a client certificate.
MAX_V1: Final = 107
MAX_V2: Final = 8_192

_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = 16
#: Commands.
_LOCAL, _PROXY = 0x20, 0x21
#: Address families with their transport, and how long their two addresses and ports are.
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_SIZES: Final = {_UNSPECIFIED: 0, _TCP4: 12, _TCP6: 36, _UNIX: 216}
#: Types of additional values.
_ALPN, _AUTHORITY, _CRC32C, _SSL, _SSL_CN = 0x01, 0x02, 0x03, 0x20, 0x22
_READ: Final = (_ALPN, _AUTHORITY, _CRC32C, _SSL, _SSL_CN)
#: Flags of `_SSL`: the client has shown a certificate in this connection, or in one of its TLS session.
_SHOWN: Final = 0x02 | 0x04


def _shifted(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 & -(byte & 1))
    return byte


_CRC_TABLE: Final = [_shifted(byte) for byte in range(256)]


class HeaderError(Exception):
    """This is not a valid header."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    #: Address and port of the client; None if the header has none.
    peer: tuple[str, int] | None = None
    #: The load balancer itself has connected, to see if the broker is there.
    local: bool = False
    #: The host name that the client asked for, and the protocol that was agreed on, in TLS.
    server_name: str = ""
    alpn: str = ""
    #: The common name in the client's certificate, if the load balancer has verified that.
    common_name: str = ""


def read_header(data: bytes) -> tuple[ProxyHeader, int] | None:
    """The header with which these bytes begin, and its length; None if it is not complete.

    Raises:
        HeaderError: they do not begin with a valid header.
    """
    if data[:6] == _V1[: len(data)]:
        return _read_v1(data)
    if data[:12] == _V2[: len(data)]:
        return _read_v2(data)
    raise HeaderError(guess_unwrapped(data) or "the connection does not begin with one")


def _read_v1(data: bytes) -> tuple[ProxyHeader, int] | None:
    end = data.find(b"\r\n", 0, MAX_V1)
    if end < 0:
        if len(data) >= MAX_V1:
            raise HeaderError(f"version 1 has at most {MAX_V1} bytes")
        return None
    try:
        words = data[:end].decode("ascii").split(" ")
        if words[1] == "UNKNOWN":
            return ProxyHeader(), end + 2
        _, protocol, source, destination, port, own_port = words
        address = {"TCP4": IPv4Address, "TCP6": IPv6Address}[protocol]
        address(destination)
        _port(own_port)
        return ProxyHeader((str(address(source)), _port(port))), end + 2
    except (ValueError, KeyError) as error:
        raise HeaderError(f"its line is not valid: {data[:end]!r}") from error


def _port(text: str) -> int:
    port = int(text)
    if str(port) != text or not 0 <= port <= 65_535:
        raise ValueError(text)
    return port


def _read_v2(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) < _FIXED:
        return None
    command, family = data[12], data[13]
    end = _FIXED + int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise HeaderError(f"version and command are {command:#04x}")
    if command == _PROXY and family not in _SIZES:
        raise HeaderError(f"family and transport are {family:#04x}")
    if end > _FIXED + MAX_V2:
        raise HeaderError(f"it has {end} bytes, and {_FIXED + MAX_V2} are allowed")
    if len(data) < end:
        return None
    if command == _LOCAL:
        return ProxyHeader(local=True), end
    after = _FIXED + _SIZES[family]
    if after > end:
        raise HeaderError("it is too short for its addresses")
    peer = None
    if family == _TCP4:
        peer = str(IPv4Address(data[16:20])), int.from_bytes(data[24:26], "big")
    elif family == _TCP6:
        peer = str(IPv6Address(data[16:32])), int.from_bytes(data[48:50], "big")
    return _with_values(peer, data[:end], after), end


def _with_values(peer: tuple[str, int] | None, header: bytes, after: int) -> ProxyHeader:
    server_name = alpn = common_name = ""
    for kind, start, end in _values(header, after):
        value = header[start:end]
        if kind == _ALPN:
            alpn = _text(value)
        elif kind == _AUTHORITY:
            server_name = _text(value)
        elif kind == _CRC32C:
            if value != crc32c(header[:start] + bytes(4) + header[end:]).to_bytes(4, "big"):
                raise HeaderError("its checksum is wrong")
        elif kind == _SSL:
            if len(value) < 5:
                raise HeaderError("a value is too short")
            shown, verified = value[0] & _SHOWN, value[1:5] == bytes(4)
            for inner, begin, over in _values(value, 5):
                if inner == _SSL_CN and shown and verified:
                    common_name = _text(value[begin:over])
    return ProxyHeader(peer, False, server_name, alpn, common_name)


def _values(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of each value; of those that are read here, a type that comes twice is refused."""
    seen: set[int] = set()
    while at < len(data):
        start = at + 3
        end = start + int.from_bytes(data[at + 1 : start], "big")
        if start > len(data) or end > len(data):
            raise HeaderError("a value goes beyond its end")
        kind = data[at]
        if kind in seen and kind in _READ:
            raise HeaderError(f"the value {kind:#04x} comes twice")
        seen.add(kind)
        yield kind, start, end
        at = end


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise HeaderError("a value is not UTF-8") from error


def crc32c(data: bytes) -> int:
    """The checksum of RFC 4960, appendix B."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = (checksum >> 8) ^ _CRC_TABLE[(checksum ^ byte) & 0xFF]
    return checksum ^ 0xFFFFFFFF
