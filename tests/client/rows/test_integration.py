"""Session clients and servers in processes of their own, over real sockets. The rows are in `table.py`."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.client.rows.servers import PASSWORD, USER, Server, each_version
from trunkline.client.errors import ClientClosed, ConnectFailed, ConnectRefused
from trunkline.client.receivers import Receiver
from trunkline.client.retry import NoRetry
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.mqtt.reasons import Reason

trustme = pytest.importorskip("trustme")
AUTHORITY = trustme.CA()
NO_SUBSCRIBERS = Reason.NO_MATCHING_SUBSCRIBERS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """One of each for all tests that need no other configuration: each test has a topic and client ids of its own."""
    with ExitStack() as stack:
        running: dict[str, Server] = {}

        def start(name: str) -> Server:
            if name not in running:
                running[name] = stack.enter_context(Server(name, tmp_path_factory.mktemp(name)).running())
            return running[name]

        yield start


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Of this test alone."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


# Who the client is


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With certificates."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, identity in (("server", "127.0.0.1"), ("me", "me")):
        AUTHORITY.issue_cert(identity).private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    return tmp_path


async def accepts(server: Server, version: str, wrong: dict[str, Any], **options: Any) -> None:
    """A session that works, and one with other options that is refused."""
    async with server.session(version, **options) as client, await client.subscribe("t", qos=1) as messages:
        await client.publish("t", b"x", qos=1)
        assert (await messages.receive()).payload == b"x"
        settings = client.settings
    with pytest.raises((ConnectFailed, ConnectRefused)):
        async with SessionClient(settings.changed(**{**dict.fromkeys(options), **wrong}), retry=NoRetry()):
            pytest.fail("it is connected")


@each_version()
async def test_connects_with_tls_authentication(name: str, version: str, folder: Path) -> None:
    with Server(name, folder, tls="server").running() as server:
        await accepts(server, version, {}, ca_file=folder / "ca.pem")


@each_version()
async def test_connects_with_client_certificates(name: str, version: str, folder: Path) -> None:
    """The client asks for no proof of the server."""
    with Server(name, folder, tls="mutual").running() as server:
        await accepts(server, version, {"verify": False}, certificate=folder / "me.pem", verify=False)


@each_version()
async def test_connects_with_username_and_password(name: str, version: str, tmp_path: Path) -> None:
    with Server(name, tmp_path, passwords=True).running() as server:
        await accepts(server, version, {"username": USER, "password": "wrong"}, username=USER, password=PASSWORD)


@each_version()
async def test_connects_with_client_certificates_and_tls_authentication(name: str, version: str, folder: Path) -> None:
    own = {"certificate": folder / "me.pem", "ca_file": folder / "ca.pem"}
    with Server(name, folder, tls="mutual").running() as server:
        await accepts(server, version, {"ca_file": folder / "ca.pem"}, **own)


@each_version()
async def test_connects_with_username_and_password_and_tls_authentication(
    name: str, version: str, folder: Path
) -> None:
    ca = {"ca_file": folder / "ca.pem"}
    with Server(name, folder, tls="server", passwords=True).running() as server:
        wrong = {"username": USER, "password": "wrong", **ca}
        await accepts(server, version, wrong, username=USER, password=PASSWORD, **ca)


@each_version()
async def test_connects_over_websocket(name: str, version: str, tmp_path: Path) -> None:
    with Server(name, tmp_path, websocket=True).running() as server:
        server.wait_until_it_listens()
        async with server.session(version) as client, await client.subscribe("t", qos=1) as messages:
            payloads = [b"%d" % number * 1000 for number in range(100)]
            await client.publish_many("t", payloads, qos=1)
            assert [(await messages.receive()).payload for _ in payloads] == payloads


# A connection that stays


def largest_qos(name: str) -> int:
    """NATS has QoS 2 from 2.10 on."""
    return 1 if name == "nats-server" else 2


@each_version()
async def test_connects_to_a_server(name: str, version: str, server: Callable[[str], Server], topic: str) -> None:
    async with server(name).session(version, topic) as client:
        assert client.is_connected
        assert not client.connack.session_present


@each_version()
async def test_publishes_a_message_to_a_server(
    name: str, version: str, server: Callable[[str], Server], topic: str
) -> None:
    async with server(name).session(version, topic) as client:
        for qos in range(largest_qos(name) + 1):
            assert await client.publish(topic, b"x", qos=qos) in (0, NO_SUBSCRIBERS)


@each_version()
async def test_subscribes_to_a_topic_of_a_server(
    name: str, version: str, server: Callable[[str], Server], topic: str
) -> None:
    most = largest_qos(name)
    async with server(name).session(version, topic) as client, await client.subscribe(topic, qos=most) as messages:
        assert messages.granted == {topic: most}
        for qos in range(most + 1):
            await client.publish(topic, b"%d" % qos, qos=qos)
        found = [await messages.receive() for _ in range(most + 1)]
        assert sorted((message.payload, message.qos) for message in found) == [
            (b"%d" % qos, qos) for qos in range(most + 1)
        ]


@each_version()
async def test_unsubscribes_from_a_topic_of_a_server(
    name: str, version: str, server: Callable[[str], Server], topic: str
) -> None:
    async with server(name).session(version, topic) as client:
        messages = await client.subscribe(topic, qos=1)
        await messages.unsubscribe()
        reason = await client.publish(topic, b"x", qos=1)
        assert reason == (NO_SUBSCRIBERS if version == "5.0" else 0)
        assert len(messages) == 0


@each_version()
async def test_enqueues_to_a_server(name: str, version: str, server: Callable[[str], Server], topic: str) -> None:
    """A subscribe, publishes and an unsubscribe, all of which the user asks for before the first is answered."""
    async with server(name).session(version, topic) as client, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.subscribe(topic, qos=1))
        nursery.start_soon(lambda: client.unsubscribe_from(f"{topic}/other"))
        receipts = [client.publish_nowait(f"{topic}/other", b"%d" % number, qos=1) for number in range(10)]
        assert [await receipt.wait() in (0, NO_SUBSCRIBERS) for receipt in receipts] == [True] * 10


@each_version()
async def test_can_send_pubacks_out_of_order(
    name: str, version: str, server: Callable[[str], Server], topic: str
) -> None:
    async with server(name).session(version, topic) as client:
        messages = await client.subscribe(topic, qos=1, manual_ack=True)
        await client.publish_many(topic, [b"%d" % number for number in range(10)], qos=1)
        for message in reversed([await messages.receive() for _ in range(10)]):
            message.ack()
        await client.publish(topic, b"last", qos=1)
        assert (await messages.receive()).payload == b"last"


@each_version("trunkline", "mosquitto")
async def test_shared_subscription_of_two_clients(
    name: str, version: str, server: Callable[[str], Server], topic: str
) -> None:
    """NATS has none. Each message goes to one of the two, and each of them gets some."""
    here, shared = server(name), f"$share/group/{topic}"
    seen: dict[str, list[bytes]] = {"one": [], "two": []}

    async def collect(receiver: str, messages: Any) -> None:
        async for message in messages:
            seen[receiver].append(message.payload)
            if sum(map(len, seen.values())) == 100:
                nursery.cancel_scope.cancel()

    async with (
        here.session(version, f"{topic}-1") as one,
        here.session(version, f"{topic}-2") as two,
        await one.subscribe(shared, qos=1) as first,
        await two.subscribe(shared, qos=1) as second,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(collect, "one", first)
        nursery.start_soon(collect, "two", second)
        await one.publish_many(topic, [b"%d" % number for number in range(100)], qos=1)
        await trio.sleep_forever()
    assert sorted(seen["one"] + seen["two"]) == sorted(b"%d" % number for number in range(100))
    assert seen["one"]
    assert seen["two"]


async def test_disconnect_without_connect() -> None:
    with pytest.raises(ClientClosed):
        await SessionClient(ConnectionSettings()).disconnect()


# A connection that is lost


async def until(messages: Receiver, payload: bytes) -> list[bytes]:
    """The messages up to this one, without those that the server sends again as their acknowledgement was lost."""
    found: list[bytes] = []
    async for message in messages:
        found.append(message.payload)
        if message.payload == payload:
            break
    return list(dict.fromkeys(found))


async def lose(server: Server, client: SessionClient) -> None:
    """The server ends, at once where it keeps its sessions all the same; Mosquitto writes them when it ends."""
    server.stop(kill=server.name != "mosquitto")
    await client.disconnected()


@each_version()
async def test_request_queue(name: str, version: str, tmp_path: Path) -> None:
    """What is asked for while the server is away is done when it is back, and the session is still there."""
    with Server(name, tmp_path).running() as server:
        async with (
            server.session(version, "sender") as sender,
            server.session(version, "receiver") as receiver,
            await receiver.subscribe("t/#", qos=1) as messages,
        ):
            await lose(server, receiver)
            await sender.disconnected()
            receipts = [sender.publish_nowait("t/1", b"%d" % number, qos=1) for number in range(20)]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: sender.unsubscribe_from("other"))
                server.start()
                await sender.connected()
                await receiver.connected()
                assert receiver.connack.session_present
                for receipt in receipts:
                    await receipt.wait()
            assert await until(messages, b"19") == [b"%d" % number for number in range(20)]


@each_version()
async def test_disconnect_while_idle(name: str, version: str, tmp_path: Path) -> None:
    """Several times, and no error reaches the user."""
    with Server(name, tmp_path).running() as server:
        async with server.session(version, keep_session=True) as client, await client.subscribe("t", qos=1) as messages:
            for number in range(3):
                await lose(server, client)
                server.start()
                await client.connected()
                assert client.connack.session_present
                await client.publish("t", b"%d" % number, qos=1)
                await until(messages, b"%d" % number)


@each_version()
async def test_messages_wait_for_a_later_client(name: str, version: str, tmp_path: Path) -> None:
    with Server(name, tmp_path).running() as server:
        async with server.session(version, "keeper", keep_session=True) as client:
            await client.subscribe("t", qos=1)
        async with server.session(version, "sender") as sender:
            await sender.publish("t", b"x", qos=1)
            await lose(server, sender)
            server.start()
            await sender.connected()
        settings = client.settings.changed(clean_start=False)
        later = SessionClient(settings)
        messages = later.receive_from("t")
        async with later:
            assert later.connack.session_present
            assert (await messages.receive()).payload == b"x"
