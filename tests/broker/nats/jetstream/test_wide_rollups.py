"""Roll-ups of a subject with wildcards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import Puller, jetstream_room
from trunkline.broker.nats.jetstream import wide_rollups
from trunkline.streams.errors import StreamForbids

if TYPE_CHECKING:
    from pathlib import Path

ALLOWS = {"allow_rollup": True}


async def subjects(puller: Puller) -> Any:
    said = await puller.api("STREAM.INFO.s", {"subjects_filter": ">"})
    return said["state"].get("subjects")


async def rolled_up(puller: Puller, subject: str, **headers: str) -> Any:
    return json.loads((await puller.ask(subject, b"gone", **{"Nats_Rollup": "sub", **headers})).payload)


@pytest.mark.parametrize("durability", ["memory", "os"])
async def test_all_that_match_are_gone_when_it_is_acknowledged(durability: str, tmp_path: Path) -> None:
    store = {} if durability == "memory" else {"store": {"path": str(tmp_path / "store.db"), "durability": durability}}
    async with jetstream_room(stream=ALLOWS, **store) as here:
        puller = await here.puller()
        for topic in ("s/a/1", "s/a/2", "s/b/1", "s/a/1/x"):
            await here.fill(b"1", b"2", topic=topic)
        assert await rolled_up(puller, "s.a.*") == {"stream": "s", "seq": 9}
        assert await subjects(puller) == {"s.b.1": 2, "s.a.1.x": 2, "s.a.*": 1}
        assert await rolled_up(puller, "s.>", Nats_Rollup="SUB") == {"stream": "s", "seq": 10}
        assert await subjects(puller) == {"s.>": 1}


async def test_what_comes_once_more_is_rolled_up_once_more() -> None:
    async with jetstream_room(stream=ALLOWS) as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a/1")
        assert await rolled_up(puller, "s.a.*", Nats_Msg_Id="1") == {"stream": "s", "seq": 2}
        await here.fill(b"1", topic="s/a/1")
        assert await rolled_up(puller, "s.a.*", Nats_Msg_Id="1") == {"stream": "s", "seq": 2, "duplicate": True}
        assert await subjects(puller) == {"s.a.1": 1, "s.a.*": 1}, "what came behind it stays"


async def test_wildcards_are_letters_to_all_but_clients_of_nats() -> None:
    async with jetstream_room(stream=ALLOWS) as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a")
        await here.streams.publish("s/*", b"2", properties={"user_property": [("Nats-Rollup", "sub")]})
        assert await subjects(puller) == {"s.a": 1, "s.*": 1}


async def test_what_is_no_pattern_and_what_is_not_asked_for() -> None:
    async with jetstream_room(stream=ALLOWS) as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a")
        await rolled_up(puller, "s.>.x")
        await puller.ask("s.*", b"no roll-up", Nats_Msg_Id="1")
        assert await subjects(puller) == {"s.a": 1, "s.>.x": 1, "s.*": 1}


@pytest.mark.parametrize(
    ("topic", "rollup", "filter"),
    [
        ("s/*", "sub", "s/+"),
        ("s/>", "SUB", "s/+/#"),
        ("s/a", "sub", None),
        ("s/a*", "sub", None),
        ("s/*", "all", None),
        ("s/*", "", None),
        ("s/>/a", "sub", None),
    ],
)
def test_what_is_of_several_topics(topic: str, rollup: str, filter: str | None) -> None:
    assert wide_rollups.rolled_up(topic, {"Nats-Rollup": rollup}) == filter


async def test_a_stream_that_is_sealed_meanwhile_keeps_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room(stream=ALLOWS) as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a")

        async def forbidden(*_: object) -> None:
            raise StreamForbids("it is sealed", "sealed")

        monkeypatch.setattr(wide_rollups, "purge", forbidden)
        assert await rolled_up(puller, "s.*") == {"stream": "s", "seq": 2}
        assert await subjects(puller) == {"s.a": 1, "s.*": 1}


async def test_a_stream_that_does_not_allow_it() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a")
        assert (await rolled_up(puller, "s.*"))["error"]["err_code"] == 10111
        assert await subjects(puller) == {"s.a": 1}


async def test_who_may_not_publish_to_one_of_them_rolls_up_none(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["s/secret"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(stream=ALLOWS, acl={"file": str(rules)}) as here:
        puller = await here.puller()
        await here.fill(b"1", topic="s/a")
        assert await rolled_up(puller, "s.*") == {"stream": "s", "seq": 2}
        await here.fill(b"1", topic="s/secret")
        assert (await rolled_up(puller, "s.*"))["error"] == {
            "code": 403,
            "err_code": 0,
            "description": "permissions violation for publish to 's/secret'",
        }
        assert await subjects(puller) == {"s.*": 1, "s.secret": 1}
