"""The broker in a thread: everything works as in a test's own trio run, from any thread and any loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiomqtt
import pytest
import trio

from trunkline import testing
from trunkline.client import ConnectionSettings, DisconnectedByServer
from trunkline.client.sync import Client
from trunkline.hooks import ClientInfo
from trunkline.plugins import Context, Settings, setting
from trunkline.testing.threads import BrokerThread


def client(broker: testing.ThreadBroker, client_id: str) -> Client:
    return Client(ConnectionSettings(host=broker.host, port=broker.port, client_id=client_id))


# For code that does not await


def test_what_is_in_it_and_what_can_be_done_with_it() -> None:
    with testing.broker() as b:
        messages = client(b, "a").open().subscribe("x/#", qos=1)
        assert b.publish("x/1", "hello", qos=1, retain=True).outcomes.keys() == {"a"}
        assert messages.receive(timeout=120).payload == b"hello"
        assert [row.client_id for row in b.clients] == [row.client_id for row in b.sessions] == ["a"]
        assert [row.filter for row in b.subscriptions] == ["x/#"]
        assert [row.topic for row in b.retained] == ["x/1"]
        assert b.metrics()["connections.count"] == 1
        assert b.url == f"mqtt://{b.host}:{b.port}"
        assert b.alarms == []
        with pytest.raises(LookupError, match="no client 'aa' is connected; did you mean 'a'"):
            b.kick("aa")
        b.kick("a")
        with pytest.raises(DisconnectedByServer):
            messages.receive(timeout=120)


def test_hooks_run_in_the_brokers_thread_and_may_use_the_broker() -> None:
    with testing.broker() as b:
        threads: list[str] = []

        def greet(client: ClientInfo) -> None:
            threads.append(threading.current_thread().name)
            b.publish("greetings", f"{len(b.clients)} clients", retain=True)

        @b.hooks.on("client.disconnected")
        def look(client: ClientInfo, reason: int, text: str) -> None:
            threads.append(client.client_id)

        assert b.hooks.add("client.connected", greet)
        assert not b.hooks.add("client.connected", greet)
        assert [entry.callback for entry in b.hooks.listing("client.connected")] == [greet]
        with client(b, "a"):
            b.wait_until(lambda: b.retained)
        b.wait_until(lambda: len(threads) == 2)
        assert threads == ["trunkline broker", "a"]
        assert b.retained[0].payload == b"1 clients"
        assert b.hooks.remove("client.connected", greet)
        assert not b.hooks.remove("client.connected", greet)


def test_a_hook_cannot_wait_for_the_broker_that_it_holds_up() -> None:
    with testing.broker() as b:
        errors: list[Exception] = []

        def wait(client: ClientInfo) -> None:
            try:
                b.wait_until(lambda: False)
            except RuntimeError as error:
                errors.append(error)

        b.hooks.add("client.connected", wait)
        with client(b, "a"):
            b.wait_until(lambda: errors)
        assert "cannot wait" in str(errors[0])


def test_a_condition_may_wait_for_the_broker() -> None:
    with testing.broker() as b, client(b, "a") as publisher:

        def published() -> bool:
            assert threading.current_thread() is threading.main_thread()
            return publisher.publish("x", "y", qos=1, timeout=5) == 0x10  # nobody has subscribed

        b.wait_until(published)
        b.assert_published("x", times=1)
        assert b.wait_for("x", lambda message: b.clients and published()).payload == b"y"
        b.assert_published("x", payload=lambda payload: b.metrics() and payload == b"y", times=2)


def test_the_timeout_of_a_condition_is_kept() -> None:
    calls: list[bool] = []
    with testing.broker() as b:

        def never() -> bool:
            calls.append(True)
            b.clock.advance(6)  # it takes longer than it is waited for
            return False

        with pytest.raises(TimeoutError, match="within 5 s"):
            b.wait_until(never)
    assert len(calls) == 1


class Word(Settings):
    word: str = setting("hello", "What is said.")


def shouter(context: Context[Word]) -> None:
    context.command("shout", lambda times: context.settings.word * int(times))


def test_several_threads_may_use_it_at_once() -> None:
    with testing.broker() as b:

        def use(number: int) -> None:
            for _ in range(50):
                b.publish(f"t/{number}", "x", retain=True)
                assert b.retained
                b.wait_until(lambda: True)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(b.retained) == 8


def test_afterwards_it_says_that_it_has_been_stopped() -> None:
    with testing.broker() as b:
        pass
    for use in (
        lambda: b.port,
        lambda: b.clients,
        b.metrics,
        lambda: b.publish("a"),
        lambda: b.wait_until(lambda: True),
    ):
        with pytest.raises(RuntimeError, match="the broker has been stopped"):
            use()


def test_what_still_waits_when_it_stops_gets_an_error() -> None:
    errors: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        try:
            b.wait_until(lambda: waiting.set(), timeout=60)
        except RuntimeError as error:
            errors.append(error)

    with testing.broker() as b:
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(120)
    thread.join(120)
    assert [str(error) for error in errors] == ["the broker has been stopped"]


def crash(thread: BrokerThread) -> None:
    """End the broker's run as a bug of its own would: an error in one of its tasks."""

    async def fail() -> None:
        raise LookupError("a bug")

    thread.call(lambda: thread._nursery.start_soon(fail))


def test_when_the_broker_dies_the_block_gets_the_error() -> None:
    with pytest.raises(LookupError, match="a bug"), testing.broker() as b:  # noqa: PT012 - the block is the matter
        crash(b._portal.thread)
        b._portal.thread.finished.exception(5)
    with pytest.raises(LookupError, match="a bug"), testing.broker() as b:  # noqa: PT012
        crash(b._portal.thread)
        b.wait_until(lambda: False, timeout=60)
    with pytest.raises(LookupError, match="a bug"), testing.broker() as b:  # noqa: PT012
        crash(b._portal.thread)
        raise ValueError("what the test made of it")


# For asyncio


@asynccontextmanager
async def aio(broker: testing.Broker, *filters: str) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client(broker.host, broker.port, identifier="a", protocol=aiomqtt.ProtocolVersion.V5) as client:
        for filter in filters:
            await client.subscribe(filter, 1)
        yield client


def test_the_same_from_asyncio() -> None:
    async def test() -> None:
        async with testing.broker() as b, aio(b, "x/#") as client:
            assert b.publish("x/1", "hello", qos=1, retain=True).outcomes.keys() == {"a"}
            assert (await anext(client.messages)).payload == b"hello"
            assert [row.client_id for row in b.clients] == ["a"]
            assert (await b.metrics())["connections.count"] == 1
            await b.plugins.enable("shouter", Word(word="hi"), shouter)
            assert b.plugins.call("shouter", "shout", times=2) == "hihi"
            with pytest.raises(RuntimeError, match="host"):
                b.connect()
            seen: list[str] = []
            b.hooks.add("client.disconnected", lambda client, reason, text: seen.append(client.client_id))
            b.kick("a")
            await b.wait_until(lambda: seen == ["a"])
            with pytest.raises(TimeoutError, match="clients: none"):
                await b.wait_until(lambda: b.clients, timeout=0.01)
            with pytest.raises(aiomqtt.MqttError):
                await anext(client.messages)

    asyncio.run(test())


def test_waiting_can_be_cancelled() -> None:
    async def test() -> None:
        async with testing.broker() as b:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await b.wait_until(lambda: False, timeout=60)
            waiting = asyncio.create_task(b.wait_until(lambda: False, timeout=60))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await b.clock.advance(0)  # all is done that there was to do
            thread: BrokerThread = b._portal.thread  # type: ignore[attr-defined]
            assert not thread.call(lambda: thread._nursery.child_tasks)

    asyncio.run(test())


def test_when_the_broker_dies_the_block_is_cancelled_and_raises_the_error() -> None:
    async def waits() -> None:
        async with testing.broker() as b:
            crash(b._portal.thread)  # type: ignore[attr-defined]
            await asyncio.sleep(60)

    async def returns() -> None:
        async with testing.broker() as b:
            crash(b._portal.thread)  # type: ignore[attr-defined]
            b._portal.thread.finished.exception(5)  # type: ignore[attr-defined]

    async def goes_on() -> None:
        for block in (waits, returns):
            with pytest.raises(LookupError, match="a bug"):
                await block()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)

    asyncio.run(goes_on())


def test_a_broker_in_a_thread_can_be_awaited_from_trio() -> None:
    async def test() -> None:
        broker = b.awaitable
        await broker.wait_until(lambda: not b.clients)
        with trio.move_on_after(0.01) as scope:
            await broker.wait_until(lambda: False, timeout=60)
        assert scope.cancelled_caught
        assert broker.publish("a", "x").outcomes == {}
        with pytest.raises(TimeoutError):
            await broker.wait_until(lambda: False, timeout=0.01)

    with testing.broker() as b:
        trio.run(test)
