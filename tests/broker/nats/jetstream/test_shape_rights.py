"""Who may say what becomes of a stream's messages, and who may read them then."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import JetStreamRoom, Puller, jetstream_room
from trunkline.streams import StreamConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RULES = """
[[rule]]
permit = "deny"
action = "subscribe"
topics = ["secret/#"]
[[rule]]
permit = "deny"
action = "publish"
topics = ["command/#"]
[[rule]]
permit = "allow"
topics = ["+/#", "$JS/#"]
[[rule]]
permit = "deny"
"""
NO_SUBSCRIPTION = "permissions violation for subscription to the topic filter {!r}"


@asynccontextmanager
async def ruled(tmp_path: Path) -> AsyncIterator[tuple[JetStreamRoom, Puller]]:
    rules = tmp_path / "acl.toml"
    rules.write_text(RULES)
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.streams.create(StreamConfig(name="hidden", filters=("secret/#",)))
        yield here, await here.puller()


@pytest.mark.parametrize(
    ("asked", "filter"),
    [
        ({"mirror": {"name": "hidden"}}, "secret/#"),
        ({"sources": [{"name": "s"}, {"name": "hidden"}]}, "secret/#"),
        ({"sources": [{"name": "hidden", "filter_subject": "secret.a"}]}, "secret/a"),
        (
            {"sources": [{"name": "hidden", "subject_transforms": [{"src": "secret.*", "dest": "open.$1"}]}]},
            "secret/+",
        ),
        ({"subjects": ["secret.x.>"], "subject_transform": {"src": "secret.x.>", "dest": "open.>"}}, None),
        ({"subjects": ["other"], "sources": [{"name": "later"}]}, "#"),
    ],
)
async def test_what_may_not_be_read_is_not_taken(tmp_path: Path, asked: Any, filter: str | None) -> None:
    async with ruled(tmp_path) as (here, puller):
        if filter is None:
            await here.streams.delete("hidden")
            filter = "secret/x/+/#"
        if filter == "#":
            asked = {"sources": [{"name": "later", "filter_subject": "secret.>"}]}
            filter = "secret/+/#"
        said = await puller.api("STREAM.CREATE.t", {"name": "t", **asked})
        assert said["error"] == {"code": 403, "err_code": 0, "description": NO_SUBSCRIPTION.format(filter)}
        assert len(here.streams.list()) == (1 if "subject_transform" in asked else 2)


async def test_what_may_not_be_read_or_published_is_not_published_once_more(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (here, puller):
        for subject, target, why in (
            ("secret.x", "open", NO_SUBSCRIPTION.format("secret/x")),
            ("b", "command.stop", "permissions violation for publish to 'command/stop'"),
        ):
            if subject == "secret.x":
                await here.streams.delete("hidden")
            asked = {"name": "t", "subjects": [subject], "republish": {"src": ">", "dest": f"{target}.>"}}
            asked["republish"] = {"src": subject, "dest": target}
            said = await puller.api("STREAM.CREATE.t", asked)
            assert said["error"]["description"] == why


async def test_what_is_there_already_need_not_be_allowed_again(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (here, puller):
        config = (await puller.api("STREAM.INFO.hidden"))["config"]
        assert "error" not in await puller.api("STREAM.UPDATE.hidden", config | {"description": "x"})
        said = await puller.api("STREAM.UPDATE.hidden", config | {"republish": {"src": ">", "dest": "open.>"}})
        assert said["error"]["code"] == 403
        assert here.streams.info("hidden").config.description == "x"


async def test_what_is_taken_already_need_not_be_allowed_again(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (here, puller):
        config = StreamConfig.from_plain({"name": "m", "filters": [], "mirror": {"stream": "hidden"}})
        await here.streams.create(config)
        config = (await puller.api("STREAM.INFO.m"))["config"]
        assert "error" not in await puller.api("STREAM.UPDATE.m", config | {"description": "x"})


@pytest.mark.parametrize(
    "change",
    [
        {"subjects": ["t", "secret.x"]},
        {"sources": [{"name": "hidden"}]},
        {"subjects": ["t", "secret.x"], "subject_transform": {"src": "secret.x", "dest": "open"}, "republish": None},
    ],
)
async def test_each_change_has_to_be_allowed(tmp_path: Path, change: Any) -> None:
    async with ruled(tmp_path) as (here, puller):
        await here.streams.update(StreamConfig(name="hidden", filters=("secret/a",)))
        asked = {"name": "t", "subjects": ["t"], "republish": {"src": "t", "dest": "open"}}
        config = (await puller.api("STREAM.CREATE.t", asked))["config"]
        if "republish" in change:
            known = here.streams.info("t").config
            await here.streams.update(replace(known, filters=("t", "secret/x"), republish=None))
            config = (await puller.api("STREAM.INFO.t"))["config"]
        assert (await puller.api("STREAM.UPDATE.t", config | change))["error"]["code"] == 403


async def test_readers_need_the_right_to_what_is_in_a_stream(tmp_path: Path) -> None:
    async with ruled(tmp_path) as (here, puller):
        await here.streams.publish("secret/a", b"1")
        config = StreamConfig.from_plain({"name": "m", "filters": [], "mirror": {"stream": "hidden"}})
        await here.streams.create(config)
        said = await puller.api("CONSUMER.CREATE.m.c", {"stream_name": "m", "config": {"name": "c"}})
        assert said["error"]["description"] == NO_SUBSCRIPTION.format("secret/#")
        assert (await puller.api("STREAM.INFO.m", {"subjects_filter": ">"}))["error"]["code"] == 403
        await puller.api("CONSUMER.CREATE.m.c", {"stream_name": "m", "config": {"name": "c", "filter_subject": "a"}})
        assert (await puller.api("STREAM.MSG.GET.m", {"seq": 1}))["error"]["code"] == 403
