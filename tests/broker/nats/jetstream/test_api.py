"""Requests by their subjects, and that each gets one answer, whatever it says."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.nats.jetstream.pulled import JetStreamRoom, Puller, jetstream_room
from trunkline.broker.nats.jetstream.api import PREFIX, VERBS, Asked, asked_by

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Subjects of each verb, with as many names as it has.
SUBJECTS = {verb: ".".join([verb, "s", "c"][: found.names + 1]) for verb, found in VERBS.items()}
#: What no request says.
PAYLOADS: dict[str, bytes] = {
    "no JSON": b"{",
    "no object": b"[1, 2]",
    "a text": b'"x"',
    "another encoding": b"\xff\xfe\x00{",
    "too deep": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "400 digits": b'{"seq": ' + b"9" * 400 + b', "offset": ' + b"9" * 400 + b"}",
    "65 bits": b'{"seq": 9223372036854775808}',
    "half a character": b'{"name": "\\ud800", "config": {"name": "\\udfff"}}',
    "NaN": b'{"seq": NaN, "keep": -Infinity, "max_age": 1e999}',
}
#: Fields that requests have, and what they cannot be.
FIELDS = (
    "name",
    "subjects",
    "metadata",
    "seq",
    "keep",
    "filter",
    "offset",
    "subject",
    "subjects_filter",
    "deleted_details",
)
FIELDS_TOO = ("last_by_subj", "next_by_subj", "stream_name", "config", "action", "pause_until", "max_age", "retention")
VALUES: list[Any] = [-1, 1.5, True, "x", "", [], [1], {}, {"a": 1}, None, "\0", "a b", "..", "$JS.API.>", ">"]


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No request is an error in the broker."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_verbs_are_asked_with_their_names() -> None:
    for verb, found in VERBS.items():
        asked = asked_by(PREFIX + SUBJECTS[verb])
        assert asked == Asked(found, "s" if found.names else "", "c" if found.names > 1 else "")


def test_a_consumer_may_be_made_without_a_name_or_with_its_subject() -> None:
    create = VERBS["CONSUMER.CREATE"]
    assert asked_by("$JS.API.CONSUMER.CREATE.s") == Asked(create, "s")
    assert asked_by("$JS.API.CONSUMER.CREATE.s.c.a.*.>") == Asked(create, "s", "c", "a.*.>")
    assert asked_by("$JS.API.CONSUMER.DURABLE.CREATE.s") is None


@pytest.mark.parametrize("verb", VERBS)
def test_another_number_of_names_is_no_request(verb: str) -> None:
    names = VERBS[verb].names
    for count in range(5):
        found = asked_by(PREFIX + ".".join([verb, *"abcd"[:count]]))
        fits = count >= 1 if VERBS[verb].has_more else count == names
        assert (found is not None) == fits, count


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ".",
        "X",
        "STREAM",
        "STREAM.",
        "STREAM.CREATE.",
        "STREAM.CREATE..s",
        "STREAM.MSG",
        "STREAM.MSG.GET.",
        "stream.create.s",
        "CONSUMER.CREATE..c",
        "CONSUMER.CREATE.s.",
        "CONSUMER.CREATE.s.c.",
        "CONSUMER.CREATE.s..a",
        "CONSUMER.INFO.s.",
        "CONSUMER.INFO..c",
        "CONSUMER.MSG.NEXT.s.c",
        "DIRECT.GET.s",
        "INFO.",
        "INFO.x",
        "SERVER.REMOVE",
    ],
)
def test_what_is_no_request(rest: str) -> None:
    assert asked_by(PREFIX + rest) is None


@given(st.lists(st.sampled_from(["STREAM", "CONSUMER", "CREATE", "INFO", "MSG", "GET", "DURABLE", "s", "", "*"])))
def test_whatever_is_asked_has_all_its_names_or_is_no_request(tokens: list[str]) -> None:
    asked = asked_by(PREFIX + ".".join(tokens))
    if asked is not None:
        assert "" not in tokens
        assert bool(asked.stream) == (asked.verb.names > 0)
        assert not asked.rest or asked.consumer


async def everything(here: JetStreamRoom) -> Puller:
    """A stream with a message and a consumer, and one who asks."""
    puller = await here.puller()
    if here.streams.list() == []:
        await puller.api("STREAM.CREATE.s", {"name": "s", "subjects": ["s", "s.>"]})
    await here.fill(b"x")
    await puller.consumer()
    return puller


@pytest.mark.parametrize("what", PAYLOADS)
async def test_what_no_request_says_is_answered(what: str) -> None:
    async with jetstream_room() as here:
        puller = await everything(here)
        for verb, subject in SUBJECTS.items():
            got = await puller.ask(PREFIX + subject, PAYLOADS[what])
            said = json.loads(got.payload)
            assert said["type"] == f"io.nats.jetstream.api.v1.{VERBS[verb].kind}_response"
            if verb != "INFO":
                assert said["error"]["code"] == 400, verb
                assert said["error"]["err_code"] in (10025, 10038), verb
                assert len(said["error"]["description"]) < 200
        await puller.nothing()
        assert here.jetstream.errors == len(VERBS) - 1
        assert here.jetstream.requests == len(VERBS) + 1
        assert len(here.streams.list()) == 1
        assert here.streams.info("s").messages == 1


def payloads_of(name: str, value: Any) -> list[dict[str, Any]]:
    return [{name: value}, {"name": "s", "stream_name": "s", "config": {name: value}, name: value}]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("INFO", "STREAM.DELETE", "CONSUMER.DELETE")])
async def test_each_field_may_have_any_value(verb: str) -> None:
    async with jetstream_room() as here:
        puller = await everything(here)
        for name in (*FIELDS, *FIELDS_TOO):
            payloads = [payload for value in VALUES for payload in payloads_of(name, value)]
            for payload in payloads:
                await puller.publish(PREFIX + SUBJECTS[verb], payload, "r.1")
            for payload in payloads:
                said = json.loads((await puller.got()).payload)
                assert said["type"].endswith(f"{VERBS[verb].kind}_response"), payload
                assert said.get("error", {"code": 400})["code"] in (400, 403, 404, 500), payload
        assert (await puller.api("STREAM.INFO.s"))["config"]["name"] == "s"


async def test_requests_and_their_errors_are_counted() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for verb in ("INFO", "STREAM.INFO.no", "STREAM.INFO.s", "STREAM.INFO.s.s"):
            await puller.ask(PREFIX + verb)
        said = await puller.api("INFO")
        assert said["api"] == {"level": 2, "total": 4, "errors": 1}


async def test_what_is_no_request_is_answered_by_nobody() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for subject in ("X", "STREAM.CREATE", "STREAM.CREATE.a.b", "CONSUMER.INFO.s", "CONSUMER.MSG.NEXT.s.no"):
            assert (await puller.ask(PREFIX + subject, b"{}")).status == "503", subject


@pytest.mark.parametrize("name", ["a*", "*", ">", "a>b", "a//b", "a/20b", "x" * 256, "$s", "a\\b"])
async def test_names_that_no_stream_can_have(name: str) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        said = await puller.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["t"]})
        assert said["error"]["err_code"] == 10052
        for verb in ("CONSUMER.CREATE.s", "CONSUMER.DURABLE.CREATE.s"):
            config = {"durable_name": name, "ack_policy": "explicit"}
            said = await puller.api(f"{verb}.{name}", {"stream_name": "s", "config": config})
            assert said["error"]["err_code"] == 10012
        for verb in ("STREAM.INFO.{}", "STREAM.PURGE.{}", "CONSUMER.INFO.s.{}", "CONSUMER.DELETE.s.{}"):
            assert (await puller.api(verb.format(name)))["error"]["code"] == 404


@pytest.mark.parametrize("name", ["a/b", "a+", "#", "a\x01", "", ".", "a..b"])
async def test_subjects_that_have_no_topic(name: str) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.publish(f"$JS.API.STREAM.CREATE.{name}", {"name": name}, "r.1")
        assert await puller.speaker.said() == b"-ERR 'Invalid Publish Subject'\r\n"


async def test_requests_without_a_reply_are_done() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.publish("$JS.API.STREAM.CREATE.t", {"name": "t"})
        await puller.publish("$JS.API.STREAM.CREATE.u", {"name": "u"}, "to.nobody")
        await puller.nothing()
        assert [info.config.name for info in here.streams.list()] == ["s", "t", "u"]


async def test_many_requests_at_once_are_answered_in_order() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        asked = range(2000)
        await puller.say(*[b"PUB $JS.API.STREAM.NAMES r.%d 0\r\n" % number for number in asked])
        assert [(await puller.got()).subject for _ in asked] == [f"r.{number}" for number in asked]
        await puller.nothing()


async def test_two_who_make_and_delete_the_same_in_turn() -> None:
    async with jetstream_room() as here:
        pullers = [await here.puller(), await here.puller()]
        config = {"durable_name": "c", "ack_policy": "explicit", "deliver_subject": "d.s", "deliver_policy": "last"}
        for puller in pullers:
            for number in range(100):
                await puller.publish("$JS.API.STREAM.CREATE.t", {"name": "t", "subjects": ["t"]}, f"r.{number}")
                await puller.publish(
                    "$JS.API.CONSUMER.DURABLE.CREATE.t.c", {"stream_name": "t", "config": config}, "r.c"
                )
                await puller.publish("$JS.API.CONSUMER.DELETE.t.c", b"", "r.e")
                await puller.publish("$JS.API.STREAM.DELETE.t", b"", "r.d")
        seen: set[int] = set()
        for puller in pullers:
            for _ in range(400):
                seen.add(json.loads((await puller.got()).payload).get("error", {}).get("err_code", 0))
            await puller.nothing()
        assert seen <= {0, 10059, 10014}
        assert [info.config.name for info in here.streams.list()] == ["s"]
        assert (await pullers[0].api("INFO"))["consumers"] == 0


async def test_a_level_that_is_too_high() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for verb in ("INFO", "STREAM.INFO.s", "STREAM.INFO.no", "STREAM.CREATE.t"):
            said = json.loads((await puller.ask(PREFIX + verb, b"", Nats_Required_Api_Level="3")).payload)
            assert said["error"] == {
                "code": 412,
                "err_code": 10185,
                "description": "JetStream minimum api level required",
            }
        assert "error" not in json.loads((await puller.ask(PREFIX + "INFO", b"", Nats_Required_Api_Level="2")).payload)
