from collections.abc import Callable

import pytest

from trunkline.mqtt.errors import MalformedPacket, ProtocolError
from trunkline.mqtt.reader import Reader
from trunkline.mqtt.versions import Version

DATA = bytes.fromhex("01 0203 04050607 8001 0002 c3a4 0001 ff 0009 2a2b")


def reader(data: bytes = DATA, end: int | None = None) -> Reader:
    return Reader(data, 0, len(data) if end is None else end, Version.V5)


def test_reads_one_after_the_other() -> None:
    source = reader()
    assert source.byte() == 1
    assert source.two_bytes() == 0x0203
    assert source.four_bytes() == 0x04050607
    assert source.variable_integer() == 128
    assert source.string() == "ä"
    assert source.binary() == b"\xff"
    assert source.packet_id() == 9
    assert source.more()
    assert source.rest() == b"*+"
    assert not source.more()
    source.finish()


@pytest.mark.parametrize(
    ("read", "needs"),
    [
        (Reader.byte, 1),
        (Reader.two_bytes, 2),
        (Reader.four_bytes, 4),
        (Reader.packet_id, 2),
        (Reader.binary, 5),
        (Reader.string, 5),
        (Reader.variable_integer, 2),
    ],
)
def test_never_reads_past_its_end(read: Callable[[Reader], object], needs: int) -> None:
    """Although there are more bytes after it."""
    data = b"\x80\x01\0\0" if read is Reader.variable_integer else b"\0\3abc\0\3"
    read(reader(data, needs))
    for end in range(needs):
        with pytest.raises(MalformedPacket):
            read(reader(data, end))


def test_refuses_what_is_left_over() -> None:
    source = reader()
    source.byte()
    with pytest.raises(MalformedPacket, match=f"{len(DATA) - 1} bytes more"):
        source.finish()


def test_refuses_packet_identifier_0() -> None:
    """[MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT3-2.3.1-1]"""
    with pytest.raises(ProtocolError) as caught:
        reader(b"\0\0").packet_id()
    assert not isinstance(caught.value, MalformedPacket)


def test_refuses_a_fifth_byte() -> None:
    with pytest.raises(MalformedPacket, match="fifth"):
        reader(b"\x80\x80\x80\x80\1").variable_integer()
