"""Publishing with an acknowledgement: what it says, when it comes, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio.testing

from tests.broker.nats.jetstream.pulled import Puller, jetstream_room
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.dialogue import Dialogue
from trunkline.broker.nats.jetstream import storing
from trunkline.mqtt.reasons import Reason
from trunkline.streams import Discard, StreamConfig
from trunkline.streams.shapes import TopicChange

if TYPE_CHECKING:
    from pathlib import Path


LONG = raw.session_expiry(100)


async def stored(puller: Puller, subject: str, payload: bytes = b"x", **headers: str) -> Any:
    return json.loads((await puller.ask(subject, payload, **headers)).payload)


async def test_each_message_is_acknowledged_with_its_sequence() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for number in (1, 2, 3):
            got = await puller.ask("s.a", b"x")
            assert got.payload == b'{"stream":"s","seq":%d}' % number


async def test_what_no_stream_takes_is_a_request_as_any_other() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        assert (await puller.ask("t.a", b"x")).status == "503"
        await puller.say(b"SUB t.* 2")
        await puller.publish("t.a", b"x", "r.1")
        got = await puller.got()
        assert (got.subject, got.sid, got.reply) == ("t.a", "2", "r.1")
        await puller.nothing()


async def test_others_get_it_as_well_with_a_quality_of_its_own() -> None:
    async with jetstream_room() as here:
        wire = await here.room.wire("reader")
        await wire.subscribe(("s/#", 2))
        puller = await here.puller()
        await puller.publish("s.a", b"without")
        await stored(puller, "s.a", b"with")
        packets = [await wire.receive(), await wire.receive()]
        assert [(packet.payload, packet.qos) for packet in packets] == [(b"without", 0), (b"with", 1)]


async def test_many_at_once_are_acknowledged_in_order(tmp_path: Path) -> None:
    for store in ({}, {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}):
        async with jetstream_room(**store) as here:
            puller = await here.puller()
            for number in range(500):
                await puller.publish("s.a", b"x", f"r.{number}")
            found = [(got.subject, json.loads(got.payload)["seq"]) for got in [await puller.got() for _ in range(500)]]
            assert found == [(f"r.{number}", number + 1) for number in range(500)]


async def test_it_comes_when_the_message_is_stored(tmp_path: Path) -> None:
    """Not before: the store has it, whatever happens then."""
    async with jetstream_room(store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        committer = here.room.node.services.committer
        assert committer is not None
        order: list[str] = []
        told = committer.after_commit

        def after_commit(action: Any) -> None:
            told(lambda: (order.append(f"stored {committer.committed}"), action())[1])

        committer.after_commit = after_commit  # type: ignore[method-assign]
        before = committer.committed
        await stored(puller, "s.a")
        assert order == [f"stored {before + 1}"] * 2, "what holds the message, and the answer"


async def test_a_message_that_is_known() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await stored(puller, "s.a")
        assert await stored(puller, "s.a", Nats_Msg_Id="1") == {"stream": "s", "seq": 2}
        await stored(puller, "s.b")
        assert await stored(puller, "s.a", Nats_Msg_Id="1") == {"stream": "s", "seq": 2, "duplicate": True}
        assert here.streams.info("s").messages == 3


#: What is demanded of a stream with one message of `s.a`, whose id is `1`, and the error.
DEMANDS: list[tuple[dict[str, str], int, str]] = [
    ({"Nats_Expected_Stream": "s"}, 0, ""),
    ({"Nats_Expected_Stream": "t"}, 10060, "expected stream does not match"),
    ({"Nats_Expected_Last_Sequence": "1"}, 0, ""),
    ({"Nats_Expected_Last_Sequence": "0"}, 10071, "wrong last sequence: 1"),
    ({"Nats_Expected_Last_Sequence": "9" * 5000}, 10071, "wrong last sequence: 1"),
    ({"Nats_Expected_Last_Sequence": "\N{SUPERSCRIPT ONE}"}, 10071, "wrong last sequence: 1"),
    ({"Nats_Expected_Last_Sequence": "-1"}, 10071, "wrong last sequence: 1"),
    ({"Nats_Expected_Last_Subject_Sequence": "1"}, 0, ""),
    ({"Nats_Expected_Last_Subject_Sequence": "2"}, 10071, "wrong last sequence: 1"),
    ({"Nats_Expected_Last_Subject_Sequence_Subject": "s.a"}, 10193, "missing sequence for expected"),
    (
        {"Nats_Expected_Last_Subject_Sequence": "0", "Nats_Expected_Last_Subject_Sequence_Subject": "s.b"},
        0,
        "",
    ),
    (
        {"Nats_Expected_Last_Subject_Sequence": "1", "Nats_Expected_Last_Subject_Sequence_Subject": "s.b"},
        10071,
        "wrong last sequence: 0",
    ),
    (
        {"Nats_Expected_Last_Subject_Sequence": "1", "Nats_Expected_Last_Subject_Sequence_Subject": "s..b"},
        10052,
        "",
    ),
    ({"Nats_Expected_Last_Msg_Id": "1"}, 0, ""),
    ({"Nats_Expected_Last_Msg_Id": "2"}, 10070, "wrong last msg ID: 1"),
    ({"Nats_Rollup": "sub"}, 10111, "rollup not permitted"),
    ({"Nats_Batch_Id": "b"}, 10174, "atomic publish is disabled"),
    ({"Nats_Incr": "1"}, 10168, "message counters is disabled"),
    ({"Nats_Schedule": "@at 2030-01-01T00:00:00Z"}, 10188, "message schedules is disabled"),
]


@pytest.mark.parametrize(("headers", "code", "text"), DEMANDS, ids=[f"{each[0]}"[:80] for each in DEMANDS])
async def test_demands(headers: dict[str, str], code: int, text: str) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB s.> 2")
        await puller.publish("s.a", b"x", Nats_Msg_Id="1")
        await puller.got()
        said = await stored(puller, "s.a", b"y", **headers)
        assert said.get("error", {"err_code": 0})["err_code"] == code
        assert said.get("error", {"description": ""})["description"].startswith(text)
        assert (said["stream"], said["seq"]) == ("s", 0 if code else 2)
        assert here.streams.info("s").messages == (1 if code else 2)
        if code:
            if "Nats_Batch_Id" not in headers:  # of a batch that is not taken nobody gets anything
                got = await puller.got()
                assert (got.subject, got.sid, got.reply, got.payload) == ("s.a", "2", "", b"y"), "others get it"
            await puller.nothing()
            reason = DropReason.WRONG_LAST if code in (10060, 10070, 10071) else DropReason.STREAM_FULL
            assert here.room.node.metrics.dropped[reason] == 1


async def test_demands_hold_without_a_reply() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.publish("s.a", b"x", Nats_Expected_Last_Sequence="7")
        await puller.nothing()
        assert here.streams.info("s").messages == 0


async def test_the_last_of_a_topic_that_has_to_be_looked_for() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        await here.fill(b"2", topic="s/b")
        await here.fill(b"3")
        await here.streams.delete_message("s", 3)
        puller = await here.puller()
        said = await stored(puller, "s.a", Nats_Expected_Last_Subject_Sequence="2")
        assert said["error"]["description"] == "wrong last sequence: 1"
        assert (await stored(puller, "s.a", Nats_Expected_Last_Subject_Sequence="1"))["seq"] == 4


async def test_a_stream_that_does_not_acknowledge() -> None:
    async with jetstream_room(stream={"no_ack": True, "max_message_size": 50}) as here:
        puller, other = await here.puller(), await here.puller()
        await other.say(b"SUB s.> 2")
        await other.nothing()
        for payload in (b"x", b"x" * 60):
            await puller.publish("s.a", payload, "r.1")
            await puller.nothing()
            assert here.streams.info("s").messages == 1
            got = await other.got()
            assert (got.reply, got.payload) == ("r.1", payload), "others may answer"


async def test_no_room() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        changed = StreamConfig.from_plain({"name": "s", "filters": ["s/#"], "max_messages": 1, "discard": "new"})
        await here.streams.update(changed)
        puller = await here.puller()
        said = await stored(puller, "s.a")
        assert said["error"] == {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}
        await puller.publish("s.a", b"x")
        await puller.nothing()


async def test_what_a_stream_refuses_is_for_clients_of_either_protocol_a_message_of_quality_0() -> None:
    full = {"max_messages": 1, "discard": Discard.NEW}
    lasting = {"session": {"store_qos0": True}, "store": {"durability": "memory"}}
    async with jetstream_room(stream=full, **lasting) as here:
        await here.fill(b"1")
        reader, away = await here.room.wire("reader"), await here.room.wire("away", clean=False, properties=LONG)
        await reader.subscribe(("s/#", 1))
        await away.subscribe(("s/#", 1))
        await away.abort()
        puller = await here.puller()
        for reply in ("", "r.1"):
            await puller.publish("s.a", b"x", reply)
        assert (await puller.got()).json["error"]["err_code"] == 10077
        back = await here.room.wire("away", clean=False, properties=LONG)
        for wire in (reader, back):
            packets = [await wire.receive(), await wire.receive()]
            assert [(packet.topic, packet.payload, packet.qos) for packet in packets] == [("s/a", b"x", 0)] * 2
        assert here.streams.info("s").messages == 1
        dropped = here.room.node.metrics.dropped
        assert (dropped[DropReason.STREAM_FULL], dropped[DropReason.NO_SUBSCRIBERS]) == (2, 0)


async def test_a_client_of_mqtt_is_told_and_nobody_gets_it() -> None:
    async with jetstream_room(stream={"max_messages": 1, "discard": Discard.NEW}) as here:
        await here.fill(b"1")
        puller, wire = await here.puller(), await here.room.wire("publisher")
        await puller.say(b"SUB s.> 2")
        answer = await wire.publish("s/a", b"x", qos=1)
        assert answer is not None
        assert answer.reason == Reason.QUOTA_EXCEEDED
        await puller.nothing()


async def test_who_publishes_and_does_not_hear_itself() -> None:
    async with jetstream_room(stream={"max_messages": 1, "discard": Discard.NEW}) as here:
        await here.fill(b"1")
        puller = await here.puller(echo=False)
        await puller.say(b"SUB s.> 2")
        await puller.publish("s.a", b"x")
        await puller.nothing()


async def test_the_answer_is_the_publishers_own() -> None:
    """Whoever else subscribes to the reply does not hear it, and a reply to nobody harms nobody."""
    async with jetstream_room() as here:
        puller, other = await here.puller(), await here.puller()
        await puller.say(b"UNSUB 1")
        await puller.publish("s.a", b"x", "r.1")
        await puller.nothing()
        await other.nothing()
        assert here.streams.info("s").messages == 1


async def test_headers_of_the_message_are_in_the_stream() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await stored(puller, "s.a", b"x", Nats_Msg_Id="1", Unit="C")
        kept = await here.streams.get("s", 1)
        assert kept.message.properties["user_property"] == [("Nats-Msg-Id", "1"), ("Unit", "C")]
        wire = await here.room.wire("reader")
        await wire.send(raw.subscribe(1, ("$stream/s/s/#", 0), properties=raw.user_property("from", "earliest")))
        assert (await wire.receive()).type == raw.SUBACK
        packet = await wire.receive()
        assert (packet.topic, packet.payload) == ("s/a", b"x")


async def test_a_stream_that_is_deleted_meanwhile_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room() as here:
        look = storing.filter_last

        async def delete_and_look(*asked: Any) -> Any:
            await here.streams.delete("s")
            return await look(*asked)

        monkeypatch.setattr(storing, "filter_last", delete_and_look)
        puller = await here.puller()
        headers = {
            "Nats_Expected_Last_Subject_Sequence": "0",
            "Nats_Expected_Last_Subject_Sequence_Subject": "s.b",
        }
        assert (await puller.ask("s.a", b"x", **headers)).status == "503"
        await puller.nothing()


async def test_the_last_of_several_subjects_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        await here.fill(b"2", topic="s/b")
        look = storing.filter_last
        looks = 0

        async def look_and_delete(*asked: Any) -> Any:
            nonlocal looks
            found = await look(*asked)
            looks += 1
            if looks == 1:
                await here.streams.delete_message("s", 2)
            return found

        monkeypatch.setattr(storing, "filter_last", look_and_delete)
        headers = {
            "Nats_Expected_Last_Subject_Sequence": "1",
            "Nats_Expected_Last_Subject_Sequence_Subject": "s.*",
        }
        assert (await stored(await here.puller(), "s.a", **headers))["seq"] == 3


async def test_what_one_commit_stores_is_acknowledged_in_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with jetstream_room(store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        turns: list[object] = []
        soon = Dialogue.soon
        monkeypatch.setattr(Dialogue, "soon", lambda *asked: (turns.append(asked), soon(*asked))[1])
        committer = here.room.node.services.committer
        assert committer is not None
        before = committer.committed
        await puller.say(*[b"PUB s.a r.x 0", b""] * 200)
        for _ in range(200):
            await puller.got()
        assert len(turns) <= committer.committed - before


async def test_a_client_that_is_told_why_it_has_to_go_hears_nothing_behind_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with jetstream_room(store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        committer = here.room.node.services.committer
        assert committer is not None
        waiting: list[Any] = []
        monkeypatch.setattr(committer, "after_commit", waiting.append)
        await puller.publish("s.a", b"x", "r.x")
        await puller.nothing()
        sent = here.room.node.metrics.messages_out[0]
        await puller.say(b"what")
        assert (await puller.speaker.line()).startswith(b"-ERR")
        monkeypatch.undo()
        for action in waiting:
            action()
        await trio.testing.wait_all_tasks_blocked()
        assert here.room.node.metrics.messages_out[0] == sent


async def test_headers_stay_where_the_last_of_a_topic_has_to_be_looked_for() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2", b"3")
        await here.streams.delete_message("s", 3)
        puller = await here.puller()
        assert (await stored(puller, "s.a", Nats_Expected_Last_Subject_Sequence="2", Unit="C"))["seq"] == 4
        kept = await here.streams.get("s", 4)
        assert ("Unit", "C") in kept.message.properties["user_property"]
        assert "response_topic" not in kept.message.properties


@pytest.mark.parametrize("headers", [{}, {"Unit": "C"}])
async def test_who_hears_an_acknowledged_message_is_not_asked_for_an_answer(headers: dict[str, str]) -> None:
    async with jetstream_room() as here:
        puller, other = await here.puller(), await here.puller()
        await other.say(b"SUB s.> 2")
        await other.nothing()
        await stored(puller, "s.a", b"x", **headers)
        got = await other.got()
        assert (got.subject, got.reply, got.payload) == ("s.a", "", b"x")
        assert (b"Unit: C" in got.block) == bool(headers)


async def test_lives_where_they_are_allowed_and_where_they_are_not() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        said = await stored(puller, "s.a", Nats_TTL="5s")
        assert said["error"] == {"code": 400, "err_code": 10166, "description": "per-message TTL is disabled"}
        assert (await stored(puller, "s.a", Nats_TTL="x"))["error"]["err_code"] == 10165
        await here.streams.create(StreamConfig(name="t", filters=("t/#",), allow_message_ttl=True))
        assert (await stored(puller, "t.a", Nats_TTL="5s"))["seq"] == 1
        assert (await stored(puller, "t.a", Nats_TTL="0"))["error"]["err_code"] == 10165
        await puller.publish("t.a", b"without a reply", Nats_TTL="0")
        assert (await stored(puller, "t.a", Nats_TTL="never"))["seq"] == 2


async def test_what_is_expected_of_a_topic_that_the_stream_changes() -> None:
    """It is compared with the topic under which the stream keeps the message."""
    async with jetstream_room(stream={"transform": TopicChange("s/+", "t/$1")}) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2", topic="s/a")
        await here.streams.delete_message("s", 2)  # which one is the last has to be looked for
        for expected, answer in (("1", 3), ("1", None), ("3", 4)):
            said = json.loads((await puller.ask("s.a", b"x", Nats_Expected_Last_Subject_Sequence=expected)).payload)
            assert said.get("seq") == answer or (answer is None and said["error"]["err_code"] == 10071)
