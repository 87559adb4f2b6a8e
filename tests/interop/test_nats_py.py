"""nats-py, as its own documentation uses it, at a NATS listener: it is not told that this is no NATS server."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
from bench.peers import free_port

from tests import outside_loop
from tests.nats.servers import BROKER, NatsServer, running
from trunkline.hooks.passwords import hash_password

PATIENCE = 60
ROOT = Path(__file__).parents[2]


def _nats_py() -> Any:
    """The repository has a folder of the same name, which python finds first where it is the current one."""
    before = sys.path[:]
    sys.path[:] = [entry for entry in before if Path(entry or ".").resolve() != ROOT]
    try:
        return pytest.importorskip("nats", reason="needs nats-py")
    finally:
        sys.path[:] = before


nats = _nats_py()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    with running(BROKER, tmp_path_factory.mktemp("broker")) as one:
        yield one


def run(scene: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    outside_loop.run(scene(*args), within=PATIENCE)


def test_publish_and_subscribe(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        got: list[tuple[str, bytes]] = []

        async def note(message: Any) -> None:
            got.append((message.subject, message.data))

        await client.subscribe("foo.*.baz", cb=note)
        await client.subscribe("foo.>", cb=note)
        await client.publish("foo.bar.baz", b"Hello World")
        await client.publish("foo", b"not for them")
        await client.flush()
        await client.drain()
        assert got == [("foo.bar.baz", b"Hello World")] * 2
        assert client.is_closed

    run(scene)


def test_requests(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)

        async def help_please(message: Any) -> None:
            await message.respond(b"OK, " + message.data)

        await client.subscribe("help", "workers", help_please)
        for old_style in (False, True):
            answer = await client.request("help", b"please", timeout=5, old_style=old_style)
            assert answer.data == b"OK, please"
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody", b"", timeout=5)
        await client.close()

    run(scene)


def test_many_requests_at_once(server: NatsServer) -> None:
    async def scene() -> None:
        client, service = await nats.connect(server.url), await nats.connect(server.url)

        async def echo(message: Any) -> None:
            await message.respond(message.data)

        await service.subscribe("echo", cb=echo)
        await outside_loop.flush_nats_py(service)
        asked = [client.request("echo", b"%d" % number, timeout=10) for number in range(200)]
        answers = await asyncio.gather(*asked)
        assert [int(each.data) for each in answers] == list(range(200))
        await client.close()
        await service.close()

    run(scene)


def test_headers(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        subscription = await client.subscribe("hello")
        await client.publish("hello", b"world", headers={"Nats-Trace": "7", "a": "b"})
        message = await subscription.next_msg(timeout=5)
        assert message.headers == {"Nats-Trace": "7", "a": "b"}
        await client.close()

    run(scene)


def test_queue_groups_and_limits(server: NatsServer) -> None:
    async def scene() -> None:
        workers = [await nats.connect(server.url) for _ in range(3)]
        counts = [0, 0, 0]
        all_came = asyncio.Event()

        def counter(number: int) -> Callable[[Any], Awaitable[None]]:
            async def count(message: Any) -> None:
                counts[number] += 1
                if sum(counts) == 60:
                    all_came.set()

            return count

        for number, worker in enumerate(workers):
            await worker.subscribe("jobs.*", "workers", counter(number))
        limited = await workers[0].subscribe("jobs.*")
        await limited.unsubscribe(5)
        for worker in workers:
            await outside_loop.flush_nats_py(worker)
        for number in range(60):
            await workers[1].publish(f"jobs.{number}", b"")
        await all_came.wait()
        assert [(await limited.next_msg(timeout=10)).subject for _ in range(5)] == [f"jobs.{each}" for each in range(5)]
        for worker in workers:
            await worker.drain()
        assert sum(counts) == 60
        assert all(counts)
        assert limited.pending_msgs == 0

    run(scene)


def test_it_comes_back_when_the_listener_does(tmp_path: Path) -> None:
    async def scene(server: NatsServer) -> None:
        events: list[str] = []
        back = asyncio.Event()

        async def lost() -> None:
            events.append("lost")

        async def again() -> None:
            events.append("back")
            back.set()

        client = await nats.connect(
            server.url, reconnect_time_wait=0.1, max_reconnect_attempts=-1, disconnected_cb=lost, reconnected_cb=again
        )
        subscription = await client.subscribe("a")
        await outside_loop.flush_nats_py(client)
        server.kill()
        await asyncio.to_thread(server.start)
        await back.wait()
        await client.publish("a", b"again")
        assert (await subscription.next_msg(timeout=10)).data == b"again"
        assert events == ["lost", "back"]
        await client.close()

    with running(BROKER, tmp_path) as server:
        run(scene, server)


def test_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password('right')}\n")
    monkeypatch.setenv("TRUNKLINE_AUTH__PASSWORD_FILE", str(users))

    async def scene(server: NatsServer) -> None:
        client = await nats.connect(server.url, user="ann", password="right")
        assert client.is_connected
        await client.close()
        for wrong in ({"user": "ann", "password": "wrong"}, {"token": "right"}, {}):
            said: list[Exception] = []

            async def note(error: Exception, said: list[Exception] = said) -> None:
                said.append(error)

            with pytest.raises(nats.errors.Error, match="[Aa]uthorization"):
                await nats.connect(server.url, allow_reconnect=False, error_cb=note, **wrong)

    with running(BROKER, tmp_path) as server:
        run(scene, server)


def test_what_is_too_large(server: NatsServer) -> None:
    async def scene() -> None:
        client = await nats.connect(server.url)
        assert client.max_payload == 1 << 20
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish("a", bytes((1 << 20) + 1))
        subscription = await client.subscribe("a")
        await client.publish("a", bytes(1 << 20))
        assert len((await subscription.next_msg(timeout=10)).data) == 1 << 20
        await client.close()

    run(scene)


def test_a_client_of_mqtt_on_the_other_side(tmp_path: Path) -> None:
    paho: Any = pytest.importorskip("paho.mqtt.client")
    port = free_port()

    async def scene(server: NatsServer) -> None:
        client = await nats.connect(server.url)
        readings = await client.subscribe("plant.*.temp")
        await outside_loop.flush_nats_py(client)
        device = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        came: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        subscribed = asyncio.Event()
        device.on_message = lambda *args: loop.call_soon_threadsafe(came.put_nowait, args[-1])
        device.on_subscribe = lambda *_: loop.call_soon_threadsafe(subscribed.set)
        device.connect("127.0.0.1", port)
        device.loop_start()
        device.subscribe("plant/press/set", qos=1)
        await subscribed.wait()
        device.publish("plant/press/temp", b"71.5", qos=1)
        reading = await readings.next_msg(timeout=10)
        assert (reading.subject, reading.data) == ("plant.press.temp", b"71.5")
        await client.publish("plant.press.set", b"70", reply="plant.press.done", headers={"unit": "C"})
        command = await came.get()
        assert (command.topic, command.payload, command.qos) == ("plant/press/set", b"70", 0)
        assert command.properties.ResponseTopic == "plant/press/done"
        assert command.properties.UserProperty == [("unit", "C")]
        device.loop_stop()
        device.disconnect()
        await client.close()

    with running(BROKER, tmp_path, "--listen", f"tcp://127.0.0.1:{port}") as server:
        run(scene, server)
