"""topic-rewrite: rules as in EMQX, safe results, and what its settings refuse."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from paho.mqtt import client as paho

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.plugins.finding import settings_model

#: The rules that EMQX explains its own by.
EMQX = [
    {"source": "y/+/z/#", "pattern": "^y/(.+)/z/(.+)$", "target": "y/z/$2"},
    {"source": "x/#", "pattern": "^x/y/(.+)$", "target": "z/y/x/$1"},
    {"source": "x/y/+", "pattern": r"^x/y/(\d+)$", "target": "z/y/$1"},
]
EMQX_SAYS = {
    "y/a/z/b": "y/z/b",
    "y/def": "y/def",
    "x/1/2": "x/1/2",
    "x/y/2": "z/y/2",
    "x/y/z": "x/y/z",
    "x/y/a/b": "z/y/x/a/b",
}


@asynccontextmanager
async def rewriting(*rules: dict[str, str], settings: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Room]:
    async with room(plugins={"topic-rewrite": {"rules": list(rules), **(settings or {})}}, **more) as here:
        yield here


def counted(here: Room) -> tuple[int, int]:
    figures = dict(here.admin.plugins.figures())
    return figures["plugins.topic-rewrite.rewritten"], figures["plugins.topic-rewrite.refused"]


def problems(*rules: dict[str, str], **settings: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"plugins": {"topic-rewrite": {"rules": list(rules), **settings}}}, settings_model)
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


async def test_the_last_rule_whose_source_matches_counts_as_in_emqx() -> None:
    async with rewriting(*EMQX) as here:
        client = await here.client("a")
        await client.subscribe(*EMQX_SAYS)
        assert set(here.session("a").session.subscriptions) == set(EMQX_SAYS.values())
        for topic, new in EMQX_SAYS.items():
            await client.send(raw.publish(topic, b"x"))
            await client.expect_publish(new, b"x")
        await client.send(raw.unsubscribe(2, *EMQX_SAYS))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [0] * len(EMQX_SAYS)
        assert not here.session("a").session.subscriptions
        assert counted(here) == (9, 0)


@pytest.mark.parametrize(
    ("action", "subscribed", "published"),
    [("publish", "old", "new"), ("subscribe", "new", "old"), ("all", "new", "new")],
)
async def test_rules_for_one_way(action: str, subscribed: str, published: str) -> None:
    async with rewriting({"action": action, "source": "old", "pattern": "old", "target": "new"}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe("#")
        await client.subscribe("old")
        assert list(here.session("a").session.subscriptions) == [subscribed]
        await client.publish("old", b"x")
        await watcher.expect_publish("new" if action == "publish" else published, b"x")


async def test_groups_and_the_clients_words_and_what_is_shared_or_exclusive() -> None:
    rule = {"source": "in/#", "pattern": "^in/(a)?(.*)$", "target": "m/%c/%u/$2/$1/50%"}
    async with rewriting(rule, auth={"allow_anonymous": True}) as here:
        here.broker.hooks.add("client.authenticate", lambda client, password: ALLOW)
        client = await here.client("$1", username="%c")  # words are not read again
        await client.subscribe("#")
        await client.send(raw.publish("in/a/b", b"1"), raw.publish("in/c", b"2"))
        await client.expect_publish("m/$1/%c//b/a/50%", b"1")
        await client.expect_publish("m/$1/%c/c//50%", b"2")
        await client.subscribe("$share/g/in/+", "$exclusive/in/x")
        assert list(here.session("$1").session.subscriptions) == [
            "#",
            "$share/g/m/$1/%c/+//50%",
            "$exclusive/m/$1/%c/x//50%",
        ]


async def test_the_new_topic_of_a_message_needs_access_as_well() -> None:
    rule = {"source": "old/#", "pattern": "^old/(.*)", "target": "new/$1"}

    def rules(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        return ALLOW if topic in ("old/ok", "new/ok", "old/no", "new/only", "#") else Deny()

    for check, codes in ((True, [0, 0x87, 0x87]), (False, [0, 0, 0x87])):
        async with rewriting(rule, settings={"check_access": check}) as here:
            here.broker.hooks.add("client.check_acl", rules, priority=9)
            client, watcher = await here.client("a"), await here.client("w")
            await watcher.subscribe("#")
            topics = ("old/ok", "old/no", "old/only")
            assert [(await client.publish(topic, qos=1)).reason for topic in topics] == codes  # type: ignore[union-attr]
            # of a subscription the broker asks about what comes out
            assert await client.subscribe("old/ok", "old/no", "old/only") == [2, 0x87, 2]


async def test_results_that_are_no_topics_are_refused_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    rules = [
        {"source": "any/#", "pattern": "^any/(.*)$", "target": "$1"},
        {"source": "mine/#", "pattern": "^mine/(.*)$", "target": "m/%u/$1"},
        {"source": "who/#", "pattern": "", "target": "%c/x"},
    ]
    caplog.set_level(logging.WARNING)
    async with rewriting(*rules, settings={"max_topic_length": 20}) as here:
        client = await here.client("$SYS")
        bad = ("any/", "any/$SYS/broker", "any/$share/g/t", "mine/x", "who/1", "any/" + "x" * 17, "any/" + "ü" * 9)
        for topic in bad:
            answer = await client.publish(topic, b"x", qos=1)
            assert answer is not None
            assert (answer.reason, b"invalid topic" in answer.data) == (0x90, True), topic
        assert (await client.publish("any/" + "x" * 16, qos=1)).reason == 0x10  # type: ignore[union-attr]
        await client.send(raw.subscribe(1, *[(topic, 0) for topic in bad], ("any/a/#", 0)))
        suback = await client.expect_type(raw.SUBACK)
        assert suback.reasons == [0x8F] * len(bad) + [0]
        assert list(here.session("$SYS").session.subscriptions) == ["a/#"]
        assert counted(here) == (2, 14)
    lines = [record.getMessage() for record in caplog.records if "topic-rewrite" in record.name]
    assert len(lines) == 4  # the 1st, 2nd, 4th and 8th
    assert lines[1] == (
        "rule for any/#: 'any/$SYS/broker' of the client '$SYS' is refused: $SYS is the broker's own (2 so far)"
    )


def test_wrong_rules_are_named() -> None:
    good = {"source": "a", "pattern": "(a)", "target": "b/$1"}
    assert problems(good, {**good, "pattern": "(a"}) == [
        "plugins.topic-rewrite.rules[1].pattern: '(a' is not a regular expression: "
        + "missing ), unterminated subpattern at position 0"
    ]
    assert problems({**good, "target": "b/$2"}) == [
        "plugins.topic-rewrite.rules[0]: the target has $2, but the pattern '(a)' has 1 groups"
    ]
    assert "$0" in problems({**good, "target": "$0"})[0]
    assert problems({**good, "target": "b/#"})[0].startswith(
        "plugins.topic-rewrite.rules[0]: the target 'b/#' does not make"
    )
    assert "cannot make a shared" in problems({**good, "action": "subscribe", "target": "$share/g/b"})[0]
    assert problems({**good, "source": "a/#/b"}) == [
        "plugins.topic-rewrite.rules[0].source: '#' is not alone at the end of 'a/#/b'"
    ]
    assert "behind this prefix" in problems({**good, "source": "$share/g/a"})[0]
    assert problems({**good, "action": "both"}) == [
        'plugins.topic-rewrite.rules[0].action: "both": accepted is "publish" or "subscribe" or "all"'
    ]
    assert problems({"source": "a", "target": "b"}) == ["plugins.topic-rewrite.rules[0].pattern: is missing"]
    assert problems(good, max_topic_length=0)[0].startswith("plugins.topic-rewrite.max_topic_length: 0: accepted is")
    from_mapping(
        {"plugins": {"topic-rewrite": {"rules": [{**good, "action": "subscribe", "target": "b/#"}]}}}, settings_model
    )


async def test_rules_come_and_go_while_messages_flow() -> None:
    async with rewriting({"source": "a", "pattern": "a", "target": "b"}) as here:
        client = await here.client("c")
        await client.subscribe("b", "c")
        await client.send(raw.publish("a", b"1"))
        await client.expect_publish("b", b"1")
        await here.admin.plugins.disable("topic-rewrite")
        await client.subscribe("a")
        await client.send(raw.publish("a", b"2"))
        await client.expect_publish("a", b"2")
        await here.admin.plugins.enable("topic-rewrite")  # its defaults: no rules
        await client.send(raw.publish("a", b"3"))
        await client.expect_publish("a", b"3")


async def test_with_paho() -> None:
    """A device that cannot be changed, and an application that knows the new names only."""
    rule = {"action": "publish", "source": "plant/+/temp", "pattern": "^plant/(.+)/temp$", "target": "v2/$1/%c/temp"}
    async with rewriting(rule) as here:
        got: list[tuple[str, bytes]] = []

        def work() -> None:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="dev7", protocol=paho.MQTTv311)
            client.on_connect = lambda client, *_: client.subscribe("v2/#", qos=1)
            client.on_subscribe = lambda client, *_: client.publish("plant/3/temp", "21", qos=1)
            client.on_message = lambda _c, _d, message: (
                got.append((message.topic, message.payload)),
                client.disconnect(),
            )
            client.connect(here.broker.host, here.broker.port)
            client.loop_forever()

        await trio.to_thread.run_sync(work)
        assert got == [("v2/3/dev7/temp", b"21")]
