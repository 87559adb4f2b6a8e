"""The commands with another server: Mosquitto, and its restarts."""

from pathlib import Path

import pytest
import trio
from bench.peers import free_port

from tests.interop.server import Broker, mosquitto, running
from tests.management.client_commands.running import command, run, start

pytestmark = pytest.mark.skipif(mosquitto() is None, reason="needs mosquitto (Debian: mosquitto)")


def words(broker: Broker, name: str, *more: str) -> list[str]:
    return command(name, "-p", str(broker.port), *more)


async def test_each_version_at_each_qos(tmp_path: Path) -> None:
    with running(tmp_path, "mosquitto") as server:
        for version, qos in (("5", "2"), ("311", "1"), ("31", "0")):
            own = ("-V", version, "-q", qos, "-t", f"t/{version}")
            assert await run(words(server, "pub", *own, "-m", "hello", "-r")) == (0, b"", "")
            ended = await run(words(server, "sub", *own, "-C", "1", "-F", "%t %q %r %p"))
            assert ended == (0, f"t/{version} {qos} 1 hello\n".encode(), "")


async def test_what_it_refuses(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read t\n")
    with running(tmp_path, "mosquitto", f"acl_file {rules}\n") as server:
        ended = await run(words(server, "pub", "-t", "t", "-m", "x", "-q", "1"))
        # Mosquitto 2.0.11 may close the connection behind the PUBACK
        assert ended.err.startswith("trunkline: the server refused the message to t: not authorized (0x87)\n")
        assert ended.code == 5


@pytest.mark.parametrize("persistence", [True, False])
async def test_its_restart(tmp_path: Path, persistence: bool) -> None:
    port = free_port()
    more = f"persistence {str(persistence).lower()}\npersistence_location {tmp_path}/\n"
    # 2.0.11 restores sessions that never expire, and those alone
    async with trio.open_nursery() as nursery:
        with running(tmp_path, "mosquitto", more, port=port) as server:
            process = await start(
                nursery, words(server, "sub", "-c", "-i", "me", "-t", "t", "-q", "1", "-d", "-C", "2", "-v")
            )
            await process.until("subscribed to t")
            assert (await run(words(server, "pub", "-t", "t", "-m", "1", "-q", "1"))).code == 0
            await process.until_output(b"t 1\n")
        await process.until("connecting again")
        with running(tmp_path, "mosquitto", more, port=port) as server:
            if persistence:
                await process.until(f"connected to mqtt://localhost:{port} again")
                assert (await run(words(server, "pub", "-t", "t", "-m", "2", "-q", "1"))).code == 0
            ended = await process.end()
    if persistence:
        assert (ended.code, ended.out.splitlines()[-1]) == (0, b"t 2")
    else:
        assert (ended.code, ended.out) == (6, b"t 1\n")
        assert "the server has lost the session" in ended.err
