"""Real sockets: TCP, Unix sockets, TLS with and without a client's certificate, WebSocket, and both."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio
from websockets import Subprotocol
from websockets.sync.server import ServerConnection, serve

from trunkline import testing
from trunkline.client.client import Client
from trunkline.client.errors import ConnectFailed
from trunkline.client.settings import ConnectionSettings
from trunkline.client.transport import open_stream
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Connack
from trunkline.mqtt.versions import Version

trustme = pytest.importorskip("trustme")
AUTHORITY = trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The authority's certificate, the server's and the client's."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, certificate in (
        ("server", AUTHORITY.issue_cert("localhost", "127.0.0.1")),
        ("me", AUTHORITY.issue_cert("me")),
    ):
        certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    return tmp_path


def tls(files: Path, **more: object) -> dict[str, object]:
    return {"certificate": str(files / "server.pem"), "key": str(files / "server.pem"), **more}


async def talk(settings: ConnectionSettings) -> None:
    payloads = [b"%d" % number * 1000 for number in range(300)]
    async with Client(settings) as client, await client.subscribe("t", qos=1) as messages:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.publish_many("t", payloads, qos=1))
            got: list[bytes] = []
            async for message in messages:
                got.append(message.payload)
                if len(got) == len(payloads):
                    break
        assert got == payloads


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("version", ["5.0", "3.1.1"])
async def test_plain(scheme: str, version: str) -> None:
    async with testing.broker(listeners=[{"url": f"{scheme}://127.0.0.1:0"}]) as broker:
        await talk(ConnectionSettings.from_url(broker.url, version=version, client_id="c"))


async def test_unix(tmp_path: Path) -> None:
    path = Path(tmp_path.anchor, *tmp_path.parts[1:]) / "s"
    async with testing.broker(listeners=[{"url": f"unix://{path}"}]):
        await talk(ConnectionSettings.from_url(f"unix://{path}"))


@pytest.mark.parametrize("scheme", ["tls", "wss"])
async def test_encrypted(files: Path, scheme: str) -> None:
    async with testing.broker(listeners=[{"url": f"{scheme}://127.0.0.1:0", "tls": tls(files)}]) as broker:
        await talk(ConnectionSettings.from_url(broker.url, ca_file=files / "ca.pem"))
        await talk(ConnectionSettings.from_url(broker.url, ca_file=files / "ca.pem", server_name="localhost"))
        await talk(ConnectionSettings.from_url(broker.url, verify=False))


async def test_a_clients_certificate(files: Path) -> None:
    table = tls(files, client_certificates="required", client_ca=str(files / "ca.pem"))
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": table}]) as broker:
        await talk(ConnectionSettings.from_url(broker.url, ca_file=files / "ca.pem", certificate=files / "me.pem"))


async def fails(settings: ConnectionSettings) -> str:
    with pytest.raises(ConnectFailed) as caught:
        async with Client(settings):
            pytest.fail("it is connected")
    assert caught.value.transient
    return str(caught.value)


async def test_a_server_that_cannot_prove_its_name(files: Path) -> None:
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": tls(files)}]) as broker:
        broker.hook_errors.clear()
        assert "certificate verify failed" in await fails(ConnectionSettings.from_url(broker.url))
        other: Any = {"ca_file": files / "ca.pem", "server_name": "other.example"}
        assert "certificate verify failed" in await fails(ConnectionSettings.from_url(broker.url, **other))


async def test_nobody_listens(tmp_path: Path) -> None:
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        words = await fails(ConnectionSettings(host="127.0.0.1", port=port))
    assert words == f"cannot connect to mqtt://127.0.0.1:{port}: Connection refused"
    assert "No such file" in await fails(ConnectionSettings.from_url(f"unix://{tmp_path}/none"))


async def test_a_missing_file(tmp_path: Path) -> None:
    assert "No such file" in await fails(ConnectionSettings(transport="tls", ca_file=tmp_path / "none.pem"))


async def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no PEM")
    words = await fails(ConnectionSettings(transport="tls", ca_file=tmp_path / "ca.pem"))
    assert words.startswith(f"cannot connect to mqtts://localhost: {tmp_path / 'ca.pem'}: ")
    words = await fails(ConnectionSettings(transport="tls", certificate=tmp_path / "none.pem"))
    assert words.endswith("none.pem: No such file or directory")


async def test_a_certificate_without_its_key(files: Path) -> None:
    AUTHORITY.issue_cert("other").private_key_pem.write_to_path(files / "other.key")
    AUTHORITY.issue_cert("me").cert_chain_pems[0].write_to_path(files / "cert.pem")
    words = await fails(ConnectionSettings(transport="tls", certificate=files / "cert.pem"))
    assert words.endswith("cert.pem: holds no private key: name its file, too")
    assert words.count("cert.pem") == 1
    words = await fails(ConnectionSettings(transport="tls", certificate=files / "cert.pem", key=files / "other.key"))
    assert words.endswith(f"cert.pem: is not the certificate of the key in {files / 'other.key'}")
    (files / "no.key").write_text("no PEM")
    words = await fails(ConnectionSettings(transport="tls", certificate=files / "cert.pem", key=files / "no.key"))
    assert words.endswith(f"cert.pem: the key in {files / 'no.key'} is not PEM")
    (files / "binary.pem").write_bytes(b"\x30\x82\xff\xfe")
    words = await fails(ConnectionSettings(transport="tls", certificate=files / "binary.pem"))
    assert words.endswith("binary.pem: is not pem")


async def test_a_trusted_certificate_of_another_name(files: Path) -> None:
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": tls(files)}]) as broker:
        other: Any = {"server_name": "other.example", "verify_name": False}
        await talk(ConnectionSettings.from_url(broker.url, ca_file=files / "ca.pem", **other))
        broker.hook_errors.clear()
        assert "certificate verify failed" in await fails(ConnectionSettings.from_url(broker.url, **other))


async def test_a_stream_is_opened_when_its_server_has_proved_its_name(files: Path) -> None:
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": tls(files)}]) as broker:
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await open_stream(ConnectionSettings.from_url(broker.url))
        broker.hook_errors.clear()


async def test_tls_towards_a_port_without_it() -> None:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        words = await fails(ConnectionSettings.from_url(broker.url, transport="tls"))
        assert words.startswith(f"cannot connect to mqtts://127.0.0.1:{broker.port}: ")
        assert "Errno" not in words


async def test_files_are_read_at_each_attempt(files: Path) -> None:
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": tls(files)}]) as broker:
        settings = ConnectionSettings.from_url(broker.url, ca_file=files / "later.pem")
        assert "No such file" in await fails(settings)
        (files / "later.pem").write_bytes((files / "ca.pem").read_bytes())
        await talk(settings)


async def test_a_websocket_elsewhere() -> None:
    async with testing.broker(listeners=[{"url": "ws://127.0.0.1:0/here"}]) as broker:
        settings = ConnectionSettings.from_url(broker.url)
        await talk(settings)
        assert "HTTP status 404" in await fails(settings.changed(path="/there"))


async def test_a_websocket_is_closed_in_order() -> None:
    """As an implementation of others sees it."""
    codes: list[int | None] = []

    def speak(connection: ServerConnection) -> None:
        for packet in connection:
            assert isinstance(packet, bytes)
            if packet[0] == 0x10:
                connection.send(encode(Connack(), Version.V5))
        codes.append(connection.close_code)

    with serve(speak, "127.0.0.1", 0, subprotocols=[Subprotocol("mqtt")]) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        async with Client(ConnectionSettings(transport="ws", port=server.socket.getsockname()[1])):
            pass
        server.shutdown()
    thread.join()
    assert codes == [1000]


async def test_the_stream_sends_at_once() -> None:
    async with testing.broker() as broker:
        stream = await open_stream(ConnectionSettings.from_url(broker.url))
        assert isinstance(stream, trio.SocketStream)
        assert stream.getsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY) == 1
        await stream.aclose()
