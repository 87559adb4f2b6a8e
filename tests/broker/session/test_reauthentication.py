"""A connected client proves itself again."""

import pytest
import trio

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.hooks import ClientInfo, Continue, Deny, Exchange, Hooks, Success
from trunkline.mqtt.reasons import Reason


def sums(client: ClientInfo, exchange: Exchange) -> Continue | Success | Deny | None:
    """Asks for a sum that grows with each exchange; the state is kept from packet to packet."""
    if exchange.first:
        exchange.state = 4
        return Continue(b"2+2")
    if exchange.data == b"hint":
        exchange.state = 5
        return Continue(b"2+3")
    if exchange.data == b"%d" % exchange.state:
        return Success(b"again" if exchange.again else b"hello", username="mary")
    return Deny(Reason.NOT_AUTHORIZED, "wrong")


async def slow_sums(client: ClientInfo, exchange: Exchange) -> Continue | Success | Deny | None:
    await trio.lowlevel.checkpoint()
    return sums(client, exchange)


def auth(reason: int, data: bytes, method: str = "sum") -> bytes:
    return raw.auth(reason, raw.authentication_method(method) + raw.authentication_data(data))


async def authenticated(here: Room) -> Wire:
    wire = here.wire()
    await wire.send(raw.connect("a", properties=raw.authentication_method("sum")))
    await wire.expect_type(raw.AUTH)
    await wire.send(auth(0x18, b"4"))
    connack = await wire.expect_type(raw.CONNACK)
    assert connack.reason == 0
    assert b"hello" in connack.data
    return wire


@pytest.mark.parametrize("hook", [sums, slow_sums])
async def test_a_conversation_while_messages_go_on(hook: object) -> None:
    async with room() as here:
        here.node.hooks.add("client.enhanced_authenticate", hook)  # type: ignore[arg-type]
        client = await authenticated(here)
        await client.send(auth(0x19, b""))
        assert b"2+2" in (await client.expect_type(raw.AUTH)).data
        await client.ping()
        await client.send(auth(0x18, b"hint"))
        assert b"2+3" in (await client.expect_type(raw.AUTH)).data
        await client.send(auth(0x18, b"5"))
        done = await client.expect_type(raw.AUTH)
        assert done.reason == 0
        assert b"again" in done.data
        await client.ping()
        await client.send(auth(0x18, b"5"))  # that conversation is over
        await client.expect_disconnect(0x82)


@pytest.mark.parametrize("hook", [sums, slow_sums])
async def test_who_fails_must_go(hook: object) -> None:
    async with room() as here:
        here.node.hooks.add("client.enhanced_authenticate", hook)  # type: ignore[arg-type]
        client = await authenticated(here)
        await client.send(auth(0x19, b""))
        await client.expect_type(raw.AUTH)
        await client.send(auth(0x18, b"7"))
        await client.expect_disconnect(0x87)


async def test_another_method_than_that_of_the_connect() -> None:
    async with room() as here:
        here.node.hooks.add("client.enhanced_authenticate", sums)
        client = await authenticated(here)
        await client.send(auth(0x19, b"", "product"))
        await client.expect_disconnect(0x82)


async def test_a_new_name_asks_the_access_rules_again() -> None:
    async with room() as here:
        here.node.hooks.add("client.enhanced_authenticate", sums)
        client = await authenticated(here)
        session = here.session("a")
        session.client.username = "somebody"
        await client.publish("t", b"x", qos=1)
        channel = session.channel
        assert channel is not None
        assert channel.may_publish
        await client.send(auth(0x19, b""), auth(0x18, b"4"))
        await client.expect_type(raw.AUTH)
        assert (await client.expect_type(raw.AUTH)).reason == 0
        assert (session.client.username, channel.may_publish) == ("mary", {})


async def test_an_answer_that_cannot_be_written_is_a_no() -> None:
    hooks = Hooks()
    hooks.add("client.enhanced_authenticate", lambda client, exchange: Success("text"))  # type: ignore[arg-type]
    async with room(hooks=hooks) as here:
        client = here.wire()
        await client.send(raw.connect("a", properties=raw.authentication_method("M")))
        assert (await client.expect_type(raw.CONNACK)).reason == 0x87
        assert isinstance(here.broker.hook_errors.pop(), TypeError)


async def test_another_user_is_no_superuser_because_the_former_was_one() -> None:
    def exchange(client: ClientInfo, exchange: Exchange) -> Success:
        return Success(username=exchange.data.decode(), superuser=exchange.data == b"root")

    hooks = Hooks()
    hooks.add("client.enhanced_authenticate", exchange)
    hooks.add("client.check_acl", lambda *_: Deny())
    async with room(hooks=hooks) as here:
        method = raw.authentication_method("M")
        client = here.wire()
        await client.send(raw.connect("a", properties=method + raw.authentication_data(b"root")))
        assert (await client.expect_type(raw.CONNACK)).reason == 0
        assert await client.subscribe(("t", 0)) == [0]
        await client.send(raw.auth(0x19, method + raw.authentication_data(b"bob")))
        assert (await client.expect_type(raw.AUTH)).reason == 0
        assert await client.subscribe(("u", 0)) == [0x87]
        here.broker.publish("t", b"x")
        await client.expect_nothing()
