"""Access decisions: asked once, remembered for the connection."""

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from trunkline.broker.metrics import Metrics
from trunkline.broker.session.access import Access, Question
from trunkline.broker.session.channel import Channel
from trunkline.config.config import Config
from trunkline.config.reader import from_mapping
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

Asked = tuple[str, str, int, bool]


class Rules:
    """Allows what begins with `ok`, denies what begins with `no`, and has no opinion of the rest."""

    def __init__(self, **settings: Any) -> None:
        self.asked: list[Asked] = []
        self.hooks, self.metrics = Hooks(), Metrics()
        self.hooks.add("client.check_acl", self.check)
        self.access = Access(self.hooks, self.metrics, from_mapping(settings))
        self.channel = Channel(ClientInfo("a"), cast("Any", None), cast("Any", None), Version.V5, Config())

    def check(self, client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        self.asked.append((action, topic, qos, retain))
        return ALLOW if topic.startswith("ok") else Deny() if topic.startswith("no") else None


def test_a_decision_is_remembered_with_qos_and_retain() -> None:
    rules = Rules()
    assert rules.access.may_publish(rules.channel, "ok/1", 1, True)
    assert not rules.access.may_publish(rules.channel, "no/1", 0, False)
    assert rules.channel.may_publish == {3: {"ok/1": True}, 0: {"no/1": False}}
    assert rules.asked == [("publish", "ok/1", 1, True), ("publish", "no/1", 0, False)]
    assert (rules.metrics.authorization_allow, rules.metrics.authorization_deny) == (1, 1)


async def test_the_brokers_own_topics_are_its_own_whoever_allows_everything() -> None:
    hooks = Hooks()
    hooks.add("client.check_acl", lambda *_: ALLOW)
    access = Access(hooks, Metrics(), Config())
    channel = Channel(ClientInfo("a", superuser=True), cast("Any", None), cast("Any", None), Version.V5, Config())
    for topic, allowed in (("$SYS/broker/version", False), ("$SYSTEM", True), ("$other/t", True)):
        packet = Publish(topic, b"x", 1)
        await access.ask_publish(channel, packet)
        assert channel.answer == (packet, allowed), topic
        channel.may_publish[2].clear()
        assert access.may_publish(channel, topic, 1, False) is allowed, topic


@pytest.mark.parametrize("client_id", ["plant.line-1", "a/b"])
async def test_who_may_say_whether_it_is_connected(client_id: str) -> None:
    """Each client below its own id, as bridges do, unless rules deny it."""
    rules = Rules(acl={"no_match": "allow"})
    client, own = ClientInfo(client_id), f"$SYS/broker/connection/{client_id}/state"
    others = ["$SYS/broker/connection/other/state", own + "/x", own[:-1], "$SYS/broker/connection/state"]
    for topic, allowed in ((own, True), *((other, False) for other in others)):
        for retain in (True, False):
            question = Question(client, "publish", topic, 1, retain)
            assert rules.access.decide(question) is allowed, topic
            assert await rules.access.ask(question) is allowed, topic
    assert rules.asked == [("publish", own, 1, retain) for retain in (True, True, False, False)]
    assert not Rules(acl={"no_match": "deny"}).access.decide(Question(client, "publish", own))


def test_no_more_is_remembered_than_was_configured() -> None:
    rules = Rules(acl={"cache_size": 3})
    for number in range(10):
        rules.access.may_publish(rules.channel, f"ok/{number}", 0, False)
        assert len(rules.channel.may_publish[0]) <= 3
    forgetful = Rules(acl={"cache_size": 0})
    assert forgetful.access.may_publish(forgetful.channel, "ok", 0, False)
    assert not forgetful.channel.may_publish[0]


@pytest.mark.parametrize("reason", [Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY, None], ids=str)
def test_a_denial_because_nobody_could_decide_is_not_remembered(reason: Reason | None) -> None:
    rules = Rules()

    def cannot_say(*_: object) -> Deny:
        if reason is None:
            raise RuntimeError("on purpose")
        return Deny(reason)

    rules.hooks.add("client.check_acl", cannot_say, priority=1)
    access, channel = rules.access, rules.channel
    assert not access.may_publish(channel, "ok", 0, False)
    assert not access.may_read(channel, "ok")
    rules.hooks.remove("client.check_acl", cannot_say)
    assert access.may_publish(channel, "ok", 0, False)
    assert access.may_read(channel, "ok")


def test_decisions_about_long_topics_are_not_remembered() -> None:
    rules = Rules()
    for topic in ("ok" + "x" * 254, "ok" + "x" * 255):
        for _ in range(2):
            assert rules.access.may_publish(rules.channel, topic, 0, False)
            assert rules.access.may_read(rules.channel, topic)
    assert [len(topic) for topic in rules.channel.may_publish[0]] == [256]
    assert [len(topic) for topic in rules.channel.may_read] == [256]


@pytest.mark.parametrize("default", ["allow", "deny"])
def test_where_no_rule_matches_the_default_counts_and_receiving_is_allowed(default: str) -> None:
    rules = Rules(acl={"no_match": default})
    assert rules.access.decide(Question(rules.channel.client, "publish", "other")) is (default == "allow")
    assert rules.access.decide(Question(rules.channel.client, "subscribe", "other")) is (default == "allow")
    assert rules.access.may_read(rules.channel, "other")


def test_superusers_are_not_asked_about() -> None:
    rules = Rules(acl={"no_match": "deny"})
    rules.channel.client.superuser = True
    assert rules.access.may_publish(rules.channel, "no/1", 2, False)
    assert rules.asked == []


def test_a_granted_subscription_that_should_have_been_refused_is_checked_at_delivery() -> None:
    rules = Rules(mqtt={"subscribe_denied": "grant"}, acl={"no_match": "deny"})
    assert rules.access.may_read(rules.channel, "ok/1")
    assert not rules.access.may_read(rules.channel, "other")
    assert [action for action, *_ in rules.asked] == ["receive", "subscribe", "receive", "subscribe"]


def test_what_was_retained_is_for_those_who_might_have_subscribed_to_it() -> None:
    rules = Rules()
    assert rules.access.may_read_retained(rules.channel.client, "ok/1")
    assert not rules.access.may_read_retained(rules.channel.client, "no/1")
    assert rules.asked == [("subscribe", "ok/1", 0, False), ("subscribe", "no/1", 0, False)]


def test_who_looks_is_told_each_decision_once() -> None:
    rules = Rules()
    told: list[tuple[object, ...]] = []
    rules.hooks.add("client.acl_decided", lambda client, *rest: told.append(rest))
    rules.access.may_publish(rules.channel, "ok/1", 1, True)
    rules.access.decide(Question(rules.channel.client, "subscribe", "no/#", 2))
    rules.access.may_read(rules.channel, "ok/1")
    assert told == [
        ("publish", "ok/1", 1, True, True),
        ("subscribe", "no/#", 2, False, False),
        ("receive", "ok/1", 0, False, True),
    ]


async def test_a_refusal_says_why() -> None:
    rules = Rules(acl={"no_match": "deny"})
    rules.hooks.add("client.check_acl", lambda _, action, topic, *__: Deny(text="full") if topic == "x" else None)
    client = rules.channel.client
    for topic, text in (("x", "full"), ("no/1", ""), ("other", "")):
        assert await rules.access.refusal(Question(client, "subscribe", topic)) == Deny(Reason.NOT_AUTHORIZED, text)
    assert await rules.access.refusal(Question(client, "subscribe", "ok")) is None


async def test_a_service_that_does_not_answer_is_named_in_the_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rules = Rules(acl={"timeout": 3})

    async def never(*_: object) -> Allow:
        await trio.sleep_forever()
        return ALLOW

    rules.hooks.add("client.check_acl", never, priority=1)
    question = Question(rules.channel.client, "publish", "ok/1")
    assert await rules.access.ask(question) is None
    assert trio.current_time() == 3
    assert "no decision within 3 s about publish to" in caplog.text
    refusal = await rules.access.refusal(question)
    assert refusal is not None
    assert refusal.reason == Reason.NOT_AUTHORIZED


async def test_what_old_rules_say_is_asked_again() -> None:
    rules = Rules()

    async def changing(client: ClientInfo, action: str, topic: str, *_: object) -> None:
        if not rules.asked:
            rules.asked.append((action, topic, 0, False))
            rules.channel.forget_decisions()

    rules.hooks.add("client.check_acl", changing, priority=1)
    packet = Publish("ok/1", b"x", 1)
    await rules.access.ask_publish(rules.channel, packet)
    assert [topic for _, topic, *_ in rules.asked] == ["ok/1"] * 3
    assert rules.channel.answer == (packet, True)
    assert rules.channel.may_publish[2] == {"ok/1": True}
