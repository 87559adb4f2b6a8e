"""Who may come in, by the same authenticators, bans and limits as clients of MQTT."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.nats.speaking import NatsRoom, Speaker, nats_room
from tests.broker.net import proxied
from trunkline.broker.metrics import LimitKind
from trunkline.broker.overload import Resource
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.passwords import hash_password
from trunkline.mqtt.reasons import Reason

REFUSED = b"-ERR 'Authorization Violation'\r\n"
FULL = b"-ERR 'maximum connections exceeded'\r\n"


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("passwords") / "users"
    file.write_text(f"ann:{hash_password('right')}\n")
    return file


async def answer_to(here: NatsRoom, **options: Any) -> bytes:
    speaker = await here.stranger()
    await speaker.connect(**options)
    await speaker.say(b"PING")
    line = await speaker.line()
    return b"" if line == b"PONG" else line + b"\r\n" + await speaker.rest()


async def test_passwords(passwords: Path) -> None:
    async with nats_room(auth={"password_file": str(passwords), "allow_anonymous": False}) as here:
        assert (await here.stranger()).info["auth_required"] is True
        options: Any = {"user": "ann", "pass": "right"}
        assert await answer_to(here, **options) == b""
        assert [each.username for each in here.broker.clients] == ["ann"]
        for wrong in ({"user": "ann", "pass": "wrong"}, {"user": "bob", "pass": "right"}, {}, {"auth_token": "right"}):
            assert await answer_to(here, **wrong) == REFUSED
        metrics = here.node.metrics
        assert (metrics.authentication_success, metrics.authentication_failure) == (1, 4)


async def test_nothing_is_done_before_a_login_that_is_needed(passwords: Path) -> None:
    async with nats_room(auth={"password_file": str(passwords), "allow_anonymous": False}) as here:
        for line in (b"PING", b"SUB a 1", b"PUB a 0\r\n"):
            speaker = await here.stranger()
            await speaker.say(line)
            assert await speaker.rest() == REFUSED


async def test_without_a_connect_all_is_answered() -> None:
    async with nats_room() as here:
        speaker = await here.stranger()
        await speaker.say(b"PING", b"SUB a 1", b"PUB a 0", b"", b"PING")
        await speaker.expect(b"PONG", b"+OK", b"+OK", b"MSG a 1 0", b"", b"PONG")
        assert "auth_required" not in speaker.info
        assert here.node.metrics.authentication_success_anonymous == 1


async def test_a_user_who_is_not_asked_for_a_password_has_no_name() -> None:
    async with nats_room() as here:
        await here.speaker(user="ann", name="my service")
        (row,) = here.broker.clients
        assert row.username is None
        assert row.version == "NATS"
        assert row.client_id.startswith("auto-nats-")


async def test_a_token_is_a_password_without_a_user() -> None:
    asked: list[tuple[str | None, bytes | None]] = []

    def authenticate(client: ClientInfo, password: bytes | None) -> Allow | None:
        asked.append((client.username, password))
        return ALLOW

    async with nats_room() as here:
        here.node.hooks.add("client.authenticate", authenticate)
        await here.speaker(auth_token="t")
    assert asked == [(None, b"t")]


async def test_a_decision_may_take_time_and_what_follows_waits() -> None:
    go = trio.Event()

    async def authenticate(client: ClientInfo, password: bytes | None) -> Allow | Deny:
        await go.wait()
        return ALLOW if password == b"yes" else Deny(Reason.BANNED, "no")

    async with nats_room() as here:
        here.node.hooks.add("client.authenticate", authenticate)
        good, bad = await here.stranger(), await here.stranger()
        for speaker, word in ((good, "yes"), (bad, "no")):
            await speaker.connect(**{"pass": word})
            await speaker.say(b"SUB a 1", b"PUB a 0", b"", b"PING")
        while not all(each.is_paused for each in here.connections):
            await trio.lowlevel.checkpoint()
        go.set()
        await good.expect(b"MSG a 1 0", b"", b"PONG")
        assert await bad.rest() == REFUSED


#: What makes the broker refuse all, what is counted then, and what the client is told.
def overload(here: NatsRoom) -> None:
    here.node.services.overload.exceeded[Resource.MEMORY] = "memory_high"


REFUSALS: list[tuple[dict[str, Any], Callable[[NatsRoom], object], LimitKind]] = [
    ({"limits": {"max_sessions": 1}}, lambda _: None, LimitKind.SESSIONS_FULL),
    ({}, overload, LimitKind.OVERLOAD_MEMORY),
]


@pytest.mark.parametrize(("settings", "act", "kind"), REFUSALS)
async def test_limits_refuse(settings: dict[str, Any], act: Callable[[NatsRoom], object], kind: LimitKind) -> None:
    async with nats_room(**settings) as here:
        await here.speaker()
        act(here)
        assert await answer_to(here) == FULL
        assert here.node.metrics.limited[kind] == 1


async def test_connections_beyond_a_limit_are_closed() -> None:
    async with nats_room(listener={"max_connections": 1}) as here:
        await here.speaker()
        address = here.broker.listeners["nats"]
        stream = await trio.open_tcp_stream(address.host, address.port)
        assert await stream.receive_some() == b""
        await stream.aclose()
        assert here.node.metrics.limited[LimitKind.LISTENER_FULL] == 1


async def test_what_cannot_be_asked() -> None:
    async with nats_room() as here:
        for options, answer in (
            ({"protocol": 5}, b"-ERR 'invalid client protocol'\r\n"),
            ({"headers": False}, b"-ERR 'no responders requires headers support'\r\n"),
            ({"verbose": "x"}, b""),
        ):
            speaker = await here.stranger()
            await speaker.connect(**options)
            assert await speaker.rest() == answer


async def test_a_second_connect() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.connect(verbose=True)
        await speaker.say(b"SUB a 1", b"PING")
        await speaker.expect(b"+OK", b"+OK", b"PONG")


async def test_a_name_that_is_no_text() -> None:
    def authenticate(client: ClientInfo, password: bytes | None) -> Allow:
        client.username = "\ud800"
        return ALLOW

    async with nats_room() as here:
        here.node.hooks.add("client.authenticate", authenticate)
        assert await answer_to(here) == REFUSED


async def test_certificates(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    listener = {"url": "nats+tls://127.0.0.1:0", "tls": {"client_certificates": "required", "username_from": "cn"}}
    async with nats_room(listener=listener) as here:
        address = here.broker.listeners["nats"]
        stream = await trio.open_tcp_stream(address.host, address.port)
        context = here.broker.client_context("sensor-7")
        encrypted = trio.SSLStream(stream, context, server_hostname="localhost")
        speaker = await Speaker.over(encrypted, {})
        assert await speaker.said() == b""
        assert speaker.info["tls_required"] is True
        assert [each.username for each in here.broker.clients] == ["sensor-7"]
        await speaker.leave()


async def test_behind_a_load_balancer() -> None:
    listener = {"proxy_protocol": {"trusted": ["127.0.0.1"]}}
    async with nats_room(listener=listener) as here:
        address = here.broker.listeners["nats"]
        stream = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(proxied.v1(("192.0.2.7", 1)))
        speaker = await Speaker.over(stream, {})
        assert await speaker.said() == b""
        assert [each.address for each in here.broker.connections] == ["192.0.2.7:1"]
        await speaker.leave()
