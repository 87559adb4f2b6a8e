import pytest
import trio.testing
from trio.testing import MockClock

from tests.conformance import raw
from tests.testing.watching import watched
from trunkline.hooks import ClientInfo, Deny


async def test_what_was_published_by_whom_when_and_to_whom_it_went(autojump_clock: MockClock) -> None:
    async with watched() as here:
        a, p = await here.client("a"), await here.client("p")
        await a.subscribe(("t/+", 1))
        before = here.admin.wall()
        await trio.sleep(10)
        await p.publish("t/1", b"x", qos=1, properties=raw.content_type("text/plain"), retain=True)
        here.broker.publish("u", "y")
        await a.take_publish("t/1", b"x", qos=1)
        await a.ping()
        first, second = here.broker.messages
        assert (first.topic, first.payload, first.qos, first.retain, first.publisher) == ("t/1", b"x", 1, True, "p")
        assert first.properties == {"content_type": "text/plain"}
        assert first.time == pytest.approx(before + 10)
        assert (first.delivered_to, first.dropped, first.refused, first.routed) == (("a",), {}, "", True)
        assert str(first.outcome("a")) == "routed, delivered, acked, completed"
        assert (second.publisher, second.delivered_to, second.outcomes) == ("", (), {})
        assert here.admin.trace.on is False
        assert len(first.guid) == 32
        assert first.guid < second.guid
        assert repr(here.broker.messages) == (
            "[<t/1 b'x' QoS 1 RETAIN from 'p'; 'a': completed>, <u b'y' QoS 0 from the broker itself; no subscribers>]"
        )


async def test_a_message_tells_how_things_stand_now() -> None:
    async with watched() as here:
        a = await here.client("a")
        await a.subscribe(("t", 1))
        here.broker.publish("t", "x", qos=1)
        message = await here.broker.wait_for("t")
        packet = await a.expect_publish("t", b"x", qos=1)
        assert message.outcome("a").state == "delivered"
        await a.acknowledge(packet)
        await a.ping()
        assert message.outcome("a").state == "completed"


async def test_what_the_broker_did_not_take_says_why() -> None:
    def deny(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if (action, topic) == ("publish", "secret") else None

    async with watched() as here:
        here.broker.hooks.add("client.check_acl", deny)
        p = await here.client("p")
        await p.publish("secret", b"x", qos=1)
        await p.send(raw.publish("t", b"y", qos=2, packet_id=1))
        await p.expect_type(raw.PUBREC)
        secret, unreleased = here.broker.messages
        assert (secret.refused, secret.routed, unreleased.refused, unreleased.routed) == (
            "not_authorized",
            False,
            "",
            False,
        )
        assert repr(secret).endswith("; not taken (not_authorized)>")
        assert repr(unreleased).endswith("; held>")
        here.broker.assert_not_published()
        with pytest.raises(AssertionError) as failure:
            here.broker.assert_published("secret")
        assert str(failure.value).splitlines() == [
            "no message on 'secret' was published",
            "what was published instead:",
            "  secret b'x' QoS 1 from 'p': the broker refused it (not_authorized)",
            "  t b'y' QoS 2 from 'p': another topic; not published yet: a hook keeps it, or its PUBREL has not come",
        ]


async def test_long_payloads_and_many_subscribers_are_short_to_read() -> None:
    async with watched() as here:
        for number in range(12):
            client = await here.client(f"c{number}")
            await client.subscribe("t")
        here.broker.publish("t", bytes(1000))
        await trio.testing.wait_all_tasks_blocked()
        (message,) = here.broker.messages
        assert len(message.delivered_to) == 12
        assert len(str(message)) < 200
        assert "… and 4 more" in repr(message)
