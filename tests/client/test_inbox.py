"""Requests to other clients, and their responses."""

from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.client.opening import client_of, cut, session_of
from trunkline import testing
from trunkline.client import sync
from trunkline.client.client import Client
from trunkline.client.errors import (
    ClientClosed,
    Disconnected,
    NoResponse,
    RequestFailed,
    RequestQueueFull,
    SubscribeRefused,
)
from trunkline.client.inbox import inbox_topic
from trunkline.client.received import ReceivedMessage
from trunkline.client.settings import ConnectionSettings
from trunkline.testing import Broker

Handler = Callable[[Client, ReceivedMessage], Awaitable[object]]


async def echo(server: Client, request: ReceivedMessage) -> None:
    await server.respond(request, request.payload)


async def serve(broker: Broker, handler: Handler = echo, *, task_status: trio.TaskStatus[None]) -> None:
    async with client_of(broker, "server") as server, await server.subscribe("ask", qos=1) as requests:
        task_status.started()
        async for request in requests:
            await handler(server, request)


async def test_each_request_gets_its_own_response(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """In whatever order they come, over one subscription."""
    late: list[ReceivedMessage] = []

    async def backwards(server: Client, request: ReceivedMessage) -> None:
        late.append(request)
        if len(late) == 10:
            for each in reversed(late):
                await server.respond(each, each.payload * 2)

    found: dict[int, str] = {}
    async with client_of(mqtt_broker) as client, trio.open_nursery() as servers:
        await servers.start(serve, mqtt_broker, backwards)

        async def ask(number: int) -> None:
            found[number] = (await client.request("ask", f"{number}")).text

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(ask, number)
        subscribed = [each.filter for each in mqtt_broker.subscriptions if each.client_id == "c"]
        servers.cancel_scope.cancel()
    assert found == {number: f"{number}" * 2 for number in range(10)}
    assert subscribed == ["responses/c"]


async def test_a_response_that_does_not_come(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    requests: list[ReceivedMessage] = []

    async def later(server: Client, request: ReceivedMessage) -> None:
        requests.append(request)
        await trio.sleep(6)
        await server.respond(request, "late")

    async with client_of(mqtt_broker) as client, trio.open_nursery() as servers:
        await servers.start(serve, mqtt_broker, later)
        began = trio.current_time()
        with pytest.raises(TimeoutError, match="no response from ask within 4.5 s"):
            await client.request("ask", timeout=4.5)
        assert trio.current_time() == began + 4.5
        await trio.sleep(10)
        # the late one was dropped
        assert (await client.request("ask", timeout=None)).text == "late"
        servers.cancel_scope.cancel()
    assert [request.properties.get("message_expiry_interval") for request in requests] == [5, None]


async def test_a_request_that_nobody_gets(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(NoResponse, match="nobody has subscribed to ask"):
            await client.request("ask")
        assert trio.current_time() < 1


async def test_a_request_that_fails(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async def fail(server: Client, request: ReceivedMessage) -> None:
        await server.respond(request, "detail", error="no water", properties={"user_property": [("a", "b")]})

    async with client_of(mqtt_broker) as client, trio.open_nursery() as servers:
        await servers.start(serve, mqtt_broker, fail)
        with pytest.raises(RequestFailed, match="no water") as caught:
            await client.request("ask")
        assert caught.value.response.text == "detail"
        assert caught.value.response.user_properties == {"a": "b", "error": "no water"}
        servers.cancel_scope.cancel()


async def test_what_waits_is_bounded(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_queued=2) as client, trio.open_nursery() as nursery:
        await client.subscribe("ask")
        for _ in range(2):
            nursery.start_soon(client.request, "ask")
        await wait_all_tasks_blocked()
        with pytest.raises(RequestQueueFull, match="2 requests wait for their responses already"):
            await client.request("ask")
        nursery.cancel_scope.cancel()
    assert nursery.cancel_scope.cancelled_caught


async def test_cancelled_requests_make_room(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, max_queued=1) as client, await client.subscribe("ask"):
        for _ in range(3):
            with trio.move_on_after(1) as scope:
                await client.request("ask")
            assert scope.cancelled_caught


@pytest.mark.parametrize("error", [ClientClosed, Disconnected])
async def test_the_end_of_the_client_is_the_end_of_its_requests(
    mqtt_broker: Broker, autojump_clock: MockClock, error: type[Exception]
) -> None:
    seen: list[BaseException] = []

    async def ask() -> None:
        with trio.CancelScope(shield=True):
            try:
                await client.request("ask", timeout=None)
            except (ClientClosed, Disconnected) as found:
                seen.append(found)

    client = client_of(mqtt_broker)
    async with trio.open_nursery() as nursery:
        try:
            async with client:
                await client.subscribe("ask")
                nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                if error is Disconnected:
                    mqtt_broker.faults.cut(client="c")
                    await trio.sleep_forever()
        except Disconnected:
            pass
    assert [type(each) for each in seen] == [error]


async def test_a_response_comes_on_the_next_connection(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with session_of(mqtt_broker) as client, trio.open_nursery() as servers:

        async def cut_first(server: Client, request: ReceivedMessage) -> None:
            await cut(mqtt_broker, client)
            await server.respond(request, "here")

        await servers.start(serve, mqtt_broker, cut_first)
        assert (await client.request("ask")).text == "here"
        servers.cancel_scope.cancel()


async def test_where_responses_come(autojump_clock: MockClock) -> None:
    async def topic(**settings: object) -> str | None:
        async with client_of(broker, **settings) as client, await client.subscribe("ask") as requests:  # type: ignore[arg-type]
            with trio.move_on_after(1):
                await client.request("ask")
            return (await requests.receive()).properties.get("response_topic")

    async with testing.broker(mqtt={"response_information": "to/all/"}) as broker:
        assert await topic() == "responses/c"
        assert await topic(response_topic="own") == "own"
        assert await topic(request_response_information=True) == "to/all/c"
    assert inbox_topic("a+#/b", "") == "responses/a%2B%23/b"


async def test_responses_that_cannot_come(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    """The next request tries again."""
    async with client_of(mqtt_broker) as client, trio.open_nursery() as servers:
        await servers.start(serve, mqtt_broker)
        with mqtt_broker.faults.refuse_subscribe("NOT_AUTHORIZED", client="c"), pytest.raises(SubscribeRefused):
            await client.request("ask")
        assert (await client.request("ask", "x")).text == "x"
        servers.cancel_scope.cancel()


async def test_requests_are_for_5_0(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker, version="3.1.1") as client:
        with pytest.raises(ValueError, match=r"MQTT 3\.1\.1 has no requests"):
            await client.request("ask")


async def test_a_message_that_nobody_waits_for_is_not_answered(mqtt_broker: Broker, autojump_clock: MockClock) -> None:
    async with client_of(mqtt_broker) as client, await client.subscribe("ask") as requests:
        await client.publish("ask")
        await client.respond(await requests.receive(), "answer")
    assert [message.topic for message in mqtt_broker.messages] == ["ask"]


def test_requests_without_await() -> None:
    with testing.broker(listeners=["tcp://127.0.0.1:0"]) as broker:
        settings = ConnectionSettings.from_url(broker.url)
        with sync.Client(settings) as server, sync.Client(settings) as client:
            requests = server.subscribe("ask", qos=1)

            def answer() -> None:
                server.respond(requests.receive(timeout=60), "x", timeout=60)
                server.respond(requests.receive(timeout=60), error="no", timeout=60)

            thread = Thread(target=answer)
            thread.start()
            assert client.request("ask", timeout=60).text == "x"
            with pytest.raises(RequestFailed, match="no"):
                client.request("ask", timeout=60)
            thread.join()
            with pytest.raises(NoResponse):
                client.request("elsewhere", timeout=60)
            with pytest.raises(TimeoutError, match="no response from ask"):
                client.request("ask", timeout=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"properties": {"response_topic": "mine"}}, "properties: response_topic"),
        ({"properties": {"correlation_data": b"1"}}, "properties: correlation_data"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
    ],
)
async def test_what_a_request_cannot_be_given(mqtt_broker: Broker, arguments: dict[str, Any], words: str) -> None:
    async with client_of(mqtt_broker) as client:
        with pytest.raises(ValueError, match=words):
            await client.request("t", **arguments)
