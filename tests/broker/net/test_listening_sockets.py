import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline import testing
from trunkline.broker.net import listening_sockets
from trunkline.broker.net.listening_sockets import BoundSocket, open_sockets, passed_sockets
from trunkline.config.listener_settings import ListenerSettings

unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")


#: Becomes a Python with these arguments, as systemd starts it.
PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


async def opened(url: str, **settings: object) -> list[BoundSocket]:
    return await open_sockets(ListenerSettings.model_validate({"url": url, **settings}))


def close(sockets: list[BoundSocket]) -> None:
    for each in sockets:
        each.close()


async def test_all_addresses_get_one_port() -> None:
    sockets = await opened("tcp://*:0")
    hosts, ports = zip(*(each.address for each in sockets), strict=True)
    close(sockets)
    assert set(hosts) <= {"0.0.0.0", "::"}
    assert len(set(ports)) == 1


async def test_a_system_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = listening_sockets._bind  # pyright: ignore[reportPrivateUsage]

    def only_ipv4(family: int, *rest: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return bind(family, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(listening_sockets, "_bind", only_ipv4)
    sockets = await opened("tcp://*:0")
    assert [each.address[0] for each in sockets] == ["0.0.0.0"]
    close(sockets)
    with pytest.raises(OSError, match="not supported"):
        await opened("tcp://[::1]:0")


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this system does not have it")
async def test_two_on_one_port() -> None:
    first = await opened("tcp://127.0.0.1:0", reuse_port=True)
    port = first[0].address[1]
    second = await opened(f"tcp://127.0.0.1:{port}", reuse_port=True)
    with pytest.raises(OSError, match="in use"):
        await opened(f"tcp://127.0.0.1:{port}")
    close(first + second)


@unix
async def test_a_socket_of_a_process_that_is_gone_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    close(await opened(f"unix://{path}"))
    assert not path.exists()


@unix
async def test_a_socket_of_a_running_process_stays(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    first = await opened(f"unix://{path}")
    with pytest.raises(OSError, match="another process listens there"):
        await opened(f"unix://{path}")
    assert path.exists()
    close(first)


@unix
async def test_another_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    path.write_text("precious")
    with pytest.raises(OSError, match=re.escape(f"{path} is not a socket, and stays")):
        await opened(f"unix://{path}")
    assert path.read_text() == "precious"


@unix
async def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        await opened(f"unix://{tmp_path / ('a' * 120)}")


@unix
async def test_the_file_of_another_broker_stays(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    first = await opened(f"unix://{path}")
    path.unlink()
    second = await opened(f"unix://{path}")
    close(first)
    assert path.exists()
    close(second)


def environ(count: int, names: str = "") -> dict[str, str]:
    named = {"LISTEN_FDNAMES": names} if names else {}
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count), **named}


def test_sockets_of_systemd() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        port = given.getsockname()[1]
        sockets = passed_sockets("mqtt", unix=False, environ=environ(1, "mqtt"), first=given.fileno())
        assert [each.address for each in sockets] == [("127.0.0.1", port)]
        close(sockets)
        (unnamed,) = passed_sockets("unknown", unix=False, environ=environ(1), first=given.fileno())
        unnamed.close()
        socket.create_connection(("127.0.0.1", port)).close()  # systemd's own stays open
        for problem, asked, is_unix, where in (
            ("systemd passes no socket 'x': it passes mqtt", "x", False, environ(1, "mqtt")),
            ("systemd passes no socket 'mqtt': it passes none", "mqtt", False, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}),
            ("the socket 'mqtt' of systemd is not a Unix socket", "mqtt", True, environ(1, "mqtt")),
        ):
            with pytest.raises(OSError, match=re.escape(problem)):
                passed_sockets(asked, unix=is_unix, environ=where, first=given.fileno())


@pytest.mark.skipif(sys.platform != "linux", reason="systemd runs on Linux")
def test_a_broker_that_systemd_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        listen = "tcp://127.0.0.1:1?systemd_socket=mqtt&allow_anonymous=yes"
        serve = ["-m", "trunkline", "serve", "--no-config", "--listen", listen]
        environment = {
            **os.environ,
            "TRUNKLINE_STORE__DURABILITY": "memory",
            "TRUNKLINE_CONTROL__ENABLED": "no",
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": "mqtt",
        }
        with subprocess.Popen(
            [sys.executable, "-c", PASS_SOCKET, str(given.fileno()), *serve],
            pass_fds=[given.fileno()],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if b"serving" in line:
                        break
                with socket.create_connection(given.getsockname()) as client:
                    client.settimeout(60)
                    client.sendall(bytes.fromhex("100d 0004 4d515454 0402 003c 0001 61"))
                    assert client.recv(4) == bytes.fromhex("20020000")
            finally:
                process.terminate()


async def test_a_missing_socket_of_systemd_is_one_line() -> None:
    url = "tcp://127.0.0.1:1?systemd_socket=mqtt&allow_anonymous=yes"
    with pytest.raises(Exception, match="cannot listen on tcp://127.0.0.1:1: systemd passes no socket 'mqtt'"):
        async with testing.broker(listeners=[url]):
            raise AssertionError("it listens")
