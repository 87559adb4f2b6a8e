from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.broker.net import proxied
from trunkline.broker.net.proxy_header import MAX_V1, MAX_V2, HeaderError, ProxyHeader, crc32c, read_header

V1 = [
    pytest.param("TCP4 192.0.2.7 198.51.100.1 56324 1883", ("192.0.2.7", 56324), id="IPv4"),
    pytest.param("TCP6 2001:db8::7 2001:DB8::1 1 65535", ("2001:db8::7", 1), id="IPv6"),
    pytest.param("UNKNOWN", None, id="unknown"),
    pytest.param("UNKNOWN " + "f" * 39 + " " + "f" * 39 + " 65535 65535", None, id="unknown with addresses"),
]


@pytest.mark.parametrize(("line", "peer"), V1)
def test_version_1(line: str, peer: tuple[str, int] | None) -> None:
    data = f"PROXY {line}\r\n".encode()
    for end in range(len(data)):
        assert read_header(data[:end]) is None
    assert read_header(data + b"\x10\0") == (ProxyHeader(peer), len(data))


@pytest.mark.parametrize(
    "line",
    [
        "TCP4 192.0.2.7 198.51.100.1 1",
        "TCP4 192.0.2.7 198.51.100.1 1 1 1",
        "TCP4  192.0.2.7 198.51.100.1 1 1",
        "TCP4 192.0.2.07 198.51.100.1 1 1",
        "TCP4 192.0.2.7 broker 1 1",
        "TCP4 ::1 ::1 1 1",
        "TCP6 192.0.2.7 198.51.100.1 1 1",
        "TCP4 192.0.2.7 198.51.100.1 01 1",
        "TCP4 192.0.2.7 198.51.100.1 -1 1",
        "TCP4 192.0.2.7 198.51.100.1 1 65536",
        "UDP4 192.0.2.7 198.51.100.1 1 1",
        "tcp4 192.0.2.7 198.51.100.1 1 1",
        "TCP4 192.0.2.\xe9 198.51.100.1 1 1",
        "",
    ],
)
def test_version_1_that_is_not_valid(line: str) -> None:
    with pytest.raises(HeaderError, match="line is not valid"):
        read_header(f"PROXY {line}\r\n".encode("latin-1"))


def test_version_1_is_bounded() -> None:
    assert read_header(b"PROXY UNKNOWN".ljust(MAX_V1 - 1)) is None
    with pytest.raises(HeaderError, match="at most 107 bytes"):
        read_header(b"PROXY UNKNOWN".ljust(MAX_V1))


@pytest.mark.parametrize("peer", [("192.0.2.7", 56324), ("2001:db8::7", 1), ("::ffff:192.0.2.7", 65535)])
def test_version_2(peer: tuple[str, int]) -> None:
    data = proxied.v2(peer)
    for end in range(len(data)):
        assert read_header(data[:end]) is None
    found = read_header(data + b"\x10\0")
    assert found is not None
    header, size = found
    assert (ip_address(header.peer[0]), header.peer[1]) == (ip_address(peer[0]), peer[1])  # type: ignore[index]
    assert size == len(data)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        pytest.param(proxied.v2(None, command=0x20), ProxyHeader(local=True), id="LOCAL"),
        pytest.param(proxied.v2(("192.0.2.7", 1), command=0x20), ProxyHeader(local=True), id="LOCAL with an address"),
        pytest.param(proxied.v2(None), ProxyHeader(), id="unknown"),
        pytest.param(proxied.raw_v2(0x21, 0x31, bytes(216)), ProxyHeader(), id="Unix socket"),
        pytest.param(proxied.raw_v2(0x20, 0x99, b"?"), ProxyHeader(local=True), id="LOCAL with anything"),
    ],
)
def test_version_2_without_an_address(data: bytes, header: ProxyHeader) -> None:
    assert read_header(data) == (header, len(data))


def test_additional_values() -> None:
    values = proxied.value(1, b"mqtt") + proxied.value(2, b"broker.example") + proxied.value(0xE0, b"unknown")
    values += proxied.ssl(common_name="Sensor 7") + proxied.value(4, bytes(9))
    found = read_header(proxied.v2(("192.0.2.7", 1), values))
    assert found is not None
    assert found[0] == ProxyHeader(("192.0.2.7", 1), False, "broker.example", "mqtt", "Sensor 7")


@pytest.mark.parametrize(
    "ssl", [proxied.ssl("Sensor 7", verify=1), proxied.ssl("Sensor 7", client=0x01), proxied.ssl("", client=0)]
)
def test_a_certificate_that_was_not_verified_names_nobody(ssl: bytes) -> None:
    found = read_header(proxied.v2(("192.0.2.7", 1), ssl))
    assert found is not None
    assert found[0].common_name == ""


def test_the_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    data = proxied.with_checksum(("192.0.2.7", 1), proxied.value(1, b"mqtt"))
    assert read_header(data) is not None
    for at in range(16, len(data) - 7):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(HeaderError):
            read_header(changed)


BROKEN = [
    pytest.param(proxied.raw_v2(0x11, 0x11, bytes(12)), "version and command are 0x11", id="version"),
    pytest.param(proxied.raw_v2(0x22, 0x11, bytes(12)), "version and command are 0x22", id="command"),
    pytest.param(proxied.raw_v2(0x21, 0x12, bytes(12)), "family and transport are 0x12", id="datagrams"),
    pytest.param(proxied.raw_v2(0x21, 0x11, bytes(11)), "too short", id="short IPv4"),
    pytest.param(proxied.raw_v2(0x21, 0x21, bytes(35)), "too short", id="short IPv6"),
    pytest.param(proxied.raw_v2(0x21, 0x11, bytes(MAX_V2 + 1)), "are allowed", id="long"),
    pytest.param(proxied.v2(None, b"\1\0"), "beyond its end", id="half a value"),
    pytest.param(proxied.v2(None, b"\1\0\2a"), "beyond its end", id="value cut"),
    pytest.param(proxied.v2(None, proxied.value(1, b"\xff")), "UTF-8", id="not UTF-8"),
    pytest.param(proxied.v2(None, proxied.value(0x20, b"\1")), "too short", id="half of SSL"),
    pytest.param(proxied.v2(None, proxied.value(0x20, b"\3\0\0\0\0\x22\0\1")), "beyond its end", id="value in SSL"),
    pytest.param(proxied.v2(None, proxied.value(1, b"mqtt") * 2), "0x01 comes twice", id="two protocols"),
    pytest.param(proxied.v2(None, proxied.value(2, b"a") + proxied.value(2, b"b")), "0x02 comes twice", id="two names"),
    pytest.param(proxied.v2(None, proxied.ssl("a") + proxied.ssl("b")), "0x20 comes twice", id="two certificates"),
    pytest.param(
        proxied.v2(None, proxied.value(0x20, b"\7\0\0\0\0" + proxied.value(0x22, b"a") + proxied.value(0x22, b"b"))),
        "0x22 comes twice",
        id="two common names",
    ),
    pytest.param(b"\x10\x0d\0\4MQTT", "looks like MQTT", id="MQTT"),
    pytest.param(b"PROXZ", "does not begin", id="nearly"),
    pytest.param(b"\r\n\r\n\0\r\nQUIX", "does not begin", id="nearly version 2"),
]


@pytest.mark.parametrize(("data", "error"), BROKEN)
def test_what_is_no_header(data: bytes, error: str) -> None:
    with pytest.raises(HeaderError, match=error):
        read_header(data)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=100).map(lambda data: b"PROXY " + data + b"\r\n"),
        st.builds(proxied.raw_v2, st.sampled_from([0x20, 0x21]), st.integers(0, 255), st.binary(max_size=300)),
    )
)
@example(b"PROXY TCP4 1 2 3 " + "٣".encode() + b"\r\n")
def test_any_bytes_give_a_header_or_its_error(data: bytes) -> None:
    try:
        found = read_header(data)
    except HeaderError:
        return
    if found is not None:
        assert 0 < found[1] <= len(data)
