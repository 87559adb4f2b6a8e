"""Connections that are lost and made again, with real servers."""

import logging
from pathlib import Path

import pytest
import trio
from bench.peers import free_port

from tests.nats.client.scripted import Told
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import Client, connect
from trunkline.nats.client.credentials import Key, seed_of
from trunkline.nats.client.events import Disconnected, Discovered, Reconnected, ServerSaid
from trunkline.nats.errors import (
    AuthorizationFailed,
    BufferFull,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NoResponders,
    PermissionDenied,
)


async def test_a_server_that_is_killed(tmp_path: Path) -> None:
    told = Told()
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url, on_event=told, reconnect_wait=0.01) as client:
            with client.subscribe("a") as some, client.subscribe("a", queue="q") as shared:
                some.unsubscribe(after=4)
                await client.publish("a", b"1")
                assert (await some.receive()).payload == (await shared.receive()).payload == b"1"
                asked = client.request("never", timeout=60)
                server.kill()
                await told.wait()
                assert not client.is_connected
                await client.publish("a", b"2")  # it waits for the connection
                server.start()
                assert (await some.receive()).payload == (await shared.receive()).payload == b"2"
                for number in (3, 4, 5):
                    await client.publish("a", b"%d" % number)
                assert [message.payload async for message in some] == [b"3", b"4"]
                assert [(await shared.receive()).payload for _ in range(3)] == [b"3", b"4", b"5"]
                with pytest.raises(NoResponders):
                    await asked
    assert [type(event) for event in told.events] == [Disconnected, Reconnected]


async def flush_on(client: Client) -> None:
    """As long as the server answers."""
    while True:
        await client.flush()


async def test_a_flush_that_is_not_answered(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url, reconnect_wait=0.01) as client, trio.open_nursery() as nursery:

            async def flush() -> None:
                with pytest.raises(ConnectionLost):
                    await flush_on(client)

            nursery.start_soon(flush)
            await client.flush()
            server.kill()


async def test_no_more_attempts(tmp_path: Path) -> None:
    async def use(server: NatsServer) -> None:
        async with connect(server.url, reconnect_wait=0.01, max_reconnects=2) as client:
            with client.subscribe("a") as some:
                server.kill()
                with pytest.raises(ConnectFailed, match="Connection refused"):
                    await some.receive()
            with pytest.raises(ClientClosed, match="the client has given up: .*Connection refused"):
                await client.publish("a")
            with pytest.raises(ClientClosed):
                await client.flush()

    with running(KINDS[0], tmp_path) as server, pytest.raises(ConnectFailed, match="Connection refused"):
        await use(server)


async def test_a_list_of_servers(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path) as one:
        async with connect(f"127.0.0.1:1,{one.url}") as client:
            assert client.url == one.url
        with pytest.raises(ConnectFailed, match=r"(nats://127.0.0.1:[12]: Connection refused(; |$)){2}"):
            async with connect(["nats://127.0.0.1:1", "nats://127.0.0.1:2"]):
                pass


async def test_a_cluster_is_discovered(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    route = f"nats://127.0.0.1:{free_port()}"
    cluster = ["--cluster_name", "c", "--cluster"]
    with running(KINDS[0], tmp_path / "one", *cluster, route) as one:
        async with connect(one.url, on_event=told, reconnect_wait=0.01) as client:
            with running(KINDS[0], tmp_path / "two", *cluster, "nats://127.0.0.1:-1", "--routes", route) as two:
                assert await told.wait() == [Discovered((two.url,))]
                with client.subscribe("a") as some:
                    one.kill()
                    await told.wait(3)
                    assert client.url == two.url
                    await client.publish("a", b"x")
                    assert (await some.receive()).payload == b"x"


# Who the client is


async def test_user_and_password(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path, "--user", "ada", "--pass", "secret") as server:
        async with connect(server.url, user="ada", password="secret") as client:
            await client.flush()
        async with connect(server.url.replace("//", "//ada:secret@")) as client:
            assert client.url == server.url
        with pytest.raises(AuthorizationFailed, match="Authorization Violation"):
            async with connect(server.url, user="ada", password="wrong"):
                pass


async def test_a_token(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path, "--auth", "t0ken") as server:
        async with connect(server.url, token="t0ken"), connect(server.url.replace("//", "//t0ken@")):
            pass
        with pytest.raises(AuthorizationFailed):
            async with connect(server.url):
                pass


async def test_a_key(tmp_path: Path) -> None:
    seed = seed_of(bytes(range(32)))
    (tmp_path / "conf").write_text(f'authorization {{ users = [{{ nkey: "{Key(seed).public}" }}] }}')
    (tmp_path / "seed").write_text(seed + "\n")
    (tmp_path / "other").write_text(seed_of(bytes(32)))
    with running(KINDS[0], tmp_path, "-c", str(tmp_path / "conf")) as server:
        async with connect(server.url, nkey_seed=tmp_path / "seed") as client:
            await client.flush()
        with pytest.raises(AuthorizationFailed):
            async with connect(server.url, nkey_seed=tmp_path / "other"):
                pass


async def test_permissions(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "conf").write_text(
        'authorization { users = [{ user: a, password: b, permissions: { publish: "ok.>", subscribe: "ok.>" } }] }'
    )
    with running(KINDS[0], tmp_path, "-c", str(tmp_path / "conf")) as server:
        async with connect(server.url, user="a", password="b", on_event=told) as client:
            with client.subscribe("no"), client.subscribe("ok.x") as some:
                await client.publish("no")
                await client.publish("ok.x")
                await some.receive()
                await client.flush()
    errors = [event.error for event in told.events if isinstance(event, ServerSaid)]
    assert [type(error) for error in errors] == [PermissionDenied, PermissionDenied]
    assert [str(error) for error in errors] == [
        'Permissions Violation for Subscription to "no"',
        'Permissions Violation for Publish to "no"',
    ]


# What it does by itself


async def test_what_waits_has_a_limit(tmp_path: Path) -> None:
    told = Told()
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url, max_pending=1000, reconnect_wait=0.01, on_event=told) as client:
            with client.subscribe("a") as some:
                await client.flush()
                server.kill()
                await told.wait()
                for _ in range(45):
                    client.publish_nowait("a", bytes(10))  # 22 bytes each
                with pytest.raises(BufferFull, match="990 bytes wait to be sent"):
                    client.publish_nowait("a", bytes(10))
                with trio.move_on_after(0.05) as scope:
                    await client.publish("a", bytes(1000))
                assert scope.cancelled_caught
                server.start()
                await client.publish("a", bytes(2000))  # it waits for the connection, and then for room
                while len((await some.receive()).payload) != 2000:
                    pass


async def test_what_happens_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "trunkline.nats")
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url, reconnect_wait=0.01) as client:
            server.kill()
            with pytest.raises(ConnectionLost):
                await flush_on(client)
            server.start()
            await client.flush()
    assert caplog.messages[0].startswith("the connection to NATS is lost: the ")
    assert caplog.messages[1] == f"connected to NATS again: {server.url}"
