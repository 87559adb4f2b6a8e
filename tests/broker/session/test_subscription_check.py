"""Rights that are taken away: what was subscribed to before, and what waits because of it."""

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.broker.node.clients import NOTIFIED_AT_ONCE
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.broker.session import mail
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.hooks.exchange import Exchange, Success
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.reasons import Reason
from trunkline.router import Options


class Judge:
    """Denies the topics and filters that begin with one of these texts."""

    def __init__(self) -> None:
        self.denied: set[str] = set()
        #: What it says instead of a yes or no.
        self.says: Deny | None = None
        self.asked: list[tuple[str, str]] = []
        self.users: set[str | None] = set()
        self.hooks = Hooks()

    def __call__(self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        if action != "subscribe":
            return None
        self.asked.append((client.client_id, topic))
        self.users.add(client.username)
        if self.says is not None:
            return self.says
        return Deny() if any(topic.startswith(text) for text in self.denied) else ALLOW


class SlowJudge(Judge):
    """Takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = trio.Event()
        self.answer.set()
        self.at_once = self.most_at_once = 0

    async def slow(self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.answer.wait()
        await trio.sleep(1)
        self.at_once -= 1
        return self(client, action, topic, qos, retain)


@pytest.fixture
def judge() -> Judge:
    judge = Judge()
    judge.hooks.add("client.check_acl", judge)
    return judge


@pytest.fixture
def slow() -> SlowJudge:
    judge = SlowJudge()
    judge.hooks.add("client.check_acl", judge.slow)
    return judge


def forget(here: Room) -> None:
    here.node.clients.forget_decisions(None)


def subscriptions(here: Room, client_id: str) -> list[str]:
    return list(here.session(client_id).session.subscriptions)


def dropped(here: Room) -> list[tuple[str, str]]:
    """Of messages from now on: topic and reason."""
    seen: list[tuple[str, str]] = []
    here.broker.hooks.add("message.dropped", lambda client, message, reason: seen.append((message.topic, reason)))
    return seen


async def test_a_subscription_that_is_no_longer_allowed_ends(judge: Judge, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[tuple[str, str]] = []
    judge.hooks.add("session.unsubscribed", lambda client, filter: ended.append((client.client_id, filter)))
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        await client.subscribe("no/#", "no/1", "yes/#")
        judge.denied.add("no/")
        with caplog.at_level(logging.INFO, "trunkline.session"):
            forget(here)
            # the routes are still there; this message comes by them
            assert here.node.messages.publish("no/1", b"1") == 1
            await client.expect_nothing()
        assert here.node.messages.publish("no/1", b"2") == 0
        here.broker.publish("yes/1", b"3")
        await client.expect_publish("yes/1", b"3")
        assert sorted(ended) == [("a", "no/#"), ("a", "no/1")]
        assert subscriptions(here, "a") == ["yes/#"]
        (line,) = [record for record in caplog.records if "no longer allowed" in record.message]
        assert line.message == "2 of 3 subscriptions are no longer allowed and were removed"
        assert line.client == "a"  # type: ignore[attr-defined]


async def test_rules_that_are_read_again_are_such_a_change(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")
    async with room(acl={"file": str(rules)}) as here:
        client = await here.client("a")
        await client.subscribe("t")
        rules.write_text('[[rule]]\npermit = "deny"\naction = "subscribe"\ntopics = ["t"]\n')
        here.admin.reconfiguring.reload()
        here.broker.publish("t", b"secret")
        await client.expect_nothing()
        assert subscriptions(here, "a") == []


async def test_what_waits_for_an_absent_client_is_not_given_to_it(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#", "+/shared", "$share/g/none")
        await client.disconnect()
        for topic in ("no/1", "no/shared", "none"):
            here.broker.publish(topic, b"before", qos=1)
        judge.denied |= {"no/", "none"}
        forget(here)
        await here.admin.ending.quiet()
        assert subscriptions(here, "a") == ["+/shared"]
        assert here.node.messages.publish("no/1", b"after", qos=1) == 0
        gone = dropped(here)
        client = await here.stay("a")
        await client.take_publish("no/shared", b"before", qos=1)  # another subscription has it, which is still allowed
        await client.expect_nothing()
        assert gone == [("no/1", "not_authorized"), ("none", "not_authorized")]


async def test_a_right_that_is_lost_while_the_client_is_away_is_found_out_when_it_comes_back(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#")
        await client.disconnect()
        here.broker.publish("no/1", b"before", qos=1)
        judge.denied.add("no/")  # and nobody tells the broker
        client = await here.stay("a")
        await client.expect_nothing()
        assert subscriptions(here, "a") == []


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_sent_and_not_acknowledged_is_not_sent_again(judge: Judge, qos: int) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#", "yes/#")
        here.broker.publish("no/1", b"x", qos=qos)
        here.broker.publish("yes/1", b"x", qos=qos)
        lost = await client.expect_publish("no/1", b"x", qos=qos)
        await client.expect_publish("yes/1", b"x", qos=qos)
        await client.abort()
        judge.denied.add("no/")
        gone = dropped(here)
        client = await here.stay("a")
        if qos == 2:  # whether or not the client has it: the exchange ends, and the id is free
            await client.expect(raw.ack(raw.PUBREL, lost.packet_id))
            await client.send(raw.ack(raw.PUBCOMP, lost.packet_id))
        await client.take_publish("yes/1", b"x", qos=qos)
        await client.expect_nothing()
        assert gone == [("no/1", "not_authorized")]
        assert len(here.session("a").session.inflight) == 0


async def test_a_subscription_made_anew_gets_what_it_asks_for(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        await client.subscribe("no/#")
        judge.denied.add("no/")
        forget(here)
        here.broker.publish("no/1", b"1")
        await client.expect_nothing()
        judge.denied.clear()
        forget(here)
        assert await client.subscribe(("no/1", 0)) == [0]
        here.broker.publish("no/1", b"2")
        await client.expect_publish("no/1", b"2")
        assert subscriptions(here, "a") == ["no/1"]


async def test_a_client_that_subscribes_again_at_once_keeps_the_new_one(judge: Judge) -> None:
    """The answer to the removal is still on its way then."""
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        await client.subscribe("no/#")
        judge.denied.add("no/")
        forget(here)
        session = here.session("a")
        session.handle_many(session.ref._messages)  # pyright: ignore[reportPrivateUsage]
        session.ref._messages = []  # pyright: ignore[reportPrivateUsage]
        judge.denied.clear()
        assert await client.subscribe(("no/#", 0)) == [0]
        assert subscriptions(here, "a") == ["no/#"]
        here.broker.publish("no/1", b"x")
        await client.expect_publish("no/1", b"x")


async def test_another_user_that_resumes_the_session_has_its_own_rights_alone() -> None:
    hooks = Hooks()
    hooks.add("client.authenticate", lambda client, password: ALLOW)

    def own_corner(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        return None if action != "subscribe" or topic.startswith(f"{client.username}/") else Deny()

    hooks.add("client.check_acl", own_corner)
    async with room(hooks=hooks) as here:
        ann = await here.stay("a", username="ann")
        await ann.subscribe("ann/#")
        await ann.disconnect()
        here.broker.publish("ann/1", b"secret", qos=1)
        bob = await here.stay("a", username="bob")
        here.broker.publish("ann/1", b"secret", qos=1)
        await bob.expect_nothing()
        await bob.disconnect()
        ann = await here.stay("a", username="ann")
        await ann.expect_nothing()  # what was taken away stays away


@pytest.mark.parametrize("reason", [Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY])
async def test_while_nobody_can_say_a_user_keeps_what_it_has_and_another_gets_nothing(
    judge: Judge, reason: Reason
) -> None:
    judge.hooks.add("client.authenticate", lambda client, password: ALLOW)
    async with room(hooks=judge.hooks) as here:
        ann = await here.stay("a", username="ann")
        await ann.subscribe("t")
        judge.says = Deny(reason)
        forget(here)
        await ann.disconnect()
        here.broker.publish("t", b"1", qos=1)
        ann = await here.stay("a", username="ann")
        await ann.take_publish("t", b"1", qos=1)
        await ann.disconnect()
        here.broker.publish("t", b"2", qos=1)
        bob = await here.stay("a", username="bob")
        await bob.expect_nothing()
        assert subscriptions(here, "a") == []


async def test_a_callback_that_crashes_takes_the_right_away(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        await client.subscribe("t")
        judge.denied = None  # type: ignore[assignment]
        forget(here)
        await client.expect_nothing()
        assert subscriptions(here, "a") == []
        assert isinstance(here.broker.hook_errors.pop(), TypeError)


async def test_who_has_to_be_waited_for_is_waited_for(autojump_clock: MockClock, slow: SlowJudge) -> None:
    async with room(hooks=slow.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#", "yes/#")
        slow.denied.add("no/")
        slow.answer = trio.Event()
        forget(here)
        here.broker.publish("no/1", b"1")
        await client.expect_publish("no/1", b"1")  # nobody has said anything else yet
        slow.answer.set()
        await trio.sleep(10)
        here.broker.publish("no/1", b"2")
        await client.expect_nothing()
        assert subscriptions(here, "a") == ["yes/#"]


async def test_nothing_leaves_before_it_is_known_what_a_resumed_session_may_have(
    autojump_clock: MockClock, slow: SlowJudge
) -> None:
    async with room(hooks=slow.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#", "yes/#")
        await client.disconnect()
        for topic in ("no/1", "yes/1"):
            here.broker.publish(topic, b"x", qos=1)
        slow.denied.add("no/")
        slow.asked.clear()
        forget(here)
        await trio.sleep(10)
        assert slow.asked == []  # nobody who takes time is asked about a client that is away
        slow.answer = trio.Event()
        client = await here.stay("a")
        here.broker.publish("yes/2", b"x")
        await client.expect_nothing()
        slow.answer.set()
        await client.take_publish("yes/1", b"x", qos=1)
        await client.expect_publish("yes/2", b"x")
        await client.expect_nothing()


async def test_a_client_that_leaves_while_it_is_asked_about_is_asked_about_again(
    autojump_clock: MockClock, slow: SlowJudge
) -> None:
    async with room(hooks=slow.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#")
        await client.disconnect()
        slow.denied.add("no/")
        slow.answer = trio.Event()
        client = await here.stay("a")
        await client.ping()
        await client.abort()
        await trio.sleep(1)
        assert subscriptions(here, "a") == ["no/#"]
        slow.answer.set()
        client = await here.stay("a")
        await trio.sleep(10)
        await client.expect_nothing()
        assert subscriptions(here, "a") == []


async def test_few_are_asked_about_at_the_same_time_after_a_reload(autojump_clock: MockClock, slow: SlowJudge) -> None:
    async with room(hooks=slow.hooks, acl={"asked_again": 3}) as here:
        clients = [await here.client(f"c{number}") for number in range(10)]
        for client in clients:
            await client.subscribe("t")
        slow.most_at_once = 0
        slow.asked.clear()
        forget(here)
        await trio.sleep(100)
        assert slow.most_at_once == 3
        assert len(slow.asked) == 10


async def test_an_answer_that_does_not_come_leaves_things_as_they_are(
    autojump_clock: MockClock, slow: SlowJudge
) -> None:
    async with room(hooks=slow.hooks, acl={"timeout": 30}) as here:
        client = await here.stay("a")
        await client.subscribe("t")
        await client.disconnect()
        here.broker.publish("t", b"x", qos=1)
        slow.answer = trio.Event()
        client = await here.stay("a")
        await client.take_publish("t", b"x", qos=1)
        assert trio.current_time() >= 30


async def test_who_does_not_answer_is_waited_for_once_and_not_for_each_subscription(
    autojump_clock: MockClock, slow: SlowJudge
) -> None:
    def local(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny() if action == "subscribe" and topic == "no/5" and not slow.answer.is_set() else None

    slow.hooks.add("client.check_acl", local, priority=1)
    async with room(hooks=slow.hooks, acl={"timeout": 30}) as here:
        client = await here.stay("a")
        await client.subscribe("t", *(f"no/{number}" for number in range(10)))
        await client.disconnect()
        here.broker.publish("t", b"x", qos=1)
        slow.answer = trio.Event()
        began = trio.current_time()
        client = await here.stay("a")
        await client.take_publish("t", b"x", qos=1)
        assert 30 <= trio.current_time() - began < 60
        assert "no/5" not in subscriptions(here, "a")  # who can say at once is heard all the same
        assert len(subscriptions(here, "a")) == 10


@pytest.fixture
def guarding() -> type:
    from trunkline.plugins import Context, Settings, hook

    class GuardSettings(Settings):
        guards = ("client.check_acl",)

    class Guard:
        denied: ClassVar[set[str]] = set()

        def __init__(self, context: Context[GuardSettings]) -> None:
            pass

        @hook("client.check_acl")
        def check(self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny:
            return Deny() if topic in self.denied else ALLOW

    return Guard


async def test_a_plugin_that_comes_and_goes(guarding: Any) -> None:
    async with room(acl={"no_match": "deny"}) as here:
        await here.broker.plugins.enable("guard", factory=guarding)
        client = await here.client("a")
        await client.subscribe("t", "$SYS/u", "v")
        await here.broker.plugins.reload("guard")  # while it is away nobody can say
        await client.ping()
        assert subscriptions(here, "a") == ["t", "$SYS/u", "v"]
        guarding.denied.add("v")
        await here.broker.plugins.reload("guard")
        await client.ping()
        assert subscriptions(here, "a") == ["t", "$SYS/u"]
        here.broker.publish("t", b"x")
        await client.expect_publish("t", b"x")
        await here.broker.plugins.disable("guard")
        await client.ping()
        assert "v" not in subscriptions(here, "a")


async def test_a_granted_subscription_falls_silent_where_denied_ones_look_granted(judge: Judge) -> None:
    async with room(hooks=judge.hooks, mqtt={"subscribe_denied": "grant"}) as here:
        client = await here.stay("a")
        await client.subscribe("no/#")
        here.broker.publish("no/1", b"1")
        await client.expect_publish("no/1", b"1")
        judge.denied.add("no/")
        forget(here)
        here.broker.publish("no/1", b"2")
        await client.expect_nothing()
        assert subscriptions(here, "a") == ["no/#"]
        await client.disconnect()
        here.broker.publish("no/1", b"3", qos=1)
        client = await here.stay("a")
        await client.expect_nothing()
        judge.denied.clear()
        forget(here)
        here.broker.publish("no/1", b"4")
        await client.expect_publish("no/1", b"4")


async def test_retained_messages_on_their_way_are_held_back(judge: Judge) -> None:
    async with room(hooks=judge.hooks, retained={"replay_batch": 1}) as here:
        for number in range(10):
            here.broker.publish(f"no/{number}", b"x", retain=True)
        client = await here.client("a")
        await client.send(raw.subscribe(1, ("no/#", 0)))
        await client.expect_type(raw.SUBACK)
        judge.denied.add("no/")
        forget(here)
        await here.admin.ending.quiet()
        got = []
        await client.send(raw.PINGREQ)
        while (packet := await client.receive()).type == raw.PUBLISH:
            got.append(packet.topic)
        assert len(got) < 10
        await client.expect_nothing()


async def test_what_somebody_subscribed_to_on_behalf_of_the_client_is_left_alone(judge: Judge) -> None:
    judge.denied.add("cmd/")
    async with room(hooks=judge.hooks) as here:
        client = await here.stay("a")
        here.node.clients.subscribe("a", [SubscriptionRequest("cmd/a", 1)])
        await client.ping()
        forget(here)
        await client.disconnect()
        client = await here.stay("a")
        here.broker.publish("cmd/a", b"x", qos=1)
        await client.take_publish("cmd/a", b"x", qos=1)
        assert subscriptions(here, "a") == ["cmd/a"]


async def test_a_client_that_authenticates_again_as_somebody_else(judge: Judge) -> None:
    def exchange(client: ClientInfo, exchange: Exchange) -> Success:
        return Success(username=exchange.data.decode())

    judge.hooks.add("client.enhanced_authenticate", exchange)
    async with room(hooks=judge.hooks) as here:
        method = raw.authentication_method("M")
        client = here.wire()
        await client.send(raw.connect("a", properties=method + raw.authentication_data(b"ann")))
        assert (await client.expect_type(raw.CONNACK)).reason == 0
        await client.subscribe("t")
        judge.denied.add("t")
        await client.send(raw.auth(0x19, method + raw.authentication_data(b"bob")))
        assert (await client.expect_type(raw.AUTH)).reason == 0
        here.broker.publish("t", b"x")
        await client.expect_nothing()
        assert judge.users == {"ann", "bob"}


async def test_a_session_with_many_subscriptions_takes_many_turns(judge: Judge) -> None:
    many = 10 * FILTERS_AT_ONCE
    async with room(hooks=judge.hooks) as here:
        await here.client("a")
        session = here.session("a")
        for number in range(many):
            filter, options = f"no/{number}", Options(0)
            session.session.subscriptions[filter] = options
            here.node.router.subscribe(session.subscriber, filter, options)
        judge.denied.add("no/")
        removed: list[str] = []
        judge.hooks.add("session.unsubscribed", lambda client, filter: removed.append(filter))
        forget(here)
        turns = 0
        asked, ended = [0], [0]
        while here.node.scheduler.step():
            turns += 1
            asked.append(len(judge.asked))
            ended.append(len(removed))
        ended.append(len(removed))
        asked.append(len(judge.asked))
        assert len(judge.asked) == len(removed) == many
        assert max(after - before for before, after in pairwise(asked)) <= FILTERS_AT_ONCE
        # what is removed in one turn of the session is answered for together
        assert max(after - before for before, after in pairwise(ended)) <= 2 * FILTERS_AT_ONCE
        assert session.session.subscriptions == {}


async def test_many_sessions_are_told_one_after_the_other(judge: Judge) -> None:
    count = 5 * NOTIFIED_AT_ONCE
    async with room(hooks=judge.hooks) as here:
        for number in range(count):
            actor = here.node.sessions.add(ClientInfo(f"c{number}"))
            actor.session.subscriptions["t"] = Options(0)
        await here.admin.ending.quiet()
        actor.scheduler._turn_time = 0.0  # a fast machine has time for several slices in a turn
        forget(here)
        forget(here)  # as two plugins that stop together do
        asked = [0]
        for _ in range(1000):
            await trio.lowlevel.checkpoint()
            if len(judge.asked) != asked[-1]:
                asked.append(len(judge.asked))
        assert {client_id for client_id, _ in judge.asked} == {f"c{number}" for number in range(count)}
        assert max(after - before for before, after in pairwise(asked)) <= 3 * NOTIFIED_AT_ONCE


async def test_what_was_taken_away_stays_away_in_a_session_that_is_restored(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.stay("a")
        await client.subscribe("no/#", "yes/#")
        here.node.clients.subscribe("a", [SubscriptionRequest("no/given", 1)])
        await client.ping()
        await client.disconnect()
        here.broker.publish("no/1", b"x", qos=1)
        judge.denied.add("no/")
        forget(here)
        await here.broker.restart()
        client = await here.stay("a")
        here.broker.publish("no/given", b"x", qos=1)
        await client.take_publish("no/given", b"x", qos=1)
        await client.expect_nothing()


@pytest.mark.parametrize("sent", [False, True])
async def test_what_a_group_gave_to_one_that_lost_the_right_another_member_gets(sent: bool) -> None:
    denied: set[str] = set()
    hooks = Hooks()
    hooks.add("client.check_acl", lambda client, *_: Deny() if client.client_id in denied else None)
    async with room(hooks=hooks) as here:
        a = await here.stay("a")
        await a.subscribe("$share/g/t")
        if not sent:
            await a.disconnect()
        here.broker.publish("t", b"1", qos=1)
        if sent:
            await a.expect_publish("t", b"1", qos=1)
            await a.abort()
        b = await here.client("b")
        await b.subscribe("$share/g/t")
        denied.add("a")
        a = await here.stay("a")
        await a.expect_nothing()
        await b.take_publish("t", b"1", qos=1)
        here.broker.publish("t", b"2", qos=1)
        await b.take_publish("t", b"2", qos=1)


async def test_what_a_client_ends_itself_is_not_remembered(judge: Judge) -> None:
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        await client.subscribe("no/#", "$share/g/no/1", "no/1")
        judge.denied.add("no/#")
        forget(here)
        await client.ping()
        revoked = here.session("a").session.revoked
        assert revoked is not None
        for filter in ("$share/g/no/1", "no/1"):
            assert not revoked.concerns("no/1")
            await client.send(raw.unsubscribe(1, filter))
            await client.expect_type(raw.UNSUBACK)
        assert revoked.concerns("no/1")


async def test_what_a_client_ends_while_rights_are_worked_off_is_not_kept(judge: Judge) -> None:
    many = 2 * FILTERS_AT_ONCE
    async with room(hooks=judge.hooks) as here:
        client = await here.client("a")
        session = here.session("a")
        await client.subscribe("yes/1", "yes/#")
        for number in range(many):
            filter, options = f"many/{number}", Options(0)
            session.session.subscriptions[filter] = options
            here.node.router.subscribe(session.subscriber, filter, options)
        judge.denied.add("yes/#")
        asked: list[str] = []

        def end(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> None:
            asked.append(topic)
            if len(asked) == many + 1:  # the answers are there in this turn, and the next are for what they mean
                session.ref.cast(mail.UnsubscribeFor(["yes/1"]))

        judge.hooks.add("client.check_acl", end, priority=1)
        forget(here)
        await client.ping()
        await here.admin.ending.quiet()
        assert set(subscriptions(here, "a")) == {f"many/{number}" for number in range(many)}
        revoked = session.session.revoked
        assert revoked is not None
        assert revoked.concerns("yes/1")
