"""Connections that are lost and made again, with real servers."""

import logging
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from bench.peers import free_port
from trio.testing import memory_stream_pair

from tests.nats.client.scripted import Peer, Told, serving
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import Client, Settings, connect
from trunkline.nats.client.credentials import Key, seed_of
from trunkline.nats.client.events import Disconnected, Discovered, LameDuck, Reconnected, ServerSaid
from trunkline.nats.client.settings import Address
from trunkline.nats.errors import (
    AuthorizationFailed,
    BufferFull,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NoResponders,
    PermissionDenied,
    RequestTimeout,
)
from trunkline.nats.protocol.operations import Publish


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


async def publish_on(client: Client) -> None:
    while True:
        await client.publish("a", bytes(900))


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


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_going_to_end(kind: str, tmp_path: Path) -> None:
    """It says so, and serves on until it ends."""
    told = Told()
    with running(kind, tmp_path) as server:
        async with connect(server.url, on_event=told) as client:
            with client.subscribe("a") as some:
                await client.flush()
                server.let_go()
                assert await told.wait() == [LameDuck()]
                await client.publish("a", b"x")
                assert (await some.receive()).payload == b"x"


async def test_a_request_without_a_connection_is_sent_with_the_next() -> None:
    """Also if nobody waits for its answer any more."""
    told = Told()
    heard: list[bytes] = []
    may_come = trio.Event()
    came = trio.Event()

    async def leave(peer: Peer) -> None:
        await peer.welcome()

    async def hear(peer: Peer) -> None:
        await may_come.wait()
        await peer.welcome()
        while (operation := await peer.next()) is not None:
            if isinstance(operation, Publish):
                heard.append(operation.subject)
                if len(heard) == 2:
                    came.set()

    async with serving(leave, hear) as port, connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client:
        await told.wait()
        with pytest.raises(RequestTimeout):
            await client.request("first", timeout=0.01)
        with trio.move_on_after(0.01):
            await client.request("second")
        assert heard == []
        may_come.set()
        with trio.fail_after(30):
            await came.wait()
    assert heard == [b"first", b"second"]


# Who the client is


async def test_user_and_password(tmp_path: Path) -> None:
    with running(KINDS[0], tmp_path, "--user", "ada", "--pass", "secret") as server:
        async with connect(server.url, user="ada", password="secret") as client:
            await client.flush()
        async with connect(server.url.replace("//", "//ada:secret@")) as client:
            assert client.url == server.url
        with pytest.raises(AuthorizationFailed, match="nats://127.0.0.1:.*: Authorization Violation"):
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


@pytest.mark.parametrize("kind", KINDS)
async def test_permissions(kind: str, tmp_path: Path) -> None:
    """What is denied is told as an event, and to those who wait for it."""
    told = Told()
    (tmp_path / "conf").write_text(
        "authorization { users = [{ user: a, password: b, permissions: "
        '{ publish: ["ok.>", "$JS.API.>"], subscribe: ["ok.>", "_INBOX.>"] } }] }'
    )
    with running(kind, tmp_path, "-c", str(tmp_path / "conf")) as server:
        async with connect(server.url, user="a", password="b", on_event=told) as client:
            denied, group = client.subscribe("no"), client.subscribe("no", queue="q")
            with client.subscribe("ok.x") as some:
                await client.publish("no")
                await client.publish("ok.x")
                await some.receive()
                for each, text in ((denied, '"no"$'), (group, '"no" using queue "q"')):
                    with pytest.raises(PermissionDenied, match=f"Subscription to {text}"):
                        await each.receive()
                await client.flush()
                assert not some.is_over
            with pytest.raises(PermissionDenied, match='Publish to "no.x"'):
                await client.request("no.x", timeout=60)
            async with client.request_many("no.x", timeout=60) as answers:
                with pytest.raises(PermissionDenied):
                    await anext(answers)
            js = client.jetstream(timeout=60)
            async with js.publisher() as publisher:
                receipt = await publisher.publish("no.x", b"1")
                with pytest.raises(PermissionDenied):
                    await receipt.ack()
    errors = [event.error for event in told.events if isinstance(event, ServerSaid)]
    assert {type(error) for error in errors} == {PermissionDenied}
    assert [error.subject for error in errors if isinstance(error, PermissionDenied)] == ["no"] * 3 + ["no.x"] * 3


@pytest.mark.parametrize("kind", KINDS)
async def test_an_inbox_that_is_denied(kind: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(
        'authorization { users = [{ user: a, password: b, permissions: { publish: ">", subscribe: "ok.>" } }] }'
    )
    with running(kind, tmp_path, "-c", str(tmp_path / "conf")) as server:
        async with connect(server.url, user="a", password="b", on_event=Told()) as client:
            for _ in range(2):
                with pytest.raises(PermissionDenied, match="Subscription to "):
                    await client.request("ok.x", timeout=60)
            async with client.jetstream().publisher() as publisher:
                with pytest.raises(PermissionDenied, match="Subscription to "):
                    await (await publisher.publish("ok.x")).ack()
                with pytest.raises(PermissionDenied, match="Subscription to "):
                    await publisher.publish("ok.x")
            async with connect(server.url, user="a", password="b", inbox_prefix="ok.me", on_event=Told()) as other:
                with pytest.raises(NoResponders):
                    await other.request("ok.x", timeout=60)


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


# What a scripted server shows


@pytest.mark.parametrize("url", ["a..b:4222", "x" * 70, ".", "\ud800", "a\u200db", "\u2488"])
async def test_a_server_of_the_list_that_has_no_name(url: str) -> None:
    told = Told()

    async def tell(peer: Peer) -> None:
        await peer.welcome(connect_urls=[url])

    async def stay(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    async with (
        serving(tell, stay) as port,
        connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client,
    ):
        lost, again = await told.wait(2)
        await client.flush()
    assert isinstance(lost, Disconnected)
    assert again == Reconnected(f"nats://127.0.0.1:{port}")


async def test_flushing_while_the_block_is_cancelled_ends() -> None:
    async def stay(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    async def use(port: int) -> None:
        async with connect(f"127.0.0.1:{port}") as client:
            await client.publish("a")
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    for _ in range(3):
                        with suppress(ConnectionLost, ClientClosed):
                            await client.flush()
                    with pytest.raises(ClientClosed):
                        await client.publish("a")

    async with serving(stay) as port:
        with trio.fail_after(30), trio.CancelScope() as scope:
            await use(port)


async def test_no_flush_hangs_when_a_connection_is_lost() -> None:
    outcomes: list[str] = []

    async def flush(client: Client) -> None:
        try:
            await client.flush()
        except ConnectionLost:
            outcomes.append("lost")
        else:
            outcomes.append("taken")

    async def brief(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):
            await peer.next()

    async def stay(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    told = Told()
    async with (
        serving(brief, stay) as port,
        connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client,
    ):
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                while len(told.events) < 2:
                    nursery.start_soon(flush, client)
                    await trio.lowlevel.checkpoint()
    assert "lost" in outcomes


async def test_draining_waits_for_a_connection(tmp_path: Path) -> None:
    told = Told()
    with running(KINDS[0], tmp_path) as server:
        async with connect(server.url, on_event=told, reconnect_wait=0.01) as client:
            server.kill()
            await told.wait()
            await client.publish("a", b"x")
            server.start()
            async with connect(server.url) as other:
                with other.subscribe("a") as some:
                    await other.flush()
                    await client.drain()
                    with pytest.raises(ClientClosed):
                        await client.publish("a")
                    with trio.move_on_after(0.2):  # it may have come before the other one was there
                        assert (await some.receive()).payload == b"x"


async def test_a_drain_that_fails_ends_its_subscription() -> None:
    async def stay(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    async def deaf_to_pings(peer: Peer) -> None:
        await peer.welcome()
        for _ in range(3):  # SUB, UNSUB, PING
            await peer.next()

    async with (
        serving(deaf_to_pings, stay) as port,
        connect(f"127.0.0.1:{port}", reconnect_wait=0.01) as client,
    ):
        some = client.subscribe("a")
        with pytest.raises(ConnectionLost):
            await some.drain()
        with pytest.raises(trio.EndOfChannel):
            await some.receive()


async def test_a_request_ends_when_the_client_gives_up() -> None:
    async def use(port: int) -> None:
        async with connect(f"127.0.0.1:{port}", max_reconnects=0) as client:
            with trio.fail_after(30), pytest.raises(ClientClosed, match="the client has given up"):
                await client.request("a", timeout=1000)

    async def brief(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()

    async with serving(brief) as port:
        with pytest.raises(ConnectionLost):
            await use(port)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_a_server_that_welcomes_and_closes_is_asked_less_and_less(autojump_clock: object, share: float) -> None:
    """Each wait is twice the one before, less a share by chance of up to half: clients do not come all at once."""
    attempts: list[float] = []

    async def close(peer: Peer) -> None:
        attempts.append(trio.current_time())
        await peer.welcome()

    settings = Settings(servers=(Address("memory", 1),), on_event=lambda _: None, max_reconnects=12)

    async def use() -> None:
        async with Client(settings).opened() as client:
            with client.subscribe("a") as some:
                await some.receive()

    with pytest.MonkeyPatch.context() as patch:
        async with trio.open_nursery() as nursery:

            async def open_memory(address: Address) -> trio.StapledStream:
                ours, theirs = memory_stream_pair()
                nursery.start_soon(close_after, theirs)
                return ours

            async def close_after(stream: trio.StapledStream) -> None:
                await close(Peer(stream))
                await stream.aclose()

            patch.setattr("trunkline.nats.client.connections.open_tcp", open_memory)
            patch.setattr("random.random", lambda: share)
            with pytest.raises(ConnectionLost):
                await use()
    gaps = [later - sooner for sooner, later in pairwise(attempts)]
    waits = [min(0.1 * 2**attempt, 8.0) for attempt in range(12)]
    assert gaps == pytest.approx([wait * (1 - share / 2) for wait in waits])


async def test_answers_that_do_not_end(tmp_path: Path) -> None:
    async def flood(peer: Peer) -> None:
        await peer.welcome()
        reply = b""
        while not reply:
            operation = await peer.next()
            if isinstance(operation, Publish):
                reply = operation.reply
        with suppress(trio.BrokenResourceError):
            while True:
                await peer.send(b"MSG %s 1 1\r\nx\r\n" % reply * 100)

    async with serving(flood) as port, connect(f"127.0.0.1:{port}", max_messages=50) as client:
        with trio.fail_after(30):
            async with client.request_many("a", timeout=0.2) as answers:
                count = len([each async for each in answers])
    assert count > 0


async def test_an_answer_while_there_is_no_connection_waits_for_the_next(tmp_path: Path) -> None:
    told = Told()
    got: list[object] = []
    came = trio.Event()

    async def ask(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()
        await peer.send(b"MSG a 1 r 0\r\n\r\n")
        await peer.next()

    async def hear(peer: Peer) -> None:
        await peer.welcome()
        while not came.is_set():
            operation = await peer.next()
            if isinstance(operation, Publish):
                got.append((operation.subject, operation.payload))
                came.set()
        await peer.answer()

    async with (
        serving(ask, hear) as port,
        connect(f"127.0.0.1:{port}", on_event=told, reconnect_wait=0.01) as client,
    ):
        with client.subscribe("a") as some:
            message = await some.receive()
            await client.publish("x")
            await told.wait()
            message.respond(b"late")
            with trio.fail_after(30):
                await came.wait()
    assert got == [(b"r", b"late")]


async def test_who_waits_for_room_hears_that_the_client_gives_up() -> None:
    async def use(port: int) -> None:
        async with connect(f"127.0.0.1:{port}", max_pending=1000, max_reconnects=0) as client:
            with trio.fail_after(30), pytest.raises(ClientClosed):
                await publish_on(client)

    async def brief(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()

    async with serving(brief) as port:
        with pytest.raises(ConnectionLost):
            await use(port)


async def test_nothing_is_said_to_a_server_without_the_tls_that_was_asked_for() -> None:
    said: list[bytes] = []

    async def plain(peer: Peer) -> None:
        await peer.send(b'INFO {"max_payload":100}\r\n')
        with suppress(trio.BrokenResourceError):
            said.append(bytes(await peer._stream.receive_some(1000)))

    async with serving(plain) as port:
        with pytest.raises(ConnectFailed):
            async with connect(f"tls://ada:secret@127.0.0.1:{port}", connect_timeout=0.3):
                pass
    assert all(data[:1] == b"\x16" for data in said)  # a handshake of TLS
    assert said


async def test_what_connect_says_of_a_server(tmp_path: Path) -> None:
    said: list[dict[str, object]] = []

    async def old(peer: Peer) -> None:
        said.append(dict((await peer.welcome(headers=False)).options))
        await peer.answer()

    async with serving(old) as port, connect(f"127.0.0.1:{port}"):
        pass
    assert (said[0]["headers"], said[0]["no_responders"], said[0]["tls_required"]) == (False, False, False)


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_servers_are_learned_if_that_is_wanted(is_wanted: bool) -> None:
    told = Told()

    async def tell(peer: Peer) -> None:
        await peer.welcome(connect_urls=["192.0.2.1:1"])  # no news: nothing was known before
        await peer.next()
        await peer.send(b'INFO {"connect_urls":["192.0.2.1:1","192.0.2.2:1"]}\r\nPONG\r\n')
        await peer.answer()

    async with serving(tell) as port, connect(f"127.0.0.1:{port}", on_event=told, discover=is_wanted) as client:
        await client.flush()
    assert told.events == ([Discovered(("nats://192.0.2.2:1",))] if is_wanted else [])


async def test_the_next_server_is_another_one(tmp_path: Path) -> None:
    told = Told()

    async def brief(peer: Peer) -> None:
        await peer.welcome()
        await peer.next()

    async def stay(peer: Peer) -> None:
        await peer.welcome()
        await peer.answer()

    async with serving(brief, stay) as one, serving(brief, stay) as two:
        urls = [f"nats://127.0.0.1:{one}", f"nats://127.0.0.1:{two}"]
        for _ in range(4):
            async with connect(urls, on_event=told, reconnect_wait=0.01) as client:
                first = client.url
                if len(told.events) == 0:
                    await client.publish("a")
                    await told.wait(2)
                    assert client.url != first
