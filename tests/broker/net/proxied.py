"""PROXY protocol headers as a load balancer writes them."""

import struct
from ipaddress import IPv4Address, ip_address

from trunkline.broker.net.proxy_header import crc32c


def v1(peer: tuple[str, int]) -> bytes:
    protocol, own = ("TCP6", "::1") if ":" in peer[0] else ("TCP4", "127.0.0.1")
    return f"PROXY {protocol} {peer[0]} {own} {peer[1]} 1883\r\n".encode()


def raw_v2(command: int, family: int, rest: bytes) -> bytes:
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", command, family, len(rest)) + rest


def v2(peer: tuple[str, int] | None, values: bytes = b"", *, command: int = 0x21) -> bytes:
    if peer is None:
        return raw_v2(command, 0, values)
    address = ip_address(peer[0])
    addresses = address.packed + bytes(len(address.packed)) + struct.pack("!HH", peer[1], 1883)
    return raw_v2(command, 0x11 if isinstance(address, IPv4Address) else 0x21, addresses + values)


def value(kind: int, data: bytes) -> bytes:
    return struct.pack("!BH", kind, len(data)) + data


def ssl(common_name: str, *, client: int = 0x03, verify: int = 0) -> bytes:
    inner = value(0x21, b"TLSv1.3") + value(0x22, common_name.encode())
    return value(0x20, struct.pack("!BI", client, verify) + inner)


def with_checksum(peer: tuple[str, int], values: bytes) -> bytes:
    without = v2(peer, values + value(3, bytes(4)))
    return without[:-4] + struct.pack("!I", crc32c(without))
