"""From CONNECT to CONNACK: who is asked, who waits, and what becomes of what came meanwhile."""

import logging

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.hooks import ALLOW, Allow, ClientInfo, Continue, Deny, Exchange, Success
from trunkline.mqtt.reasons import Reason


async def test_a_client_that_must_wait_for_its_login_waits_alone() -> None:
    answer = trio.Event()

    async def slow(client: ClientInfo, password: bytes | None) -> Allow | None:
        if client.client_id == "slow":
            await answer.wait()
        return ALLOW

    async with room() as here:
        here.node.hooks.add("client.authenticate", slow)
        waiting = here.wire()
        topic = "t"
        await waiting.send(
            raw.connect("slow"), raw.subscribe(1, (topic, 0)), raw.publish(topic, b"1"), raw.publish(topic, b"2")
        )
        other = await here.client("other")
        await other.ping()
        answer.set()
        # what came before the answer is handled after it, in order
        await waiting.expect_type(raw.CONNACK)
        await waiting.expect_type(raw.SUBACK)
        await waiting.expect_publish(topic, b"1")
        await waiting.expect_publish(topic, b"2")


async def test_an_answer_that_took_longer_than_a_goodbye_may(autojump_clock: MockClock) -> None:
    async def deny(client: ClientInfo, password: bytes | None) -> Deny:
        await trio.sleep(10)
        return Deny(Reason.SERVER_BUSY)

    async with room() as here:
        here.broker.hooks.add("client.authenticate", deny)
        wire = here.wire()
        await wire.send(raw.connect("a"))
        assert (await wire.expect_type(raw.CONNACK)).reason == Reason.SERVER_BUSY


async def test_a_client_that_leaves_while_it_is_asked_about_leaves_nothing() -> None:
    asked, answer = trio.Event(), trio.Event()

    async def slow(client: ClientInfo, password: bytes | None) -> Allow:
        asked.set()
        await answer.wait()
        return ALLOW

    async with room() as here:
        here.node.hooks.add("client.authenticate", slow)
        leaving = here.wire()
        await leaving.send(raw.connect("leaving"))
        await asked.wait()
        await leaving.abort()
        answer.set()
        here.node.hooks.remove("client.authenticate", slow)
        await (await here.client("other")).ping()
        assert here.node.sessions.get("leaving") is None or here.session("leaving").channel is None


@pytest.mark.parametrize(
    ("reason", "v3"),
    [
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.BANNED, 5),
        (Reason.SERVER_BUSY, 3),
        (Reason.QUOTA_EXCEEDED, 3),
    ],
)
async def test_a_denial_says_why_in_the_clients_words(reason: Reason, v3: int) -> None:
    async with room() as here:
        here.node.hooks.add("client.authenticate", lambda client, password: Deny(reason, "no"))
        for version, code in ((5, reason), (4, v3)):
            wire = here.wire(version)
            await wire.send(raw.connect("a", version=version))
            assert (await wire.expect_type(raw.CONNACK)).reason == code
            await wire.expect_close()
        assert here.node.metrics.authentication_failure == 2


async def test_a_user_name_that_nobody_proved_is_forgotten() -> None:
    async with room() as here:
        names: list[str | None] = []
        here.node.hooks.add("client.connected", lambda client: names.append(client.username))
        await here.client("a", username="root")
        here.node.hooks.add("client.authenticate", lambda client, password: ALLOW)
        await here.client("b", username="root")
        assert names == [None, "root"]


async def test_the_log_names_a_version_that_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trunkline.connection")
    async with room(listeners=[{"url": "tcp://127.0.0.1:0", "versions": ["3.1.1", "5.0"]}]) as here:
        wire = await Wire.open("127.0.0.1", here.broker.port, version=3)
        await wire.send(raw.connect("old", version=3))
        await wire.expect("20 02 00 01")
        await wire.abort()
    assert "MQTT 3.1 is not accepted at 'tcp://127.0.0.1:0' (unsupported_protocol_version)" in caplog.text


async def test_names_of_any_length_are_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    async with room() as here:
        wire = here.wire()
        await wire.send(raw.connect("c" * 65_535, username="u" * 65_535))
        assert (await wire.expect_type(raw.CONNACK)).reason == Reason.CLIENT_IDENTIFIER_NOT_VALID
        here.node.hooks.add("client.authenticate", lambda client, password: ALLOW)
        client = await here.client("a", username="u" * 65_535)
        await client.subscribe("t" * 65_535)
        await client.publish("t" * 65_535, properties=raw.content_type("x" * 65_535))
        await client.expect_type(raw.PUBLISH)
        await client.send(raw.publish("+" * 65_535, b""))
        await client.expect_disconnect(Reason.MALFORMED_PACKET)
    for record in caplog.records:
        assert all(len(str(value)) < 3000 for value in vars(record).values()), record.getMessage()[:100]


@pytest.mark.parametrize("version", [3, 4])
async def test_hooks_know_a_bridge(version: int) -> None:
    async with room() as here:
        bridges: list[bool] = []
        here.node.hooks.add("client.connected", lambda client: bridges.append(client.bridge))
        await here.client("a", version=version)
        wire = here.wire(version)
        await wire.send(raw.connect("b", version=version).replace(bytes([version, 2]), bytes([version | 0x80, 2]), 1))
        await wire.expect_type(raw.CONNACK)
        assert bridges == [False, True]


async def test_server_reference_goes_with_the_reasons_that_it_explains() -> None:
    async with room(mqtt={"server_reference": "elsewhere:1883"}) as here:
        here.node.hooks.add("client.authenticate", lambda client, password: Deny(Reason.USE_ANOTHER_SERVER))
        wire = here.wire()
        await wire.send(raw.connect("a"))
        assert b"elsewhere:1883" in (await wire.expect_type(raw.CONNACK)).data


async def test_a_conversation_before_the_connack() -> None:
    def challenge(client: ClientInfo, exchange: Exchange) -> Continue | Success | Deny | None:
        if exchange.method != "sum":
            return None
        if exchange.first:
            return Continue(b"2+2")
        return Success(b"right", username="mary") if exchange.data == b"4" else Deny(Reason.NOT_AUTHORIZED)

    async with room() as here:
        here.node.hooks.add("client.enhanced_authenticate", challenge)
        for answer, reason in ((b"4", 0), (b"5", 0x87)):
            wire = here.wire()
            await wire.send(raw.connect("a", properties=raw.authentication_method("sum")))
            assert b"2+2" in (await wire.expect_type(raw.AUTH)).data
            await wire.send(raw.auth(0x18, raw.authentication_method("sum") + raw.authentication_data(answer)))
            assert (await wire.expect_type(raw.CONNACK)).reason == reason
        assert here.session("a").client.username == "mary"
        unknown = here.wire()
        await unknown.send(raw.connect("b", properties=raw.authentication_method("other")))
        assert (await unknown.expect_type(raw.CONNACK)).reason == 0x8C


async def test_a_client_without_connect_is_closed_in_time(autojump_clock: MockClock) -> None:
    async with room(mqtt={"connect_timeout": 15}) as here:
        silent, slow = here.wire(), here.wire()
        await slow.send(raw.connect("slow")[:-1])
        began = trio.current_time()
        await silent.expect_close()
        await slow.expect_close()
        assert trio.current_time() - began == pytest.approx(15, abs=0.1)
        assert (await here.node.figures())["connections.timeout"] == 2


async def test_who_looks_is_told_what_was_decided_about_a_client() -> None:
    told: list[tuple[str, Reason, str]] = []

    def look(client: ClientInfo, reason: Reason, text: str) -> None:
        told.append((client.client_id, reason, text))

    def decide(client: ClientInfo, password: bytes | None) -> Deny | None:
        return Deny(Reason.BANNED, "go away") if client.client_id == "bad" else None

    async with room() as here:
        here.node.hooks.add("client.authenticated", look)
        here.node.hooks.add("client.authenticate", decide)
        await here.client("good")
        bad = here.wire()
        await bad.send(raw.connect("bad"))
        assert (await bad.receive()).reason == Reason.BANNED
    assert told == [("good", Reason.SUCCESS, ""), ("bad", Reason.BANNED, "go away")]


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"SSH-2.0-x\r\n", "this looks like SSH"),
        (b"\x30\x03\x00\x01t", "PUBLISH before CONNECT"),
    ],
)
async def test_the_log_says_what_came_in_place_of_mqtt(
    caplog: pytest.LogCaptureFixture, begin: bytes, what: str
) -> None:
    caplog.set_level(logging.INFO, "trunkline.connection")
    async with room() as here:
        wire = here.wire()
        await wire.send(begin)
        await wire.rest()
    assert caplog.messages[0].startswith(f"refused the connection from this process by in-process: {what}")


@pytest.mark.parametrize("version", [4, 5])
async def test_who_is_not_told_in_time_who_the_client_is_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    caplog.set_level(logging.INFO, "trunkline")
    over = trio.Event()

    async def never(client: ClientInfo, password: bytes | None) -> Allow:
        try:
            await trio.sleep_forever()
        finally:
            over.set()

    async with room(mqtt={"connect_timeout": 10}) as here:
        here.broker.hooks.add("client.authenticate", never)
        wire = here.wire(version)
        began = trio.current_time()
        await wire.send(raw.connect("a", version=version))
        assert (await wire.expect_type(raw.CONNACK)).reason == (Reason.SERVER_UNAVAILABLE if version == 5 else 3)
        assert trio.current_time() == began + 10
        await wire.expect_close()
        await over.wait()
        assert "authentication was not decided in time" in caplog.text
        assert here.node.metrics.authentication_failure == 1
