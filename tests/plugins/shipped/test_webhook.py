"""Events that arrive: in order, at least once, and never at the broker's cost."""

import hashlib
import hmac
import socket
import time
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.plugins.shipped.server import Reply, Request, Server, serving
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.plugins.finding import settings_model


def plugin(server: Server, **settings: Any) -> dict[str, Any]:
    return {"webhook": {"url": server.url("/hook"), "batch_time": 0, **settings}}


def events(server: Server) -> list[dict[str, Any]]:
    return [event for request in server.requests for event in request.json]


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.webhook.{name}"]


def alarms(here: Room) -> list[str]:
    return [alarm.name for alarm in here.admin.alarms.active]


async def until(here: Room, name: str, value: int) -> None:
    """The server has a clock of its own."""
    end = time.monotonic() + 120
    while figure(here, name) < value:
        assert time.monotonic() < end, f"{name} is {figure(here, name)}"
        await trio.lowlevel.checkpoint()


async def test_events_arrive_in_order() -> None:
    chosen = ["client.connected", "message.publish", "session.*", "client.disconnected"]
    with serving(Reply(204)) as server:
        async with room(plugins=plugin(server, events=chosen)) as here:
            wire = await here.client("c")
            await wire.subscribe("t")
            for number in range(50):
                await wire.publish("u", str(number).encode(), qos=1)
            await wire.disconnect()
            await until(here, "sent", 55)
            assert figure(here, "queued") == figure(here, "queued_bytes") == 0
    got = events(server)
    assert [event["event"] for event in got] == [
        "session.created", "client.connected", "session.subscribed", *["message.publish"] * 50,
        "client.disconnected", "session.terminated",
    ]  # fmt: skip
    assert [event["payload"] for event in got[3:53]] == [str(number) for number in range(50)]
    assert {request.method for request in server.requests} == {"POST"}
    assert {request.headers["Content-Type"] for request in server.requests} == {"application/json"}


async def test_they_wait_for_each_other_a_while(mock_clock: MockClock) -> None:
    with serving(Reply(200, b"fine")) as server:
        async with room(plugins=plugin(server, batch_time=5, batch_size=3, events=["message.publish"])) as here:
            wire = await here.client("c")
            for number in range(5):
                await wire.publish("t", str(number).encode(), qos=1)
            await server.wait(1)
            await until(here, "sent", 3)
            mock_clock.jump(4)
            await wire.ping()
            assert len(server.requests) == 1
            mock_clock.jump(1)
            await until(here, "sent", 5)
            assert [len(request.json) for request in server.requests] == [3, 2]


async def test_a_request_has_only_so_many_bytes() -> None:
    with serving() as server:
        settings = {"events": ["message.publish"], "batch_bytes": 1000, "batch_time": 0.01, "payload": "base64"}
        async with room(plugins=plugin(server, **settings)) as here:
            wire = await here.client("c")
            for _ in range(4):
                await wire.publish("t", bytes(600), qos=1)
            await until(here, "sent", 4)
            assert [len(request.json) for request in server.requests] == [1, 1, 1, 1]


async def test_only_the_topics_that_are_asked_for() -> None:
    with serving() as server:
        settings = {"events": ["message.publish", "client.connected"], "topics": ["a/+", "$x/#"]}
        async with room(plugins=plugin(server, **settings)) as here:
            wire = await here.client("c")
            for topic in ("a/b", "a/b/c", "b", "$x/y"):
                await wire.publish(topic, qos=1)
            await until(here, "sent", 3)
    assert [event.get("topic") for event in events(server)] == [None, "a/b", "$x/y"]


async def test_what_others_have_made_of_a_message() -> None:
    from dataclasses import replace

    with serving() as server:
        async with room(plugins=plugin(server, events=["message.publish"])) as here:
            here.broker.hooks.add("message.publish", lambda client, message: replace(message, topic="other"))
            wire = await here.client("c")
            await wire.publish("t", qos=1)
            await until(here, "sent", 1)
    assert events(server)[0]["topic"] == "other"


async def test_to_look_decides_nothing() -> None:
    with serving() as server:
        chosen = ["client.authenticate", "client.check_acl", "client.subscribe", "message.deliver"]
        async with room(plugins=plugin(server, events=chosen)) as here:
            wire = await here.client("c")
            assert await wire.subscribe("t") == [2]
            await wire.publish("t", b"x")
            await wire.take_publish("t", b"x")
            await until(here, "sent", 5)
    assert {event["event"] for event in events(server)} == set(chosen)


async def test_requests_are_signed() -> None:
    with serving() as server:
        async with room(plugins=plugin(server, secret="key", headers={"X-Token": "t"})) as here:
            await here.client("c")
            await until(here, "sent", 1)
    request = server.requests[0]
    expected = hmac.new(b"key", request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-Trunkline-Signature"] == f"sha256={expected}"
    assert request.headers["X-Token"] == "t"


async def test_a_batch_is_sent_until_it_is_taken(mock_clock: MockClock) -> None:
    replies = [Reply(500), Reply(raw=b"garbage"), Reply(raw=b"garbage"), Reply(302), Reply(429), Reply(200)]
    with serving(lambda request: replies.pop(0) if replies else Reply()) as server:
        settings = {"events": ["message.publish"], "batch_size": 2, "batch_time": 5, "retry_min": 1, "retry_max": 8}
        async with room(plugins=plugin(server, **settings)) as here:
            wire = await here.client("c")
            for number in range(4):
                await wire.publish("t", str(number).encode(), qos=1)
            for failures in range(1, 5):
                await until(here, "failures", failures)
                assert alarms(here) == (["webhook.down"] if failures >= 3 else [])
                mock_clock.jump(8)
            await until(here, "sent", 4)
            assert alarms(here) == []
            assert (figure(here, "failures"), figure(here, "dropped")) == (4, 0)
    bodies = [request.body for request in server.requests]
    assert (
        len(set(bodies[:-1])) == len({request.headers["X-Trunkline-Delivery"] for request in server.requests[:-1]}) == 1
    )
    assert [event["payload"] for event in [*server.requests[0].json, *server.requests[-1].json]] == ["0", "1", "2", "3"]


async def test_the_waits_grow_and_are_not_all_alike(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    moments: list[float] = []

    async def request(*args: object, **options: object) -> Any:
        from trunkline.plugins.shipped.http_client import HttpAnswer

        moments.append(trio.current_time())
        return HttpAnswer(503, "", b"", retry_after=20.0 if len(moments) == 8 else None)

    monkeypatch.setattr("trunkline.plugins.shipped.http_client.HttpClient.request", request)
    settings = {"url": "http://h/", "retry_min": 1, "retry_max": 16}
    async with room(plugins={"webhook": settings}) as here:
        wire = await here.client("c")
        await trio.sleep(120)
        await wire.ping()
    waits = [after - before for before, after in pairwise(moments)]
    for wait, most in zip(waits, (1, 2, 4, 8, 16, 16, 16), strict=False):
        assert most / 2 <= wait <= most
    assert waits[7] == pytest.approx(16, abs=0.01)  # asked for 20, and 16 is the most


async def test_what_is_not_wanted_does_not_hold_up_the_rest() -> None:
    def answer(request: Request) -> Reply:
        return Reply(400 if request.json[0]["payload"] == "bad" else 200)

    with serving(answer) as server:
        async with room(plugins=plugin(server, events=["message.publish"], batch_size=1)) as here:
            wire = await here.client("c")
            for payload in (b"1", b"bad", b"2"):
                await wire.publish("t", payload, qos=1)
            await until(here, "sent", 2)
            assert figure(here, "refused") == 1
    assert [event["payload"] for event in events(server)] == ["1", "bad", "2"]


async def test_a_long_answer_is_an_answer() -> None:
    with serving(Reply(200, b"x" * 200_000)) as server:
        async with room(plugins=plugin(server)) as here:
            await here.client("c")
            await until(here, "sent", 1)
            assert len(server.requests) == 1


async def test_a_service_that_is_down_for_long_costs_the_broker_nothing(mock_clock: MockClock) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    settings = {"url": f"http://127.0.0.1:{port}/", "events": ["message.publish"], "batch_size": 10, "max_queue": 100}
    async with room(plugins={"webhook": {**settings, "batch_time": 0}}) as here:
        wire = await here.client("c")
        for number in range(1000):
            await wire.publish("t", str(number).encode())
        await wire.ping()
        await until(here, "failures", 1)
        assert 100 <= figure(here, "queued") <= 110
        assert figure(here, "dropped") == 1000 - figure(here, "queued")
        assert "webhook.dropping" in alarms(here)
        with serving(port=port) as server:
            mock_clock.jump(60)
            await until(here, "sent", 100)
            payloads = [int(event["payload"]) for event in events(server)]
            assert payloads == sorted(payloads)
            assert payloads[-100:] == list(range(900, 1000))
            assert alarms(here) == []


async def test_bytes_are_bounded_too(mock_clock: MockClock) -> None:
    with serving(Reply(silent=True)) as server:
        settings = {"events": ["message.publish"], "max_queue_bytes": 10_000, "batch_size": 1, "flush_time": 0}
        async with room(plugins=plugin(server, **settings)) as here:
            wire = await here.client("c")
            for _ in range(50):
                await wire.publish("t", bytes(1000))
            await wire.ping()
            assert figure(here, "queued_bytes") <= 13_000
            assert figure(here, "dropped") > 40


async def test_what_waits_goes_out_at_the_end() -> None:
    with serving() as server:
        settings = {"events": ["message.publish"], "batch_time": 1000, "batch_size": 4}
        async with room(plugins=plugin(server, **settings)) as here:
            wire = await here.client("c")
            for number in range(11):
                await wire.publish("t", str(number).encode(), qos=1)
            await until(here, "sent", 8)
            await here.admin.plugins.disable("webhook")
            assert figure(here, "sent") == 11
    assert [event["payload"] for event in events(server)] == [str(number) for number in range(11)]


async def test_the_end_does_not_wait_for_long(mock_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    with serving(Reply(silent=True)) as server:
        async with room(plugins=plugin(server, flush_time=2)) as here:
            await here.client("c")
            await server.wait(1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.admin.plugins.disable, "webhook")
                await server.wait(2)
                mock_clock.jump(2)
            assert figure(here, "dropped") == 1
    assert "1 events were not sent" in caplog.text
    first, second = server.requests
    assert first.body == second.body
    assert first.headers["X-Trunkline-Delivery"] == second.headers["X-Trunkline-Delivery"]


async def test_a_service_that_fails_at_the_end_is_asked_once() -> None:
    with serving(Reply(500)) as server:
        async with room(plugins=plugin(server, batch_time=1000, batch_size=1000)) as here:
            await here.client("c")
            await here.admin.plugins.disable("webhook")
            assert figure(here, "dropped") == 1
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "webhook.url: is missing"),
        ({"url": ""}, 'webhook.url: "": accepted is a URL'),
        (
            {"url": "http://h/", "events": ["client.conected"]},
            "events: no hook point is named 'client.conected'; did you mean",
        ),
        ({"url": "http://h/", "events": ["clients.*"]}, "events: no hook point begins with 'clients.'"),
        ({"url": "http://h/", "leave_out": ["user"]}, "leave_out: no event has a field 'user'; there are "),
        ({"url": "http://h/", "topics": ["a/#/b"]}, r"topics\[0\]"),
        ({"url": "http://h/", "flush_time": 10}, "flush_time: 10.0: accepted is"),
        ({"url": "http://h/", "payload": "hex"}, 'payload: "hex": accepted is "auto" or "base64" or "none"'),
    ],
)
def test_what_cannot_be_configured(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping({"plugins": {"webhook": settings}}, settings_model)
