"""The client, with real servers of two versions."""

import logging
from collections.abc import Generator
from pathlib import Path

import pytest
import trio
from bench.peers import free_port

from tests.nats.client.scripted import Told
from tests.nats.servers import KINDS, NatsServer, running
from trunkline.nats import Client, connect
from trunkline.nats.client.credentials import Key, seed_of
from trunkline.nats.client.events import Disconnected, Discovered, Reconnected, ServerSaid, SlowConsumer
from trunkline.nats.errors import (
    AuthorizationFailed,
    BadSubject,
    BufferFull,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NatsError,
    NoResponders,
    PayloadTooLarge,
    PermissionDenied,
    RequestTimeout,
)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    with running(request.param, tmp_path_factory.mktemp("nats")) as one:
        yield one


async def test_what_is_published_comes(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a.*") as some, client.subscribe("a.>") as more:
            await client.publish("a.b", b"x", headers={"h": "1"}, reply="r")
            await client.publish("a.b.c")
            await client.publish("b", b"not for them")
            first = await some.receive()
            assert (first.subject, first.payload, first.reply, dict(first.headers)) == ("a.b", b"x", "r", {"h": "1"})
            assert [(await more.receive()).subject for _ in range(2)] == ["a.b", "a.b.c"]
            await client.flush()
            assert len(some) == len(more) == 0
        assert client.is_connected
        assert client.url == server.url
        assert client.server["max_payload"] == 1 << 20
    assert not client.is_connected


async def test_of_a_queue_group_one_gets_a_message(server: NatsServer) -> None:
    async with connect(server.url) as one, connect(server.url) as two:
        with one.subscribe("q", queue="g") as here, two.subscribe("q", queue="g") as there:
            await one.flush()
            await two.flush()
            for number in range(100):
                await one.publish("q", b"%d" % number)
            await one.flush()
            await two.flush()
            found = [(await each.receive()).payload for each in (here, there) for _ in range(len(each))]
    assert sorted(map(int, found)) == list(range(100))


async def test_no_echo(server: NatsServer) -> None:
    async with connect(server.url, echo=False) as client:
        with client.subscribe("a") as own:
            await client.publish("a")
            await client.flush()
            assert len(own) == 0


async def test_requests(server: NatsServer) -> None:
    async def answer(client: Client, task_status: trio.TaskStatus[None]) -> None:
        with client.subscribe("double", queue="workers") as asked:
            await client.flush()
            task_status.started()
            async for message in asked:
                message.respond(message.payload * 2, headers={"of": message.payload.decode()})

    async with connect(server.url) as client, connect(server.url) as other, trio.open_nursery() as nursery:
        await nursery.start(answer, other)
        found = await client.request("double", b"ab")
        assert (found.payload, found.headers["of"]) == (b"abab", "ab")
        results: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            results[number] = (await client.request("double", b"%d" % number)).payload

        async with trio.open_nursery() as many:
            for number in range(100):
                many.start_soon(ask, number)
        assert results == {number: b"%d" % number * 2 for number in range(100)}
        nursery.cancel_scope.cancel()


async def test_a_request_that_nobody_answers(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with pytest.raises(NoResponders, match="nobody answers requests to 'no.one'"):
            await client.request("no.one")
        with client.subscribe("silent") as heard:
            with pytest.raises(RequestTimeout, match=r"no answer to a request to 'silent' within 0\.05 s"):
                await client.request("silent", timeout=0.05)
            assert (await heard.receive()).reply.startswith("_INBOX.")
            with trio.move_on_after(0.05) as scope:
                await client.request("silent")
            assert scope.cancelled_caught
        message = None
        with client.subscribe("plain") as plain:
            await client.publish("plain")
            message = await plain.receive()
        with pytest.raises(NatsError, match="asks for no answer"):
            message.respond()


async def test_many_answers(server: NatsServer) -> None:
    async with connect(server.url) as client:

        async def answer(client: Client, times: int, task_status: trio.TaskStatus[None]) -> None:
            with client.subscribe("status") as asked:
                await client.flush()
                task_status.started()
                async for message in asked:
                    for number in range(times):
                        message.respond(b"%d" % number)

        async with trio.open_nursery() as nursery:
            for times in (2, 3):
                await nursery.start(answer, client, times)
            async with client.request_many("status", max_answers=5) as answers:
                assert sorted([each.payload async for each in answers]) == [b"0", b"0", b"1", b"1", b"2"]
            async with client.request_many("status", max_answers=1) as answers:
                assert [each.payload async for each in answers] == [b"0"]
            async with client.request_many("status", stall=0.2, timeout=60) as answers:
                assert len([each async for each in answers]) == 5
            async with client.request_many("status", timeout=0.2) as answers:
                assert len([each async for each in answers]) == 5
            nursery.cancel_scope.cancel()
        async with client.request_many("no.one") as answers:
            with pytest.raises(NoResponders):
                await anext(answers)


async def test_so_many_and_no_more(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a") as some:
            some.unsubscribe(after=3)
            for number in range(5):
                await client.publish("a", b"%d" % number)
            assert [message.payload async for message in some] == [b"0", b"1", b"2"]
            with pytest.raises(trio.EndOfChannel):
                await some.receive()
        with client.subscribe("a") as some:
            await client.publish("a", b"1")
            await some.receive()
            await client.publish("a", b"2")
            await client.flush()
            some.unsubscribe(after=1)  # it has had more
            await client.publish("a", b"3")
            await client.flush()
            assert [message.payload async for message in some] == [b"2"]


async def test_draining_loses_nothing(server: NatsServer) -> None:
    async with connect(server.url) as client, connect(server.url) as other:
        with client.subscribe("a") as some:
            await client.flush()
            for _ in range(5000):
                await other.publish("a")
            await other.flush()
            await some.drain()
            assert len([message async for message in some]) == 5000
        with client.subscribe("a") as some:
            await client.publish("a")
            await client.drain()
            assert len([message async for message in some]) == 1
            with pytest.raises(ClientClosed):
                await client.publish("a")
            with pytest.raises(ClientClosed):
                client.subscribe("b")


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a..b", "a.*", ">"])
async def test_what_cannot_be_published_to(subject: str, server: NatsServer) -> None:
    async with connect(server.url) as client:
        with pytest.raises(BadSubject):
            await client.publish(subject)
        with pytest.raises(BadSubject):
            client.publish_nowait("a", reply=subject or "..")
        await client.flush()


async def test_what_is_too_large(server: NatsServer) -> None:
    async with connect(server.url) as client:
        with client.subscribe("a") as some:
            await client.publish("a", bytes(1 << 20))
            assert len((await some.receive()).payload) == 1 << 20
        with pytest.raises(PayloadTooLarge, match="1048577 bytes with its headers, the server allows 1048576"):
            await client.publish("a", bytes((1 << 20) + 1))
        with pytest.raises(PayloadTooLarge):
            await client.publish("a", bytes(1 << 20), headers={"a": "b"})
        await client.flush()


async def test_what_nobody_takes_is_dropped_and_told(server: NatsServer) -> None:
    told = Told()
    async with connect(server.url, on_event=told) as client:
        with client.subscribe("a", max_messages=10) as few, client.subscribe("a", max_bytes=100) as small:
            for _ in range(3):
                for _ in range(25):
                    await client.publish("a", bytes(10))
                await client.flush()
                assert (len(few), len(small)) == (10, 10)
                while len(few):
                    await few.receive()
                while len(small):
                    await small.receive()
            assert few.dropped == small.dropped == 45
    assert sorted(str(event.subscription is few) for event in told.events if isinstance(event, SlowConsumer)) == (
        ["False"] * 3 + ["True"] * 3
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


async def test_many_publications_are_bounded_in_memory(server: NatsServer) -> None:
    async with connect(server.url, max_pending=100_000) as client:
        with client.subscribe("a", max_messages=100_000) as some:
            for _ in range(20_000):
                await client.publish("a", bytes(100))
            await client.flush()
            assert len(some) == 20_000


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


async def test_an_error_in_the_block_comes_as_it_is(server: NatsServer) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with connect(server.url):
            raise KeyError("mine")
    with trio.move_on_after(0.05) as scope:
        async with connect(server.url):
            await trio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("url", ["http://x", "nats://", "nats://h:99999", "nats://u:secret@h/path", "nats://h?x=1"])
async def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        async with connect(url):
            pass
    assert "secret" not in str(caught.value)
