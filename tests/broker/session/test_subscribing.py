"""SUBSCRIBE and UNSUBSCRIBE: the routes, and what limits make of them."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.conformance import raw
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session import mail
from trunkline.broker.session.subscribing import SubscriptionAnswer
from trunkline.hooks import ClientInfo, Deny, Hooks
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.streams import StreamConfig


async def test_who_waits_for_a_hook_waits_alone_and_in_order() -> None:
    answer, asked = trio.Event(), trio.Event()

    async def slow(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        if client.client_id == "slow":
            asked.set()
            await answer.wait()

    async with room() as here:
        here.node.hooks.add("client.subscribe", slow)
        waiting, other = await here.client("slow"), await here.client("other")
        await waiting.send(raw.subscribe(1, ("t", 0)), raw.publish("t", b"1"), raw.PINGREQ, raw.subscribe(2, ("u", 0)))
        await asked.wait()
        await other.subscribe("t")
        await other.publish("u", b"2", qos=1)
        assert here.session("slow").session.subscriptions == {}
        answer.set()
        assert (await waiting.expect_type(raw.SUBACK)).packet_id == 1
        await waiting.expect_publish("t", b"1")
        await waiting.expect(raw.PINGRESP)
        assert (await waiting.expect_type(raw.SUBACK)).packet_id == 2


async def test_who_is_taken_over_while_it_waits_gets_no_answer() -> None:
    answer, asked = trio.Event(), trio.Event()

    async def slow(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        asked.set()
        await answer.wait()

    async with room() as here:
        here.node.hooks.add("client.subscribe", slow)
        old = await here.stay("a")
        await old.send(raw.subscribe(1, ("t", 0)))
        await asked.wait()
        new = await here.stay("a")
        await old.expect_disconnect(0x8E)
        answer.set()
        await new.ping()
        assert here.session("a").session.subscriptions == {}


async def test_no_more_subscriptions_than_allowed() -> None:
    async with room(session={"max_subscriptions": 2}) as here:
        client = await here.client("a")
        assert await client.subscribe("1", "2", "3") == [2, 2, 0x97]
        assert await client.subscribe(("1", 0), ("3", 0)) == [0, 0x97]  # renewing one needs no room
        await client.send(raw.unsubscribe(5, "2", "unknown"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0, 0x11]
        assert await client.subscribe("3") == [2]


async def test_a_hook_may_end_the_connection_in_place_of_an_answer() -> None:
    def cut(client: ClientInfo, request: object, properties: Properties) -> Deny | None:
        wanted = request.filter if isinstance(request, SubscriptionRequest) else request
        return Deny(Reason.SERVER_BUSY, "enough", disconnect=True) if wanted == "bad" else None

    async with room() as here:
        here.node.hooks.add("client.subscribe", cut)
        here.node.hooks.add("client.unsubscribe", cut)
        client = await here.stay("a")
        await client.send(raw.subscribe(1, ("good", 0), ("bad", 0)))
        assert b"enough" in (await client.expect_disconnect(0x89)).data  # type: ignore[union-attr]
        assert not here.session("a").session.subscriptions
        client = await here.stay("a")
        await client.subscribe("good")
        await client.send(raw.unsubscribe(1, "good", "bad"))
        await client.expect_disconnect(0x89)
        assert list(here.session("a").session.subscriptions) == ["good"]


async def test_more_filters_than_a_packet_may_have_end_the_connection() -> None:
    async with room(mqtt={"max_filters": 3}) as here:
        client = await here.client("a")
        assert await client.subscribe("1", "2", "3") == [2, 2, 2]
        await client.send(raw.subscribe(1, *[(str(number), 0) for number in range(4)]))
        await client.expect_disconnect(0x97)


async def test_a_long_subscribe_is_worked_off_in_order_while_others_go_on() -> None:
    asked = 0

    def count(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        nonlocal asked
        asked += 1

    async with room() as here:
        here.node.hooks.add("client.subscribe", count)
        greedy, other = await here.client("greedy"), await here.client("other")
        filters = [f"t/{number}" for number in range(1000)]
        long = raw.subscribe(1, *[(filter, 0) for filter in filters])
        with here.node.scheduler.turn:
            here.read("greedy", long + raw.publish("t/999", b"x") + raw.unsubscribe(2, *filters) + raw.PINGREQ)
        assert asked <= 100  # and not all of them in the turn that brought them
        await other.ping()
        assert (await greedy.expect_type(raw.SUBACK)).reasons == [0] * 1000
        await greedy.expect_publish("t/999", b"x")
        assert (await greedy.expect_type(raw.UNSUBACK)).reasons == [0] * 1000
        await greedy.expect(raw.PINGRESP)
        assert here.node.router.subscriptions == 0


async def test_a_queue_shares_its_filter() -> None:
    async with room() as here:
        members = [await here.client(name, version=4) for name in "ab"]
        for member in members:
            assert await member.subscribe(("$queue/t", 0)) == [0]
        for _ in range(4):
            here.broker.publish("t", b"x")
        for member in members:
            for _ in range(2):
                await member.expect_publish("t", b"x")
            await member.expect_nothing()
        await members[0].send(raw.unsubscribe(2, "$queue/t", version=4))
        await members[0].expect_type(raw.UNSUBACK)
        assert [target.subscriber.client_id for target in here.node.router.targets("$share/$queue/t")] == ["b"]


async def test_a_session_that_ends_before_what_it_wants_anew_is_there_leaves_no_route() -> None:
    """The answer to an earlier wish to have it removed comes between the two."""
    hooks = Hooks()
    async with room(hooks=hooks) as here:
        client = await here.stay("a")
        await client.subscribe("anew")

        def remove_meanwhile(
            client: ClientInfo, request: SubscriptionRequest, properties: Properties
        ) -> SubscriptionRequest:
            if request.filter == "last":
                here.node.clients.unsubscribe("a", ["anew"])
            return request

        def end(client: ClientInfo, filter: str) -> None:
            here.session("a").ref.cast(mail.End(Reason.ADMINISTRATIVE_ACTION, "kicked"))

        hooks.add("client.subscribe", remove_meanwhile)
        hooks.add("session.unsubscribed", end)
        session = here.session("a").ref
        await client.send(
            raw.subscribe(2, ("anew", 1), *[(f"{n}", 1) for n in range(2 * FILTERS_AT_ONCE)], ("last", 1))
        )
        await session.join()
        assert here.node.router.subscriptions == 0


async def test_a_client_that_takes_no_packet_as_large_as_the_suback_is_disconnected() -> None:
    async with room() as here:
        limit = raw.maximum_packet_size(40)
        client = await here.client("a", properties=limit)
        await client.send(raw.subscribe(1, *[(f"t/{number}", 0) for number in range(50)]))
        await client.expect_disconnect(0x95)


async def test_suback_and_unsuback_leave_behind_their_commits(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        client, _ = await life.stay("a")
        for packet, answer in (
            (raw.subscribe(1, ("t", 2)), raw.SUBACK),
            (raw.subscribe(2, ("t", 1)), raw.SUBACK),
            (raw.unsubscribe(3, "t"), raw.UNSUBACK),
        ):
            async with life.full(mock_clock):
                await client.send(packet)
                await client.expect_silence()
            await client.expect_type(answer)


async def test_messages_of_a_stream_come_behind_the_suback_that_names_other_filters_too() -> None:
    async with room() as here:
        await here.node.streams.create(StreamConfig(name="s", filters=("s/#",)))
        client = await here.client("a")
        here.broker.publish("s/1", b"before", qos=1)
        await client.send(
            raw.subscribe(1, ("t", 0), ("$stream/s/s/#", 0), properties=raw.user_property("from", "earliest"))
        )
        assert (await client.expect_type(raw.SUBACK)).reasons == [0, 0]
        await client.expect_publish("s/1", b"before")


async def test_a_retained_message_comes_with_the_identifier_of_its_subscription() -> None:
    async with room() as here:
        here.broker.publish("t", b"x", qos=2, retain=True)
        client = await here.client("a")
        await client.subscribe(("+", 1), properties=raw.subscription_identifier(5))
        packet = await client.expect_publish("t", b"x", qos=1)
        assert packet.retain
        assert packet.all(0x0B) == [5]


def answer(channel: Any = None) -> SubscriptionAnswer:
    return SubscriptionAnswer(ClientInfo("c"), channel, 7, [Reason.SUCCESS] * 3)


def test_filters_keep_their_places() -> None:
    made = answer()
    made.accept(0, "a")
    made.refuse(1, Reason.NOT_AUTHORIZED, "not this one")
    made.accept(2, "b")
    assert (made.filters, made.places) == (["a", "b"], [0, 2])
    assert made.reasons == [Reason.SUCCESS, Reason.NOT_AUTHORIZED, Reason.SUCCESS]


def test_the_first_explanation_is_that_of_all() -> None:
    made = answer()
    for place, text in enumerate(("", "first", "second")):
        made.refuse(place, Reason.NOT_AUTHORIZED, text)
    assert made.text == "first"


@pytest.mark.parametrize(
    ("wants", "properties"),
    [(True, {"reason_string": "why"}), (False, {}), (None, {})],
    ids=["yes", "no", "away"],
)
def test_who_gets_an_explanation(wants: bool | None, properties: dict[str, str]) -> None:
    """[MQTT-3.1.2-29]"""
    made = answer(None if wants is None else SimpleNamespace(problem_information=wants))
    made.refuse(0, Reason.NOT_AUTHORIZED, "why")
    assert made.properties == properties
