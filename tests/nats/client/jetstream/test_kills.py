"""Servers that are killed again and again under clients that publish and consume. A ledger outside of them knows what
was acknowledged."""

import os
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.nats.servers import BROKER, CORE_KINDS, KINDS, NatsServer, running
from trunkline.nats import Client, connect
from trunkline.nats.client.jetstream.subscribed import ConsumerSubscription
from trunkline.nats.errors import NatsError
from trunkline.nats.jetstream.configs import ConsumerConfig, StreamConfig

KILLS = 5 * int(os.environ.get("THOROUGH", "1"))
#: Messages between two kills.
NUMBER = 2000


class Ledger:
    """What clients were told."""

    def __init__(self) -> None:
        self.published: set[bytes] = set()
        #: By consumer: how often each message came.
        self.seen: dict[str, Counter[bytes]] = {"pull": Counter(), "push": Counter()}
        self._lot = trio.lowlevel.ParkingLot()

    def saw(self, name: str, payload: bytes) -> None:
        self.seen[name][payload] += 1
        self._lot.unpark_all()

    async def wait(self, count: int) -> None:
        """Until so many messages have come to each consumer."""
        while any(len(seen) < count for seen in self.seen.values()):
            await self._lot.park()


async def publish(client: Client, ledger: Ledger, done: trio.Event) -> None:
    js = client.jetstream(timeout=60.0)
    async with js.publisher(window=50) as publisher:
        for number in range(KILLS * NUMBER):
            name = f"m{number}"
            receipt = await publisher.publish("kills", name.encode(), message_id=name)
            ledger.published.add(name.encode())
            if not number % 20:
                await receipt.ack()
    done.set()


async def consume(client: Client, ledger: Ledger, name: str) -> None:
    js = client.jetstream(timeout=5.0)
    while True:
        try:
            if name == "pull":
                async with js.subscribe_pull(stream="kills", consumer=name, ahead=20) as pulled:
                    await take(pulled, ledger, name)
            else:
                async with js.subscribe(stream="kills", consumer=name) as pushed:
                    await take(pushed, ledger, name)
        except NatsError:  # an attempt to begin in the middle of a kill
            await trio.sleep(0.05)


async def take(subscription: ConsumerSubscription, ledger: Ledger, name: str) -> None:
    async for message in subscription:
        ledger.saw(name, message.payload)
        message.ack()


async def kill(server: NatsServer, ledger: Ledger) -> None:
    for number in range(1, KILLS):
        await ledger.wait(number * NUMBER // 2)
        server.kill()
        await trio.to_thread.run_sync(server.start)


@contextmanager
def keeping(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[NatsServer]:
    """A server that has all of it when it comes back."""
    if kind == BROKER:
        monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(folder / "store.db"))
        monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "os")
    options = () if kind == BROKER else ("-js", "-sd", str(folder / "js"))
    with running(kind, folder, *options) as server:
        yield server


@pytest.mark.parametrize("kind", CORE_KINDS)
async def test_nothing_that_was_acknowledged_is_lost(
    kind: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ledger, done = tmp_path_factory.mktemp("kills"), Ledger(), trio.Event()
    settings = {"reconnect_wait": 0.01, "max_reconnect_wait": 0.1, "on_event": lambda _: None}
    with keeping(kind, folder, monkeypatch) as server:
        async with connect(server.url, **settings) as one, connect(server.url, **settings) as two:
            js = one.jetstream(timeout=60.0)
            await js.create_stream(StreamConfig(name="kills", subjects=("kills",)))
            config = ConsumerConfig(durable="pull", ack_wait=1.0)
            await js.create_consumer("kills", config)
            config = ConsumerConfig(durable="push", ack_wait=1.0, deliver_subject="there", idle_heartbeat=1.0)
            await js.create_consumer("kills", config)
            with trio.fail_after(240):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(publish, one, ledger, done)
                    nursery.start_soon(consume, two, ledger, "pull")
                    nursery.start_soon(consume, two, ledger, "push")
                    await kill(server, ledger)
                    await done.wait()
                    await ledger.wait(KILLS * NUMBER)
                    nursery.cancel_scope.cancel()
            assert (await js.stream("kills")).state.messages == KILLS * NUMBER
    for seen in ledger.seen.values():
        assert set(seen) == ledger.published


CLIENTS = 20


@pytest.mark.parametrize("kind", KINDS)
async def test_many_that_come_back_at_once_ask_for_little(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a consumer that is pulled, one that is pushed, and one that is made anew."""
    seen, lot = Counter[tuple[int, bytes]](), trio.lowlevel.ParkingLot()

    async def until(payload: bytes) -> None:
        while len([each for each in seen if each[1] == payload]) < 3 * CLIENTS:
            await lot.park()

    async def take(subscription: ConsumerSubscription) -> None:
        async for message in subscription:
            seen[id(subscription), message.payload] += 1
            lot.unpark_all()
            message.ack()

    async def follow(number: int, *, task_status: trio.TaskStatus[None]) -> None:
        async with connect(server.url, on_event=lambda _: None) as client:
            js, quick = client.jetstream(timeout=60.0), ConsumerConfig(idle_heartbeat=0.5)
            async with (
                js.subscribe_pull("news", durable=f"pull{number}") as pulled,
                js.subscribe("news", durable=f"push{number}", config=quick) as pushed,
                js.subscribe_ordered("news", config=quick) as ordered,
                trio.open_nursery() as nursery,
            ):
                for each in (pulled, pushed, ordered):
                    nursery.start_soon(take, each)
                task_status.started()

    with keeping(kind, tmp_path, monkeypatch) as server:
        async with connect(server.url, on_event=lambda _: None) as client, trio.open_nursery() as nursery:
            js = client.jetstream(timeout=60.0)
            await js.create_stream(StreamConfig(name="news", subjects=("news",)))
            with trio.fail_after(120):
                for number in range(CLIENTS):
                    await nursery.start(follow, number)
                await js.publish("news", b"first")
                await until(b"first")
                server.kill()
                await trio.to_thread.run_sync(server.start)
                await js.publish("news", b"again")
                await until(b"again")
            # the server has just begun to count: an ordered one makes a consumer and removes one, a pull asks again
            asked = (await js.account_info()).api.total
            nursery.cancel_scope.cancel()
    assert asked <= 6 * CLIENTS
    assert {each for each in seen.values()} == {1}
