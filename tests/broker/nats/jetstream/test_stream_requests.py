"""What clients ask of streams: limits, pages, rights, and streams that others made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.nats.jetstream import requests, stream_requests
from trunkline.broker.nats.jetstream.stream_configs import KEPT
from trunkline.store import StoreError
from trunkline.streams import ConsumerConfig, Retention, StreamConfig

if TYPE_CHECKING:
    from pathlib import Path

#: Everything may be asked of the API, and nothing below `closed` read.
RULES = """
[[rule]]
permit = "deny"
action = "subscribe"
topics = ["closed/#"]
[[rule]]
permit = "allow"
topics = ["#", "$JS/#"]
"""


def failed(answer: dict[str, Any]) -> tuple[int, int]:
    error = answer["error"]
    return error["code"], error["err_code"]


def made(name: str, *subjects: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "subjects": subjects or (name,), **config}


async def test_the_account() -> None:
    async with jetstream_room(nats={"max_streams": 7, "max_consumers": 8}) as here:
        puller = await here.puller()
        before = await puller.api("INFO")
        assert (before["streams"], before["consumers"], before["storage"]) == (1, 0, 0)
        await here.fill(b"x" * 1000)
        await here.streams.create(StreamConfig(name="t", filters=("t",)))
        for stream in ("s", "t"):
            await here.streams.create_consumer(stream, ConsumerConfig(name="c", durable=True))
        said = await puller.api("INFO")
        assert (said["streams"], said["consumers"], said["memory"]) == (2, 2, 0)
        assert said["storage"] == sum(info.bytes for info in here.streams.list()) > 1000
        assert (said["limits"]["max_streams"], said["limits"]["max_consumers"]) == (7, 8)
    async with jetstream_room(nats={"max_streams": 0, "max_consumers": 0}) as here:
        limits = (await (await here.puller()).api("INFO"))["limits"]
        assert (limits["max_streams"], limits["max_consumers"]) == (-1, -1)


async def test_no_more_streams_than_there_may_be() -> None:
    async with jetstream_room(nats={"max_streams": 2}) as here:
        puller = await here.puller()
        assert (await puller.api("STREAM.CREATE.t", made("t")))["did_create"]
        assert failed(await puller.api("STREAM.CREATE.u", made("u"))) == (400, 10027)
        assert "error" not in await puller.api("STREAM.CREATE.t", made("t"))  # it is there
        await here.streams.create(StreamConfig(name="v", filters=("v",)))  # the limit is for clients
        await puller.api("STREAM.DELETE.t")
        assert failed(await puller.api("STREAM.CREATE.u", made("u"))) == (400, 10027)
        await puller.api("STREAM.DELETE.v")
        assert "error" not in await puller.api("STREAM.CREATE.u", made("u"))
    async with jetstream_room(nats={"max_streams": 0}) as here:
        assert "error" not in await (await here.puller()).api("STREAM.CREATE.t", made("t"))


async def test_levels_of_all_streams_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new stream's are compared with those of all others."""
    monkeypatch.setattr(stream_requests, "MOST_LEVELS_OF_ALL", 12)  # two are those of the stream that is there
    async with jetstream_room() as here:
        puller = await here.puller()
        assert "error" not in await puller.api("STREAM.CREATE.a", made("a", "a.b.c", "a.d"))
        assert "error" not in await puller.api("STREAM.CREATE.b", made("b", "b.b.b.b.b"))
        words = "more than 12 levels of the subjects of all streams together"
        assert (await puller.api("STREAM.CREATE.c", made("c")))["error"]["description"] == words
        assert (await puller.api("STREAM.UPDATE.a", made("a", "a.b.c", "a.d.e")))["error"]["description"] == words
        assert "error" not in await puller.api("STREAM.UPDATE.a", made("a", "a.b.c.d"))
        assert "error" not in await puller.api("STREAM.CREATE.c", made("c"))


async def test_names_taken() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        assert failed(await puller.api("STREAM.CREATE.s", made("s"))) == (400, 10058)
        assert failed(await puller.api("STREAM.CREATE.t", made("t", "s.a"))) == (400, 10065)
        assert failed(await puller.api("STREAM.UPDATE.t", made("t"))) == (404, 10059)
        assert failed(await puller.api("STREAM.CREATE.t", made("u"))) == (400, 10056)
        assert failed(await puller.api("STREAM.UPDATE.t", {})) == (400, 10056)


# Streams that others made


async def test_a_stream_of_the_configuration_is_shown() -> None:
    declared = {"name": "d", "filters": ["d/#", "e.f/+"], "max_messages_per_topic": 3, "metadata": {"a": "b"}}
    async with jetstream_room(streams=[declared]) as here:
        puller = await here.puller()
        said = await puller.api("STREAM.INFO.d")
        assert said["config"]["subjects"] == ["d", "d.>", "e//f.*"]
        assert said["config"]["max_msgs_per_subject"] == 3
        assert said["config"]["metadata"] == {
            "a": "b",
            "_nats.ver": "2.12.0",
            "_nats.level": "2",
            "_nats.req.level": "0",
        }
        assert (await puller.api("STREAM.NAMES"))["streams"] == ["d", "s"]


async def test_a_stream_that_nats_changes_keeps_what_it_was_declared_with() -> None:
    declared = {"name": "d", "filters": ["d/#", "e.f/+"], "duplicate_window": 0, "max_age": "1h"}
    async with jetstream_room(streams=[declared]) as here:
        puller = await here.puller()
        before = here.streams.info("d").config
        config = (await puller.api("STREAM.INFO.d"))["config"]
        assert "error" not in await puller.api("STREAM.CREATE.d", config)  # it is the same
        said = await puller.api("STREAM.UPDATE.d", config | {"description": "new"})
        assert said["config"]["description"] == "new"
        after = here.streams.info("d").config
        assert after.description == "new"
        assert after.filters == before.filters == ("d/#", "e.f/+")
        assert (after.duplicate_window, after.max_age, after.metadata) == (0, 3600, {})


async def test_what_cannot_change() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        config = (await puller.api("STREAM.INFO.s"))["config"]
        for change in ({"retention": "workqueue"}, {"max_consumers": 5}, {"storage": "memory"}, {"first_seq": 9}):
            assert failed(await puller.api("STREAM.UPDATE.s", config | change)) == (500, 10052), change
        await puller.api("STREAM.UPDATE.s", config | {"deny_delete": True})
        assert failed(await puller.api("STREAM.UPDATE.s", config)) == (500, 10052)


# Lists


async def test_pages_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (requests.NAMES, requests.DESCRIPTIONS) == (1024, 256)
    monkeypatch.setattr(stream_requests, "NAMES", 3)
    monkeypatch.setattr(stream_requests, "DESCRIPTIONS", 2)
    async with jetstream_room() as here:
        for name in ("b", "d", "a", "c"):
            await here.streams.create(StreamConfig(name=name, filters=(f"x/{name}",)))
        puller = await here.puller()
        first, rest = await puller.api("STREAM.NAMES"), await puller.api("STREAM.NAMES", {"offset": 3})
        assert (first["streams"], first["total"], first["offset"], first["limit"]) == (["a", "b", "c"], 5, 0, 3)
        assert (rest["streams"], rest["total"], rest["offset"]) == (["d", "s"], 5, 3)
        listed = await puller.api("STREAM.LIST", {"offset": 4})
        assert ([each["config"]["name"] for each in listed["streams"]], listed["limit"]) == (["s"], 2)
        assert [each["config"]["name"] for each in (await puller.api("STREAM.LIST"))["streams"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("subject", "names"),
    [("", ["s", "t"]), (">", ["s", "t"]), ("s.x", ["s"]), ("t.*.b", ["t"]), ("*.a.b", ["s", "t"]), ("x", [])],
)
async def test_streams_by_subject(subject: str, names: list[str]) -> None:
    async with jetstream_room() as here:
        await here.streams.create(StreamConfig(name="t", filters=("t/a/b", "u")))
        puller = await here.puller()
        said = await puller.api("STREAM.NAMES", {"subject": subject})
        assert (said["streams"] or [], said["total"]) == (names, len(names))
        listed = await puller.api("STREAM.LIST", {"subject": subject})
        assert [each["config"]["name"] for each in listed["streams"]] == names


# What is in a stream


async def test_what_a_stream_has() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        state = (await puller.api("STREAM.INFO.s"))["state"]
        assert (state["messages"], state["bytes"], state["first_seq"], state["last_seq"]) == (0, 0, 0, 0)
        assert "num_subjects" not in state
        assert "num_deleted" not in state
        for topic in ("s/a.b", "s/a b", "s//x", "s/a.b"):
            await here.fill(b"x", topic=topic)
        await puller.api("STREAM.MSG.DELETE.s", {"seq": 2})
        said = await puller.api("STREAM.INFO.s", {"subjects_filter": ">", "deleted_details": True})
        state = said["state"]
        assert (state["messages"], state["first_seq"], state["last_seq"], state["consumer_count"]) == (3, 1, 4, 0)
        assert state["bytes"] == here.streams.info("s").bytes
        assert state["subjects"] == {"s.a//b": 2, "s././x"[:3] + ".x": 1} or state["subjects"] == {
            "s.a//b": 2,
            "s./.x": 1,
        }
        assert (state["num_subjects"], state["num_deleted"], state["deleted"]) == (2, 1, [2])
        assert (said["total"], said["offset"], said["limit"]) == (2, 0, 100_000)
        assert "subjects" not in (await puller.api("STREAM.INFO.s"))["state"]
        assert failed(await puller.api("STREAM.INFO.s", {"subjects_filter": "s.a b"})) == (500, 10052)
        assert (await puller.api("STREAM.INFO.s", {"subjects_filter": "s.no"}))["total"] == 0


async def test_pages_of_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_requests, "_MOST_TOPICS", 2)
    async with jetstream_room() as here:
        for name in "cab":
            await here.fill(b"x", topic=f"s/{name}")
        puller = await here.puller()
        found: dict[str, int] = {}
        for offset, begins, count in ((0, 0, 2), (2, 2, 1), (9, 3, 0), (-5, 0, 2)):
            said = await puller.api("STREAM.INFO.s", {"subjects_filter": ">", "offset": offset})
            assert (said["total"], said["offset"], said["limit"]) == (3, begins, 2)
            subjects = said["state"].get("subjects", {})
            assert len(subjects) == count
            found |= subjects
        assert found == {"s.a": 1, "s.b": 1, "s.c": 1}


# Messages


@pytest.mark.parametrize(
    ("asked", "sequence"),
    [
        ({"seq": 2}, 2),
        ({"last_by_subj": "s.a"}, 3),
        ({"last_by_subj": "s.*"}, 4),
        ({"last_by_subj": ">"}, 4),
        ({"next_by_subj": "s.a"}, 1),
        ({"next_by_subj": "s.a", "seq": 2}, 3),
        ({"next_by_subj": ">", "seq": 4}, 4),
    ],
)
async def test_messages(asked: dict[str, Any], sequence: int) -> None:
    async with jetstream_room() as here:
        for topic in ("s/a", "s/b", "s/a", "s/b"):
            await here.fill(b"x", topic=topic)
        assert (await (await here.puller()).api("STREAM.MSG.GET.s", asked))["message"]["seq"] == sequence


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (b"", (400, 10003)),
        ({}, (400, 10003)),
        ({"seq": 0}, (400, 10003)),
        ({"seq": -1}, (400, 10025)),
        ({"seq": 1, "last_by_subj": "s.a"}, (400, 10003)),
        ({"next_by_subj": "s.a", "last_by_subj": "s.a"}, (400, 10003)),
        ({"seq": 2}, (404, 10037)),
        ({"seq": (1 << 63) - 1}, (404, 10037)),
        ({"last_by_subj": "s.no"}, (404, 10037)),
        ({"last_by_subj": "s..a"}, (404, 10037)),
        ({"last_by_subj": "a b"}, (404, 10037)),
        ({"next_by_subj": "s.a", "seq": 2}, (404, 10037)),
        ({"next_by_subj": ">.a"}, (404, 10037)),
    ],
)
async def test_messages_that_are_not_there(asked: Any, error: tuple[int, int]) -> None:
    async with jetstream_room() as here:
        await here.fill(b"x")
        assert failed(await (await here.puller()).api("STREAM.MSG.GET.s", asked)) == error


async def test_messages_are_deleted() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2")
        puller = await here.puller()
        assert (await puller.api("STREAM.MSG.DELETE.s", {"seq": 1}))["success"] is True
        assert failed(await puller.api("STREAM.MSG.DELETE.s", {"seq": 1})) == (400, 10043)
        assert failed(await puller.api("STREAM.MSG.DELETE.s", {"seq": 3})) == (500, 10057)
        assert failed(await puller.api("STREAM.MSG.DELETE.s", {"seq": 0})) == (400, 10043)
        assert failed(await puller.api("STREAM.MSG.DELETE.s", {"seq": -1})) == (400, 10025)
        assert failed(await puller.api("STREAM.MSG.DELETE.s")) == (400, 10003)
        assert failed(await puller.api("STREAM.MSG.DELETE.no", {"seq": 1})) == (404, 10059)
        assert here.streams.info("s").messages == 1
        await puller.api("STREAM.MSG.DELETE.s", {"seq": 2})
        assert failed(await puller.api("STREAM.MSG.DELETE.s", {"seq": 2})) == (400, 10043)  # it was the last one


@pytest.mark.parametrize(
    ("asked", "purged"),
    [
        ({}, 4),
        ({"filter": ">"}, 4),
        ({"filter": ""}, 4),
        ({"filter": "s.a"}, 2),
        ({"filter": "s.*", "keep": 1}, 3),
        ({"seq": 3}, 2),
        ({"seq": 3, "filter": "s.a"}, 1),
        ({"keep": 3}, 1),
        ({"filter": "s..a"}, 0),
        ({"filter": "s.no"}, 0),
    ],
)
async def test_streams_are_purged(asked: dict[str, Any], purged: int) -> None:
    async with jetstream_room() as here:
        for topic in ("s/a", "s/b", "s/a", "s/b"):
            await here.fill(b"x", topic=topic)
        said = await (await here.puller()).api("STREAM.PURGE.s", asked)
        assert (said["success"], said["purged"]) == (True, purged)
        assert here.streams.info("s").messages == 4 - purged


@pytest.mark.parametrize(
    ("asked", "error"),
    [({"seq": 1, "keep": 1}, 10003), ({"seq": -1}, 10025), ({"keep": -1}, 10025), ({"seq": "1"}, 10025)],
)
async def test_purges_that_cannot_be(asked: dict[str, Any], error: int) -> None:
    async with jetstream_room() as here:
        await here.fill(b"x")
        puller = await here.puller()
        assert failed(await puller.api("STREAM.PURGE.s", asked)) == (400, error)
        assert failed(await puller.api("STREAM.PURGE.no", {"filter": ".."})) == (404, 10059)
        assert here.streams.info("s").messages == 1


async def test_everything_is_also_what_begins_with_a_dollar() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.api("STREAM.CREATE.KV_b", {"name": "KV_b", "subjects": ["$KV.b.>"]})
        await here.fill(b"x", topic="$KV/b/k")
        assert (await puller.api("STREAM.NAMES", {"subject": ">"}))["streams"] == ["KV_b", "s"]
        assert (await puller.api("STREAM.MSG.GET.KV_b", {"last_by_subj": ">"}))["message"]["subject"] == "$KV.b.k"
        following = await puller.api("STREAM.MSG.GET.KV_b", {"next_by_subj": ">"})
        assert following["message"]["seq"] == 1
        assert (await puller.api("STREAM.PURGE.KV_b", {"filter": ">"}))["purged"] == 1
        assert (await puller.api("STREAM.NAMES", {"subject": "no"}))["streams"] is None, "as servers have it"


async def test_streams_are_deleted() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        assert failed(await puller.api("STREAM.DELETE.s", {"a": 1})) == (400, 10038)
        assert (await puller.api("STREAM.DELETE.s", {}))["success"] is True
        assert failed(await puller.api("STREAM.DELETE.s")) == (404, 10059)


async def test_sequences_of_64_bits() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        first = (1 << 62) - 1
        assert "error" not in await puller.api("STREAM.CREATE.t", made("t", first_seq=first))
        for sequence in (first, first + 1):
            assert (await puller.ask("t", b"x")).payload == b'{"stream":"t","seq":%d}' % sequence
        assert (await puller.api("STREAM.INFO.t"))["state"]["last_seq"] == first + 1
        assert (await puller.api("STREAM.MSG.GET.t", {"seq": first + 1}))["message"]["seq"] == first + 1


# Rights


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("STREAM.MSG.GET.closed", {"seq": 1}),
        ("STREAM.MSG.GET.closed", {"last_by_subj": "closed.a"}),
        ("STREAM.MSG.GET.closed", {"next_by_subj": ">"}),
        ("STREAM.INFO.closed", {"subjects_filter": ">"}),
        ("STREAM.INFO.closed", {"subjects_filter": "closed.*"}),
    ],
)
async def test_who_may_not_subscribe_learns_nothing(tmp_path: Path, verb: str, asked: dict[str, Any]) -> None:
    (tmp_path / "rules").write_text(RULES)
    async with jetstream_room(acl={"file": str(tmp_path / "rules")}) as here:
        await here.streams.create(StreamConfig(name="closed", filters=("closed/#",)))
        await here.fill(b"secret", topic="closed/a")
        await here.fill(b"x", topic="s/a")
        puller = await here.puller()
        said = await puller.api(verb, asked)
        assert said["error"]["code"] == 403
        assert "message" not in said
        assert "state" not in said
        assert (await puller.api("STREAM.MSG.GET.s", {"seq": 1}))["message"]["data"] == "eA=="
        assert (await puller.api("STREAM.INFO.s", {"subjects_filter": "s.a"}))["state"]["subjects"] == {"s.a": 1}
        assert "error" not in await puller.api("STREAM.INFO.closed")


async def test_who_may_not_ask_is_not_answered(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["$JS/API/STREAM/CREATE/#"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(acl={"file": str(tmp_path / "rules")}) as here:
        puller = await here.puller()
        await puller.publish("$JS.API.STREAM.CREATE.t", made("t"), "r.1")
        assert (await puller.speaker.said()).startswith(b"-ERR 'Permissions Violation for Publish")
        assert "error" not in await puller.api("STREAM.INFO.s")


async def test_what_cannot_be_stored_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise StoreError("the disk is full")

    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.nothing()
        monkeypatch.setattr(here.jetstream.host, "committed", broken)
        for verb, asked in (("STREAM.CREATE.t", made("t")), ("STREAM.PURGE.s", {}), ("STREAM.DELETE.s", b"")):
            assert failed(await puller.api(verb, asked)) == (503, 10008)


async def test_what_is_nats_alone_comes_back() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        said = await puller.api("STREAM.CREATE.t", made("t", storage="memory", allow_direct=True))
        assert (said["config"]["storage"], said["config"]["allow_direct"]) == ("memory", True)
        assert KEPT not in said["config"]["metadata"]
        assert KEPT in here.streams.info("t").config.metadata
        assert here.streams.info("t").config.retention is Retention.LIMITS
