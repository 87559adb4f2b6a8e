"""What clients, networks and plugins do to a decision that waits: each of them at the worst moment."""

import pytest
import trio
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.room import room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties


class Judge:
    """Decides about those called `a…`, each time that `answer` is set; about others nobody is asked."""

    def __init__(self, verdict: Allow | Deny = ALLOW) -> None:
        self.asked: list[str] = []
        self.answer = trio.Event()
        self.verdict: Allow | Deny = verdict
        self.running = 0

    async def __call__(
        self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool
    ) -> Allow | Deny | None:
        if not client.client_id.startswith("a"):
            return ALLOW
        self.asked.append(topic)
        self.running += 1
        verdict = self.verdict
        try:
            await self.answer.wait()
        finally:
            self.running -= 1
        return verdict


def judged(judge: Judge) -> Hooks:
    hooks = Hooks()
    hooks.add("client.check_acl", judge)
    return hooks


async def test_rules_that_change_while_a_decision_waits(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"1", qos=1, packet_id=1))
        await trio.sleep(1)
        judge.verdict = Deny()  # from now on it is forbidden; the answer that is on its way says otherwise
        here.node.clients.forget_decisions("a")
        await trio.sleep(1)
        judge.answer.set()
        await client.receive()
        answer = await client.publish("t", b"2", qos=1, packet_id=2)
        assert answer is not None
        assert answer.reason == 0x87


async def test_cache_size_zero_asks_each_time(autojump_clock: MockClock) -> None:
    judge = Judge()
    judge.answer.set()
    async with room(hooks=judged(judge), acl={"cache_size": 0}) as here:
        client = await here.client("a")
        for n in range(3):
            await client.publish("t", b"", qos=1, packet_id=n + 1)
        assert judge.asked == ["t"] * 3
        await client.send(*[raw.publish("t", b"%d" % n) for n in range(3)], raw.PINGREQ)
        await client.expect(raw.PINGRESP)
        assert judge.asked == ["t"] * 6


async def test_takeovers_leave_no_questions_behind(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge), flapping={"max_takeovers": 0}) as here:
        for n in range(20):
            client = await here.stay("a")
            await client.send(raw.publish(f"t{n}", b"x", qos=1, packet_id=1))
            await trio.sleep(1)
        assert judge.running == 1


async def test_leaving_while_it_waits_and_coming_again(autojump_clock: MockClock) -> None:
    """A goodbye that waits behind a decision is a goodbye all the same: no will."""
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        watcher = await here.client("w")
        await watcher.subscribe(("#", 0))
        client = await here.client("a", will=raw.Will("will", b"gone"))
        await client.send(raw.publish("t", b"x"), raw.disconnect())
        await trio.sleep(1)
        await here.client("a")
        judge.answer.set()
        await trio.sleep(1)
        await watcher.expect_nothing()


async def test_callback_that_never_answers_and_a_client_that_leaves(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x"))
        await trio.sleep(1)
        await client.abort()
        await trio.sleep(80_000)
        assert here.node.sessions.get("a") is None
        assert judge.running == 0


async def test_grant_under_which_nothing_is_delivered(autojump_clock: MockClock) -> None:
    judge = Judge(Deny())
    judge.answer.set()
    async with room(hooks=judged(judge), mqtt={"subscribe_denied": "grant"}) as here:
        here.broker.publish("secret", b"kept", retain=True)
        client = await here.client("a")
        assert await client.subscribe(("secret", 1)) == [1]
        here.broker.publish("secret", b"live")
        await client.expect_nothing()


async def test_retained_where_all_is_denied_but_what_is_asked(autojump_clock: MockClock) -> None:
    judge = Judge()
    judge.answer.set()
    async with room(hooks=judged(judge), acl={"no_match": "deny"}) as here:
        here.broker.publish("t", b"kept", retain=True)
        client = await here.client("a")
        assert await client.subscribe(("#", 1)) == [1]
        here.broker.publish("t", b"live")
        await client.expect_publish("t", b"kept")
        await client.expect_publish("t", b"live")


async def test_bursts_mixed(autojump_clock: MockClock) -> None:
    judge = Judge()
    judge.answer.set()
    async with room(hooks=judged(judge)) as here:
        watcher = await here.client("w")
        await watcher.subscribe(("#", 2))
        client = await here.client("a")
        await client.send(
            *[raw.publish("ab"[n % 2] if n < 50 else f"c{n}", b"%d" % n, qos=2, packet_id=n + 1) for n in range(100)]
        )
        for n in range(100):
            got = await client.receive()
            assert (got.type, got.packet_id) == (raw.PUBREC, n + 1)
        await client.send(*[raw.ack(raw.PUBREL, n + 1) for n in range(100)])
        for n in range(100):
            got = await client.receive()
            assert (got.type, got.packet_id) == (raw.PUBCOMP, n + 1)
        for n in range(100):
            p = await watcher.receive()
            assert p.payload == b"%d" % n


async def test_receive_maximum(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge), mqtt={"receive_maximum": 10}) as here:
        client = await here.client("a")
        await client.send(*[raw.publish(f"{n}", b"%d" % n, qos=1, packet_id=n + 1) for n in range(10)])
        await trio.sleep(1)
        judge.answer.set()
        for n in range(10):
            assert (await client.receive()).packet_id == n + 1
        judge.answer = trio.Event()
        packets = [raw.publish(f"x{n}", b"%d" % n, qos=1 + n % 2, packet_id=n + 1) for n in range(11)]
        await client.send(*packets[:10], raw.publish("y", b"y"))  # QoS 0 is owed nothing
        await trio.sleep(1)
        assert judge.running == 1
        judge.answer.set()
        for n in range(10):
            assert (await client.receive()).packet_id == n + 1
        await client.send(*[raw.ack(raw.PUBREL, n + 1) for n in range(1, 10, 2)])
        for n in range(1, 10, 2):
            assert (await client.receive()).packet_id == n + 1
        here.node.clients.forget_decisions("a")
        judge.answer = trio.Event()
        await client.send(*packets)
        await client.expect_disconnect(0x93)
        await trio.sleep(1)
        assert judge.running == 0


async def test_who_never_answers_costs_the_client_that_waits_its_connection(autojump_clock: MockClock) -> None:
    hooks = Hooks()

    async def never(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        await trio.sleep_forever()

    hooks.add("client.subscribe", never)
    async with room(hooks=hooks, acl={"timeout": 1}, session={"hook_timeout": 30}) as here:
        client, other = await here.client("a"), await here.client("b")
        began = trio.current_time()
        await client.send(raw.subscribe(1, ("t", 0)))
        await other.ping()
        assert (await client.receive()).reason == 0x83
        assert trio.current_time() == began + 30


async def test_alias_in_held(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        watcher = await here.client("w")
        await watcher.subscribe(("#", 0))
        client = await here.client("a")
        alias = raw.topic_alias(1)
        await client.send(
            raw.publish("one", b"1", properties=alias),
            raw.publish("", b"2", properties=alias),
            raw.publish("two", b"3", properties=alias),
            raw.publish("", b"4", properties=alias),
        )
        await trio.sleep(1)
        judge.answer.set()
        for topic, payload in (("one", b"1"), ("one", b"2"), ("two", b"3"), ("two", b"4")):
            await watcher.expect_publish(topic, payload)


async def test_window_freed_before_waiting(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        judge.answer.set()
        client = await here.client("a", properties=raw.receive_maximum(1))
        await client.subscribe(("t", 1))
        here.broker.publish("t", b"1", qos=1)
        here.broker.publish("t", b"2", qos=1)
        got = await client.receive()
        judge.answer = trio.Event()
        await client.send(raw.ack(raw.PUBACK, got.packet_id), raw.subscribe(5, ("u", 0)))
        got = await client.receive()
        assert got.payload == b"2"


async def test_wills_that_wait_are_bounded(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        for n in range(50):
            client = await here.client(f"a{n}", will=raw.Will("t", b"gone"))
            await client.abort()
            await trio.sleep(1)
        await trio.sleep(80_000)
        assert judge.running == 0


async def test_a_flood_behind_a_decision_is_not_read() -> None:
    judge = Judge()
    async with testing.broker(hooks=judged(judge), history=0) as b:
        wire = await Wire.open(b.host, b.port)
        await wire.connect("a")
        flood = b"".join(raw.publish(f"t{n % 7}", bytes(1000)) for n in range(1000))
        with trio.move_on_after(0.5) as sending:
            while True:
                await wire.stream.send_all(flood)
        assert sending.cancelled_caught
        read = inside(b.node).metrics.bytes_received
        assert read < 1_000_000
        session = inside(b.node).sessions.get("a")
        assert session is not None
        judge.answer.set()
        with trio.fail_after(120):
            while inside(b.node).metrics.bytes_received == read:
                await trio.lowlevel.checkpoint()
        await wire.abort()


async def test_the_end_of_the_broker_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        for name in ("a1", "a2"):
            client = await here.client(name, will=raw.Will("t", b"gone"))
            await client.send(raw.publish("t", b"x", qos=1, packet_id=1), raw.subscribe(2, ("t", 1)))
        await client.abort()
        await trio.sleep(1)
        ends = trio.current_time()
    assert trio.current_time() < ends + 10
    assert judge.running == 0


async def test_a_second_delivery_of_a_qos_2_message_behind_the_first(autojump_clock: MockClock) -> None:
    judge = Judge()
    async with room(hooks=judged(judge)) as here:
        watcher = await here.client("w")
        await watcher.subscribe(("t", 0))
        client = await here.stay("a")
        await client.send(
            raw.publish("t", b"x", qos=2, packet_id=1), raw.publish("t", b"x", qos=2, packet_id=1, dup=True)
        )
        await trio.sleep(1)
        again = await here.stay("a")
        await again.send(raw.publish("t", b"x", qos=2, packet_id=1, dup=True), raw.ack(raw.PUBREL, 1))
        await trio.sleep(1)
        judge.answer.set()
        assert [(await again.receive()).type for _ in range(2)] == [raw.PUBREC, raw.PUBCOMP]
        await watcher.expect_publish("t", b"x")
        await watcher.expect_nothing()


async def test_who_decides_comes_and_goes_while_a_decision_waits(autojump_clock: MockClock) -> None:
    judge = Judge(Deny())
    hooks = judged(judge)
    async with room(hooks=hooks) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x", qos=1, packet_id=1), raw.publish("u", b"y", qos=1, packet_id=2))
        await trio.sleep(1)
        hooks.remove("client.check_acl", judge)
        judge.answer.set()
        assert [(await client.receive()).reason for _ in range(2)] == [0x87, 0x10]


async def test_nobody_slips_in_between_a_hook_and_the_rules(autojump_clock: MockClock) -> None:
    """The access rules became ones to wait for while a hook at `client.subscribe` was waited for."""
    judge = Judge(Deny())
    judge.answer.set()
    hooks = Hooks()

    async def slow(client: ClientInfo, request: SubscriptionRequest, properties: Properties) -> None:
        await trio.sleep(1)
        hooks.add("client.check_acl", judge)

    async with room(hooks=hooks) as here:
        hooks.add("client.subscribe", slow)
        client = await here.client("a")
        assert await client.subscribe(("t", 1)) == [0x87]


@pytest.mark.parametrize("point", ["client.subscribe", "client.unsubscribe"])
async def test_a_hook_that_never_answers_does_not_keep_who_is_gone(autojump_clock: MockClock, point: str) -> None:
    hooks = Hooks()

    async def never(client: ClientInfo, *_: object) -> None:
        await trio.sleep_forever()

    hooks.add(point, never)
    async with room(hooks=hooks) as here:
        client = await here.client("a")
        await client.send(raw.subscribe(1, ("t", 1)) if point == "client.subscribe" else raw.unsubscribe(1, "t"))
        await trio.sleep(1)
        await client.abort()
        await trio.sleep(200)
        assert here.node.sessions.get("a") is None
