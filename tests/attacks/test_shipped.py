"""All plugins of topics at once, and clients with odd names that ask for odd things. No callback may crash."""

import logging
import random

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline.hooks import ALLOW, Allow, Hooks

WORDS = [
    "$delayed", "$exclusive", "$share", "$SYS", "$", "g", "a", "b", "c", "+", "#", "", "0", "1", "9999999999", "-1",
    "1.5",
    "٣", "é", "日本", "\u202e", "%c", "%u", "$1", "$0", "?", "a?x>1", "a?x=1&y<2", "a?", "?x", "x" * 300,
    "{}", "\\1", ".*",
]  # fmt: skip
NAMES = ["a", "b", "$SYS", "$share", "%c", "$1", "a/b", "+", "#", "é" * 60, "\\g<1>", "?", " "]
RULES = [
    {"source": "#", "pattern": "^(.*)/c$", "target": "$1"},
    {"source": "a/#", "pattern": "^a/(.+)$", "target": "%c/$1"},
    {"source": "b/+", "pattern": "b/(x?)(y)?", "target": "$delayed/1/$1$2"},
    {"source": "+/+/+/+", "pattern": "(.)(.)", "target": "%u/$2$1"},
]
PLUGINS = {
    "topic-rewrite": {"rules": RULES},
    "delayed-publish": {"max_messages": 50},
    "exclusive": {"max_subscriptions": 20},
    "message-filter": {"max_filters": 5},
    "auto-subscribe": {
        "subscriptions": [{"filter": f, "qos": 1} for f in ("to/%c", "%u/#", "%c", "$share/%c/a", "%c/%h/%p")]
    },
    "bans": {"bans": [{"kind": "client_id", "who": "b"}], "flapping_detect": {"enable": True, "max_count": 300}},
    "faults": {},
}


def topic(chance: random.Random) -> str:
    """Mostly valid: a client that breaks the protocol is cut off, and asks for nothing more."""
    levels = [word for word in chance.choices(WORDS, k=chance.randrange(1, 6)) if word != "#"] or ["a"]
    if chance.random() < 0.1:
        levels.append("#")
    made = chance.choice(["", "", "$delayed/1/", "$exclusive/"]) + "/".join(levels)
    if chance.random() < 0.3:
        made = f"{chance.choice('xyz')}/s?x>0"
    return made if chance.random() < 0.02 or (made and not made.startswith("$share/")) else f"$share/g/{made}"


def packet(chance: random.Random, version: int) -> bytes:
    properties = b""
    if version == 5:
        for _ in range(chance.randrange(3)):
            name = chance.choice(
                ["x", "y", "fault:delay", "fault:disconnect", "fault:rejectpublish", "fault:requestid"]
            )
            properties += raw.user_property(name, chance.choice(["1", "2", "", "x", "-1", "1e400", "135", "nan", "٣"]))
    kind = chance.randrange(4)
    if kind == 0:
        return raw.subscribe(
            chance.randrange(1, 100),
            *[(topic(chance), chance.randrange(3)) for _ in range(chance.randrange(1, 4))],
            properties=properties,
            version=version,
        )
    if kind == 1:
        return raw.unsubscribe(chance.randrange(1, 100), topic(chance), properties=properties, version=version)
    qos = chance.randrange(3)
    return raw.publish(
        topic(chance).replace("+", "p").replace("#", "h").removeprefix("$share/"),
        b"x",
        qos=qos,
        packet_id=chance.randrange(1, 10) if qos else None,
        retain=chance.random() < 0.2,
        properties=properties,
        version=version,
    )


async def slowly(*_: object) -> Allow:
    await trio.sleep(0.1)
    return ALLOW


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_odd_topics(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, seed: int, waits: bool) -> None:
    chance = random.Random(seed)
    hooks = Hooks()
    if waits:
        hooks.add("client.check_acl", slowly)
    async with room(hooks=hooks, plugins=PLUGINS, flapping={"max_takeovers": 0}) as here:
        assert {row.status for row in here.node.plugins.rows() if row.name in PLUGINS} == {"running"}

        async def client() -> None:
            version = chance.choice([4, 5])
            wire = here.wire(version)
            await wire.send(raw.connect(chance.choice(NAMES), clean=chance.random() < 0.5, version=version))
            for _ in range(40):
                try:
                    await wire.send(packet(chance, version))
                except trio.BrokenResourceError:
                    break
                if chance.random() < 0.3:
                    await trio.sleep(chance.random())
            await trio.sleep(chance.random())
            await wire.abort()

        for _ in range(15):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(client)
        await trio.sleep(4000)
        figures = await here.node.figures()
        asked = [name for name in figures if name.endswith((".rewritten", ".made", ".delayed", ".ignored"))]
        # what is delayed is asked about without waiting, which is a no
        assert all(figures[name] for name in asked if not (waits and name.endswith(".delayed")))
        assert [entry for entry in here.node.hooks.listing() if entry.crashes] == []
        assert {row.status for row in here.node.plugins.rows() if row.name in PLUGINS} == {"running"}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
