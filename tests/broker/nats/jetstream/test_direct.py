"""Direct get: the message itself, with where it is from, and statuses in place of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import OPEN_ALONE, READ_DIRECTLY, Got, Puller, jetstream_room, settled
from tests.conformance import raw
from trunkline.broker.nats.jetstream import direct
from trunkline.broker.nats.jetstream.stream_configs import KEPT
from trunkline.nats.protocol.headers import decode_headers
from trunkline.store import StoreError
from trunkline.streams import StreamConfig

if TYPE_CHECKING:
    from pathlib import Path


def headers(got: Got) -> dict[str, str]:
    _, found = decode_headers(got.block)
    return dict(found.pairs())


async def get(puller: Puller, payload: Any = b"", more: str = "") -> Got:
    return await puller.ask(f"$JS.API.DIRECT.GET.s{more}", payload)


async def test_a_message_comes_as_it_is_and_says_where_it_is_from() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await puller.publish("s.a", b"\x00payload", A="b")
        await puller.publish("s.b", b"")
        got = await get(puller, {"seq": 1})
        assert (got.subject, got.reply, got.payload, got.status) == ("r.x", "", b"\x00payload", "")
        found = headers(got)
        assert found.pop("Nats-Time-Stamp").endswith("Z")
        assert found == {"A": "b", "Nats-Stream": "s", "Nats-Subject": "s.a", "Nats-Sequence": "1"}
        assert headers(await get(puller, {"last_by_subj": "s.*"}))["Nats-Sequence"] == "2"
        assert headers(await get(puller, {"next_by_subj": "s.b"}))["Nats-Sequence"] == "2"
        assert headers(await get(puller, {"next_by_subj": ">", "seq": 2}))["Nats-Sequence"] == "2"
        for nothing in (b"", b"{}", b"null", b'{"seq": 0, "max_bytes": 1}'):
            assert headers(await get(puller, nothing, ".s.a"))["Nats-Sequence"] == "1"


async def test_a_publisher_cannot_say_where_a_message_is_from() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        wire = await here.room.wire("publisher")
        forged = raw.user_property("Nats-Sequence", "77") + raw.user_property("Nats-Stream", "other")
        await wire.publish("s/a", b"x", qos=1, properties=forged)
        await puller.ask("s.b", b"y", Nats_Sequence="78", Nats_Subject="forged", Nats_Time_Stamp="never")
        for sequence, subject in (("1", "s.a"), ("2", "s.b")):
            found = headers(await get(puller, {"seq": int(sequence)}))
            assert (found["Nats-Sequence"], found["Nats-Stream"], found["Nats-Subject"]) == (sequence, "s", subject)
            assert found["Nats-Time-Stamp"] != "never"


@pytest.mark.parametrize(
    ("payload", "more", "status"),
    [
        (b"", "", "408 Empty Request"),
        (b" ", "", "408 Empty Request"),
        (b"{}", "", "408 Empty Request"),
        (b"{", "", "408 Malformed Request"),
        (b'{"seq": "x"}', "", "408 Malformed Request"),
        (b'{"seq": -1}', "", "408 Malformed Request"),
        (b'{"seq": ' + b"9" * 400 + b"}", "", "408 Malformed Request"),
        (b'{"seq": NaN}', "", "408 Malformed Request"),
        (b'{"seq": 0}', "", "408 Empty Request"),
        (b'{"seq": 1, "last_by_subj": "s.a"}', "", "408 Bad Request"),
        (b'{"seq": 9}', "", "404 Message Not Found"),
        (b'{"last_by_subj": "s.no"}', "", "404 Message Not Found"),
        (b'{"last_by_subj": "s..no"}', "", "404 Message Not Found"),
        (b'{"next_by_subj": "s.a", "seq": 2}', "", "404 Message Not Found"),
        (b"", ".s.no", "404 Message Not Found"),
        (b"", ".$JS.API.INFO", "404 Message Not Found"),
        (b"{}", ".s.no", "404 Message Not Found"),
        (b"{", ".s.a", "408 Malformed Request"),
        (b'{"up_to_seq": 5}', ".s.a", "408 Bad Request"),
    ],
)
async def test_statuses(payload: bytes, more: str, status: str) -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        await here.fill(b"x")
        got = await get(await here.puller(), payload, more)
        assert (got.status, got.payload) == (status, b"")


async def test_a_subject_with_quotes_is_a_subject() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        await here.fill(b"x", topic='s/"}')
        assert headers(await get(await here.puller(), b"", '.s."}'))["Nats-Sequence"] == "1"


async def test_a_stream_that_does_not_allow_it_is_read_by_nobody() -> None:
    for metadata in ({}, {KEPT: '{"allow_direct": false}'}, {KEPT: "{"}):
        async with jetstream_room(stream={"metadata": metadata}) as here:
            await here.fill(b"x")
            puller = await here.puller()
            assert (await get(puller, {"seq": 1})).status == "503"
            assert (await get(puller, b"", ".s.a")).status == "503"
            assert (await puller.ask("$JS.API.DIRECT.GET.no", {"seq": 1})).status == "503"


async def test_what_may_not_be_read_is_not_there(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(OPEN_ALONE)
    async with jetstream_room(stream=READ_DIRECTLY, acl={"file": str(rules)}) as here:
        await here.fill(b"yes", topic="s/open/a")
        await here.fill(b"no", topic="s/closed/a")
        puller = await here.puller()
        assert (await get(puller, {"seq": 1})).payload == b"yes"
        for payload, more in (
            ({"seq": 2}, ""),
            ({"last_by_subj": "s.closed.a"}, ""),
            ({"next_by_subj": "s.closed.>"}, ""),
            (b"", ".s.closed.a"),
        ):
            got = await get(puller, payload, more)
            assert (got.status, got.payload) == ("404 Message Not Found", b"")


async def test_a_store_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise StoreError("the disk is gone")

    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        monkeypatch.setattr(direct, "find_message", broken)
        assert (await get(puller, {"seq": 1})).status == "503 Stream Unavailable"


async def test_streams_that_are_read_directly() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.streams.create(StreamConfig(name="t", filters=("t",), **READ_DIRECTLY))  # type: ignore[arg-type]
        found = direct.stream_of(here.jetstream, "t")
        assert found is not None
        assert found.name == "t"
        assert direct.stream_of(here.jetstream, "s") is None
        assert direct.stream_of(here.jetstream, "no") is None
        await puller.nothing()


async def test_a_level_that_is_too_high() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await puller.publish("s.a", b"x")
        for subject in ("$JS.API.DIRECT.GET.s", "$JS.API.DIRECT.GET.s.s.a"):
            got = await puller.ask(subject, {"seq": 1}, Nats_Required_Api_Level="3")
            assert got.status == "412 Required Api Level"
        assert (await puller.ask("$JS.API.DIRECT.GET.s", {"seq": 1}, Nats_Required_Api_Level="2")).payload == b"x"


async def test_a_mirror_answers_for_an_origin_that_is_gone() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.fill(b"1")
        for name, settings in (("other", {}), ("m", {"mirror_direct": True})):
            said = await puller.api(f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": "s"}, **settings})
            assert "error" not in said
        while here.streams.info("m").messages < 1:
            await settled()
        assert (await puller.ask("$JS.API.DIRECT.GET.s", {"seq": 1})).status == "503", "the stream itself does not"
        await here.streams.delete("s")
        got = await puller.ask("$JS.API.DIRECT.GET.s", {"seq": 1})
        assert (got.payload, b"Nats-Stream: m\r\n" in got.block) == (b"1", True)
