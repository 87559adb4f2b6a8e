"""The few packets that the generator sends, encoded beforehand.

Deliberately not `trunkline.mqtt`: a generator that shares the broker's codec would hide the codec's mistakes.
"""

import socket
import struct

from bench.transport import Transport, layered

V311 = 4
V5 = 5


def _length(value: int) -> bytes:
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + _length(len(body)) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("!H", len(raw)) + raw


def _no_properties(version: int) -> bytes:
    return b"\0" if version == V5 else b""


def connect(client_id: str, version: int, *, stays: bool = False, will: str = "") -> bytes:
    """Without keep-alive; a session that ends with the connection, or one that `stays`; a will to this topic."""
    properties = b"" if version != V5 else b"\x05\x11\xff\xff\xff\xff" if stays else b"\0"
    flags = (0x00 if stays else 0x02) | (0x0C if will else 0x00)
    payload = _string(client_id) + (_no_properties(version) + _string(will) + _string("gone") if will else b"")
    return packet(0x10, b"\0\4MQTT" + bytes([version, flags, 0, 0]) + properties + payload)


def subscribe(topic_filter: str, qos: int, version: int, packet_id: int = 1) -> bytes:
    return subscribe_all([topic_filter], qos, version, packet_id)


def subscribe_all(filters: list[str], qos: int, version: int, packet_id: int = 1) -> bytes:
    """One SUBSCRIBE with any number of filters."""
    asked = b"".join([_string(topic_filter) + bytes([qos]) for topic_filter in filters])
    return packet(0x82, struct.pack("!H", packet_id) + _no_properties(version) + asked)


def unsubscribe(topic_filter: str, version: int, packet_id: int) -> bytes:
    return packet(0xA2, struct.pack("!H", packet_id) + _no_properties(version) + _string(topic_filter))


def publish(topic: str, payload: bytes, qos: int, version: int, packet_id: int = 0, *, retain: bool = False) -> bytes:
    identifier = struct.pack("!H", packet_id) if qos else b""
    return packet(0x30 | qos << 1 | retain, _string(topic) + identifier + _no_properties(version) + payload)


def header_size(data: bytes) -> int:
    """Bytes of a packet before its body: one, and one to four for the length. All of them must be there."""
    size = 2
    while data[size - 1] & 0x80:
        size += 1
    return size


DISCONNECT = b"\xe0\0"
PINGREQ = b"\xc0\0"


class Refused(Exception):
    """The broker did not take a CONNECT or a SUBSCRIBE."""


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise Refused("closed by the broker during the handshake")
        data += more
    return data


def read_packet(sock: socket.socket) -> tuple[int, bytes]:
    """Blocking; byte by byte where it must be, so that nothing of the next packet is taken."""
    first = _receive(sock, 1)[0]
    length = shift = 0
    while True:
        digit = _receive(sock, 1)[0]
        length |= (digit & 0x7F) << shift
        if digit < 0x80:
            break
        shift += 7
    return first, _receive(sock, length)


def open_connection(
    address: tuple[str, int],
    client_id: str,
    version: int,
    filters: list[str] | None = None,
    qos: int = 0,
    *,
    stays: bool = False,
    transport: Transport = "tcp",
) -> socket.socket:
    """A connected client that is subscribed to the filters; the socket doesn't block afterwards."""
    sock = layered(socket.create_connection(address, timeout=60), transport)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(connect(client_id, version, stays=stays))
    first, body = read_packet(sock)
    if first != 0x20 or body[1] != 0:
        raise Refused(f"CONNECT was answered with {first:#x} {body[:8].hex()}")
    for topic_filter in filters or ():
        sock.sendall(subscribe(topic_filter, qos, version))
        first, body = read_packet(sock)
        if first != 0x90 or body[-1] != qos:
            raise Refused(f"SUBSCRIBE was answered with {first:#x} {body[:8].hex()}")
    sock.setblocking(False)
    return sock


def publish_frames(topics: list[str], payload: bytes, qos: int, version: int, number: int) -> list[bytes]:
    """Frames of one length; with QoS, packet ids from 1 upwards."""
    frames = [
        publish(topics[index % len(topics)], payload, qos, version, index + 1 if qos else 0) for index in range(number)
    ]
    assert len({len(frame) for frame in frames}) == 1, "all frames must have one length"
    return frames


def payload_of(size: int) -> bytes:
    return struct.pack("!Q", 0x0123456789ABCDEF) * (size // 8) + b"." * (size % 8)


def ring(frames: list[bytes], at_least: int) -> bytes:
    """The frames over and over, whole rounds only."""
    once = b"".join(frames)
    return once * max(1, -(-at_least // len(once)))
