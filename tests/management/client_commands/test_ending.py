"""How a command ends: by what goes wrong with the connection, and with what words."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.management.client_commands.running import command, run
from trunkline import testing
from trunkline.client import errors
from trunkline.management.client_commands.ending import exit_code
from trunkline.testing import Broker

trustme = pytest.importorskip("trustme")


async def ends(code: int, *words: str) -> str:
    """Returns the one line that is said."""
    ended = await run(command("pub", "-t", "t", "-m", "x", *words))
    assert (ended.code, ended.out) == (code, b""), ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith("trunkline: ")
    return line.removeprefix("trunkline: ")


@asynccontextmanager
async def server(answer: bytes) -> AsyncGenerator[str, None]:
    """Of another protocol: it reads something, answers and closes."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def test_no_server() -> None:
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        line = await ends(3, "-h", "127.0.0.1", "-p", str(port))
    assert line.startswith(f"cannot connect to mqtt://127.0.0.1:{port}: ")
    assert line.endswith("Connection refused")


async def test_no_such_name() -> None:
    line = await ends(3, "-h", "no.such.name.invalid")
    assert line.startswith("cannot connect to mqtt://no.such.name.invalid: ")


async def test_no_such_socket(tmp_path: Path) -> None:
    assert "No such file" in await ends(3, "--unix", str(tmp_path / "s"))


async def test_another_protocol() -> None:
    async with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert await ends(3, "-L", f"mqtt://{address}") == (
            f"cannot connect to mqtt://{address}: the server speaks HTTP, not MQTT"
        )
        assert "TLS failed" in await ends(3, "-L", f"mqtts://{address}")
        assert "HTTP status 400" in await ends(3, "-L", f"ws://{address}")


async def test_a_server_that_says_nothing() -> None:
    async with server(b"") as address:
        assert (await ends(3, "-L", f"mqtt://{address}")).endswith(f"{address}: the server closed the connection")
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    line = await ends(3, "-h", "127.0.0.1", "-p", str(port), "--connect-timeout", "100ms")
    assert line == f"mqtt://127.0.0.1:{port} did not answer within 0.1 s"
    await listeners[0].aclose()


async def test_certificates(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    (tmp_path / "none.pem").write_text("no certificate")
    server = authority.issue_cert("localhost")
    server.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    table = {"certificate": str(tmp_path / "server.pem"), "key": str(tmp_path / "server.pem")}
    async with testing.broker(listeners=[{"url": "tls://127.0.0.1:0", "tls": table}]) as broker:
        base = ("-h", "127.0.0.1", "-p", str(broker.port))
        assert "unable to get local issuer certificate" in await ends(3, *base, "--tls")
        line = await ends(3, *base, "--cafile", str(tmp_path / "other.pem"))
        assert "certificate verify failed: " in line
        line = await ends(3, *base, "--cafile", str(tmp_path / "ca.pem"))
        assert "certificate verify failed: IP address mismatch" in line
        assert f"{tmp_path / 'none.pem'}: " in await ends(3, *base, "--cafile", str(tmp_path / "none.pem"))
        broker.hook_errors.clear()
        for words in (["--insecure"], ["--server-name", "localhost"]):
            ended = await run(command("pub", *base, "--cafile", str(tmp_path / "ca.pem"), "-t", "t", "-n", *words))
            assert ended == (0, b"", "")
        assert (await run(command("pub", *base, "--no-verify", "-t", "t", "-n"))).code == 0
        line = await ends(3, *base)
        assert "the server closed the connection" in line or "TLS" in line


@pytest.mark.mqtt_broker(users={"ann": "right"}, auth={"allow_anonymous": False})
async def test_credentials(mqtt_broker: Broker, tmp_path: Path) -> None:
    base = ("-p", str(mqtt_broker.port), "-u", "ann")
    for version in ("5", "311"):
        line = await ends(4, *base, "-P", "wrong secret", "-V", version)
        assert line.startswith("the server refused the connection: ")
        assert "secret" not in line
    file = tmp_path / "password"
    file.write_text("right\n")
    assert (await run(command("pub", *base, "-t", "t", "-n", "--password-file", str(file)))).code == 0
    ended = await run(command("pub", *base, "-t", "t", "-n"), environ={"TRUNKLINE_MQTT_PASSWORD": "right"})
    assert ended.code == 0
    assert "cannot be read" in await ends(3, *base, "--password-file", str(tmp_path / "none"))
    assert (await run(command("pub", *base, "-t", "t", "-n", "-P", "x", "--quiet"))).err == ""


async def test_a_message_that_mqtt_cannot_represent(mqtt_broker: Broker) -> None:
    base = ("-p", str(mqtt_broker.port))
    assert "longer than 65535" in await ends(2, *base, "-D", "publish", "content-type", "x" * 70_000)


def test_every_error_of_the_client_has_a_code() -> None:
    """But for those that a user of the command cannot meet."""
    own = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.ClientError)}
    unmet = {"ClientError", "ReasonedError", "ClientClosed", "RequestQueueFull", "RequestDiscarded"}
    unmet |= {"NoResponse", "RequestFailed"}  # of `Client.request`
    for kind in own:
        error = kind.__new__(kind)
        assert (exit_code(error) == 1) == (kind.__name__ in unmet), kind
