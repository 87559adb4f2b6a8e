"""An HTTP service decides: real requests, and everything that can be wrong with the answers."""

import logging
import socket
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.plugins.shipped.server import Reply, Request, Server, as_json, serving
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import CLIENT_AUTHENTICATE, CLIENT_CHECK_ACL
from trunkline.plugins import PluginError
from trunkline.plugins.finding import settings_model

REFUSED, FORBIDDEN, DOWN, BUSY = 0x86, 0x87, 0x88, 0x89


def login(server: Server, **settings: Any) -> dict[str, Any]:
    request = {"url": server.url("/login"), **settings.pop("authenticate", {})}
    return {"http-auth": {"authenticate": request, **settings}}


def rights(server: Server, **settings: Any) -> dict[str, Any]:
    request = {"url": server.url("/acl"), **settings.pop("authorize", {})}
    return {"http-auth": {"authorize": request, **settings}}


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.http-auth.{name}"]


def alarms(here: Room) -> list[str]:
    return [alarm.name for alarm in here.admin.alarms.active]


async def connect(
    here: Room, client_id: str = "c", username: str | None = "u", password: str | bytes | None = "p"
) -> int | None:
    wire = here.wire()
    await wire.send(raw.connect(client_id, username=username, password=password))
    return (await wire.expect_type(raw.CONNACK)).reason


# Authentication


async def test_a_service_says_who_may_connect() -> None:
    def answer(request: Request) -> Reply:
        return as_json({"result": "allow" if request.json["password"] == "good" else "deny"})

    with serving(answer) as server:
        async with room(plugins=login(server)) as here:
            assert await connect(here, password="good") == 0
            assert await connect(here, password="bad") == REFUSED
            assert await connect(here, "d", None, None) == REFUSED
            assert figure(here, "authenticate.asked") == 3
            assert figure(here, "authenticate.denied") == 2
    assert [request.json for request in server.requests] == [
        {"clientid": "c", "username": "u", "password": "good"},
        {"clientid": "c", "username": "u", "password": "bad"},
        {"clientid": "d", "username": None, "password": None},
    ]
    assert server.requests[0].method == "POST"
    assert server.requests[0].headers["Content-Type"] == "application/json"


async def test_a_real_client() -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=login(server)) as here:

            def session() -> int:
                client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv311)
                client.username_pw_set("ann", "päss")
                codes: list[int] = []
                client.on_connect = lambda client, data, flags, code, properties: codes.append(code.value)
                client.connect(here.broker.host, here.broker.port)
                client.loop_start()
                while not codes:
                    client.loop_misc()
                client.disconnect()
                client.loop_stop()
                return codes[0]

            assert await trio.to_thread.run_sync(session) == 0
    assert server.requests[0].json == {"clientid": "paho", "username": "ann", "password": "päss"}


async def test_by_get_and_by_form() -> None:
    body = {"id": "${clientid}", "pw": "${password}"}
    with serving(Reply(204)) as server:
        async with room(plugins=login(server, authenticate={"method": "get", "body": body})) as here:
            assert await connect(here, "a&b", password="x=y") == 0
        async with room(plugins=login(server, authenticate={"body_format": "form", "body": body})) as here:
            assert await connect(here, "a&b", password="x=y") == 0
    by_get, by_form = server.requests
    assert (by_get.method, by_get.path, by_get.query) == ("GET", "/login", {"id": "a&b", "pw": "x=y"})
    assert by_form.body == b"id=a%26b&pw=x%3Dy"


async def test_what_the_service_does_not_know_others_decide() -> None:
    with serving(as_json({"result": "ignore"})) as server:
        async with room(plugins=login(server)) as here:
            assert await connect(here) == FORBIDDEN
        async with room(plugins=login(server), auth={"allow_anonymous": True}) as here:
            assert await connect(here) == 0


async def test_what_comes_with_the_yes() -> None:
    reply = {
        "result": "allow",
        "is_superuser": False,
        "client_attrs": {"role": "reader"},
        "acl": [{"permission": "deny", "action": "publish", "topic": "t/%c"}],
    }
    clients = list[ClientInfo]()
    with serving(as_json(reply)) as server:
        async with room(plugins=login(server)) as here:
            here.broker.hooks.add("client.connected", clients.append)
            wire = await here.client("c", username="u", password="p")
            answer = await wire.publish("t/c", qos=1)
            assert answer is not None
            assert answer.reason == FORBIDDEN
            server.answer = lambda request: as_json({**reply, "is_superuser": True})
            wire = await here.client("d", username="u", password="p")
            answer = await wire.publish("t/d", qos=1)
            assert answer is not None
            assert answer.reason != FORBIDDEN
    assert [(client.superuser, client.attributes["role"]) for client in clients] == [
        (False, "reader"),
        (True, "reader"),
    ]


async def test_a_login_that_ends(mock_clock: MockClock) -> None:
    with serving() as server:
        async with room(plugins=login(server)) as here:
            ends = here.admin.wall() + 60
            server.answer = lambda request: as_json({"result": "allow", "expire_at": ends})
            wire = await here.client("c", username="u", password="p")
            mock_clock.jump(61)
            await wire.expect_disconnect(FORBIDDEN)
            assert await connect(here) == REFUSED


async def test_rules_that_nobody_understands_let_nobody_in() -> None:
    with serving(as_json({"result": "allow", "acl": [{"permission": "maybe"}]})) as server:
        async with room(plugins=login(server)) as here:
            assert await connect(here) == DOWN


async def test_a_password_that_is_no_text() -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=login(server)) as here:
            assert await connect(here, password=b"\xff\xfe") == REFUSED
    assert server.requests == []


async def test_a_client_id_that_does_not_go_into_the_url() -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=login(server, authenticate={"url": server.url("/u/${clientid}/ok")})) as here:
            assert await connect(here, "..") == REFUSED
            assert await connect(here, "a/../b") == 0
    assert [request.target for request in server.requests] == ["/u/a%2F..%2Fb/ok"]


async def test_answers_are_remembered_for_a_while(mock_clock: MockClock) -> None:
    with serving(lambda request: Reply(204 if request.json["password"] == "good" else 403)) as server:
        async with room(plugins=login(server, authenticate={"cache_ttl": 30})) as here:
            for _ in range(3):
                assert await connect(here, password="good") == 0
                assert await connect(here, password="bad") == REFUSED
            assert len(server.requests) == 2
            assert figure(here, "cache_hits") == 4
            mock_clock.jump(31)
            assert await connect(here, password="good") == 0
            assert len(server.requests) == 3


# When the service does not answer


BAD: list[Reply] = [
    Reply(500),
    Reply(302, headers={"Location": "/elsewhere"}),
    Reply(200, b"<html>", {"Content-Type": "text/html"}),
    Reply(200, b'{"result": "perhaps"}', {"Content-Type": "application/json"}),
    Reply(200, b"x" * 70_000, {"Content-Type": "application/json"}),
    Reply(raw=b"garbage\r\n\r\n"),
]


@pytest.mark.parametrize("reply", BAD, ids=lambda reply: str(reply.status) + reply.body[:9].decode())
async def test_without_an_answer_it_is_no(reply: Reply) -> None:
    with serving(reply) as server:
        async with room(plugins=login(server)) as here:
            assert await connect(here) == DOWN
            assert figure(here, "failures") == 1
    assert {request.path for request in server.requests} == {"/login"}


async def test_a_silent_service_holds_up_its_client_alone(mock_clock: MockClock) -> None:
    def answer(request: Request) -> Reply:
        return Reply(silent=True) if request.json["clientid"] == "slow" else Reply(204)

    with serving(answer) as server:
        async with room(plugins=login(server, request_timeout=4)) as here:
            slow = here.wire()
            await slow.send(raw.connect("slow"))
            await server.wait(1)
            other = await here.client("other")
            await other.ping()
            assert figure(here, "waiting") == 1
            mock_clock.jump(4)
            assert (await slow.expect_type(raw.CONNACK)).reason == DOWN
            assert figure(here, "waiting") == 0


async def test_a_service_that_is_down_is_left_alone_and_found_again(mock_clock: MockClock) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    url = f"http://127.0.0.1:{port}/login"
    settings = {"authenticate": {"url": url}, "max_failures": 2, "pause": 10}
    async with room(plugins={"http-auth": settings}) as here:
        assert [await connect(here) for _ in range(2)] == [DOWN, DOWN]
        assert alarms(here) == ["http-auth.service"]
        assert figure(here, "failures") == 2
        with serving(Reply(204), port=port) as server:
            assert await connect(here) == DOWN
            assert figure(here, "unasked") == 1
            assert server.requests == []
            mock_clock.jump(10)
            assert await connect(here) == 0
            assert alarms(here) == []


async def test_the_alarm_ends_with_the_plugin() -> None:
    with serving(Reply(500)) as server:
        async with room(plugins=login(server, max_failures=1)) as here:
            assert await connect(here) == DOWN
            assert alarms(here) == ["http-auth.service"]
            await here.admin.plugins.disable("http-auth")
            assert alarms(here) == []


async def test_no_more_questions_than_there_may_be(mock_clock: MockClock) -> None:
    with serving(Reply(silent=True)) as server:
        async with room(plugins=login(server, max_waiting=2, pool_size=1, request_timeout=5)) as here:
            waiting = [here.wire(), here.wire()]
            for number, wire in enumerate(waiting):
                await wire.send(raw.connect(f"w{number}"))
            await server.wait(1)
            while figure(here, "waiting") < 2:
                await trio.lowlevel.checkpoint()
            assert await connect(here) == BUSY
            mock_clock.jump(5)
            for wire in waiting:
                assert (await wire.expect_type(raw.CONNACK)).reason == DOWN


async def test_nobody_comes_in_while_the_plugin_does_not_run() -> None:
    plugins = {"http-auth": {"authenticate": {"url": "http://127.0.0.1:1/"}, "ca_file": __file__}}
    settings = from_mapping({"plugins": plugins}, settings_model).plugins["http-auth"]
    async with room(auth={"allow_anonymous": True}) as here:
        with pytest.raises(PluginError, match="has no certificates"):
            await here.admin.plugins.enable("http-auth", settings)
        (row,) = [row for row in here.admin.plugins.rows() if row.name == "http-auth"]
        assert row.status == "failed"
        assert await connect(here) == DOWN


# Authorization


def by_topic(request: Request) -> Reply:
    return as_json({"result": request.json["topic"].partition("/")[0]})


async def test_a_service_says_who_may_publish_and_subscribe() -> None:
    with serving(by_topic) as server:
        async with room(plugins=rights(server), acl={"no_match": "deny"}) as here:
            wire = await here.client("c")
            assert await wire.subscribe(("allow/a", 1), ("deny/a", 1)) == [1, FORBIDDEN]
            assert await _reason(wire.publish, "allow/x") == 0x10
            assert await _reason(wire.publish, "deny/x") == FORBIDDEN
    first = server.requests[0].json
    assert first == {
        "clientid": "c", "username": None, "peerhost": None,
        "action": "subscribe", "topic": "allow/a", "qos": 1, "retain": False,
    }  # fmt: skip
    third = server.requests[2].json
    assert (third["action"], third["topic"], third["qos"]) == ("publish", "allow/x", 1)


async def test_the_rules_decide_where_the_service_does_not() -> None:
    with serving(by_topic) as server:
        async with room(plugins=rights(server)) as here:
            wire = await here.client("c")
            assert await wire.subscribe("ignore/a", "$SYS/#") == [2, FORBIDDEN]


async def test_an_answer_holds_for_its_time(mock_clock: MockClock) -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=rights(server, authorize={"cache_ttl": 60})) as here:
            wire, other = await here.client("c"), await here.client("d")
            for _ in range(3):
                await wire.publish("t", qos=1)
            assert len(server.requests) == 1
            mock_clock.jump(30)
            await wire.publish("u", qos=1)
            await other.publish("t", qos=1)
            assert len(server.requests) == 3
            server.answer = lambda request: Reply(403)
            mock_clock.jump(29)
            assert await _reason(wire.publish, "t") == 0x10
            mock_clock.jump(2)
            await wire.ping()
            assert await _reason(wire.publish, "t") == FORBIDDEN
            assert await _reason(wire.publish, "u") == 0x10
            assert await _reason(other.publish, "t") == 0x10
            mock_clock.jump(30)
            await wire.ping()
            assert await _reason(wire.publish, "u") == FORBIDDEN
            assert await _reason(other.publish, "t") == FORBIDDEN


async def _reason(publish: Callable[..., Any], topic: str) -> int | None:
    return (await publish(topic, qos=1)).reason


async def test_the_same_client_id_with_another_connection(mock_clock: MockClock) -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=rights(server, authorize={"cache_ttl": 60})) as here:
            first = await here.client("c")
            await first.publish("t", qos=1)
            second = await here.client("c")
            await first.expect_disconnect(0x8E)
            await second.publish("t", qos=1)
            assert len(server.requests) == 1
            mock_clock.jump(61)
            server.answer = lambda request: Reply(403)
            await second.ping()
            assert await _reason(second.publish, "t") == FORBIDDEN
            await second.disconnect()


async def test_a_no_for_want_of_an_answer_does_not_last(mock_clock: MockClock) -> None:
    with serving(Reply(500)) as server:
        async with room(plugins=rights(server, pause=10, max_failures=1)) as here:
            wire = await here.client("c")
            assert await _reason(wire.publish, "t") == FORBIDDEN
            assert await _reason(wire.publish, "u") == FORBIDDEN
            assert len(server.requests) == 1
            server.answer = lambda request: Reply(204)
            mock_clock.jump(10)
            await wire.ping()
            assert await _reason(wire.publish, "t") == 0x10
            assert await _reason(wire.publish, "u") == 0x10


async def test_a_slow_question_about_a_topic_holds_up_its_client_alone(mock_clock: MockClock) -> None:
    with serving(Reply(silent=True)) as server:
        async with room(plugins=rights(server)) as here:
            wire, other = await here.client("c"), await here.client("d")
            await wire.send(raw.publish("t", qos=1, packet_id=1))
            await server.wait(1)
            server.answer = lambda request: Reply(204)
            assert await _reason(other.publish, "t") == 0x10
            mock_clock.jump(5)
            assert (await wire.expect_type(raw.PUBACK)).reason == FORBIDDEN


async def test_what_is_not_asked_costs_nothing() -> None:
    with serving(Reply(204)) as server:
        async with room(plugins=login(server)) as here:
            assert not here.broker.hooks.is_async(CLIENT_CHECK_ACL)
        async with room(plugins=rights(server)) as here:
            assert not here.broker.hooks.is_async(CLIENT_AUTHENTICATE)
            assert here.broker.hooks.is_async(CLIENT_CHECK_ACL)


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {"headers": {"Authorization": "Bearer hush-token"}, "authenticate": {"method": "get"}}
    with serving(lambda request: replies.pop()) as server:
        replies = [Reply(500), Reply(raw=b"garbage hush"), Reply(204)]
        async with room(plugins=login(server, **settings)) as here:
            assert [await connect(here, password="hush-password") for _ in range(3)] == [0, DOWN, DOWN]
    assert server.requests[0].headers["Authorization"] == "Bearer hush-token"
    assert "hush-" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "has no URL: set authenticate.url, authorize.url or both"),
        ({"authenticate": {"url": "http://h/${topic}"}}, r"authenticate: \$\{topic\} is unknown"),
        ({"authorize": {"url": "http://h/${password}"}}, r"authorize: \$\{password\} is unknown"),
        (
            {"authorize": {"url": "http://h/", "cache_ttl": 0}},
            "authorize.cache_ttl: 0.0: accepted is seconds.*1 or more",
        ),
        ({"authenticate": {"url": "no"}}, 'authenticate.url: "no": accepted is a URL such as'),
        ({"authenticate": {"url": "http://h/"}, "headers": {"X": 5}}, "headers.X: what it holds: accepted is"),
    ],
)
def test_what_cannot_be_configured(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping({"plugins": {"http-auth": settings}}, settings_model)


def test_only_a_login_proves_who_somebody_is() -> None:
    asks = from_mapping({"plugins": {"http-auth": {"authorize": {"url": "http://h/"}}}}, settings_model)
    assert not asks.authenticates()
    logs_in = from_mapping({"plugins": {"http-auth": {"authenticate": {"url": "http://h/"}}}}, settings_model)
    assert logs_in.authenticates()
