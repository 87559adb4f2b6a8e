"""Batches that are complete: all of their messages, or none. The errors are in `test_against_servers`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.broker.nats.jetstream.pulled import JetStreamRoom, Puller, jetstream_room, settled
from tests.broker.nats.jetstream.test_open_batches import ATOMIC
from trunkline.broker.committer import Committer
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.dialogue import Dialogue
from trunkline.broker.nats.jetstream import batch_publishing
from trunkline.streams import search

if TYPE_CHECKING:
    from pathlib import Path

proceed = Dialogue.proceed
Message = tuple[str, dict[str, str]]


async def publish(puller: Puller, *messages: Message, name: str = "x") -> Any:
    """The answer to the last one; those before have no reply."""
    for sequence, (subject, headers) in enumerate(messages, 1):
        said = {"Nats_Batch_Id": name, "Nats_Batch_Sequence": str(sequence), **headers}
        payload = b"%d" % sequence
        if sequence < len(messages):
            await puller.publish(subject, payload, **said)
        else:
            return json.loads((await puller.ask(subject, payload, **said, Nats_Batch_Commit="1")).payload)
    return None


def code(answer: Any) -> int:
    found: int = answer["error"]["err_code"]
    return found


def stored(here: JetStreamRoom) -> int:
    return here.streams.info("s").messages


@pytest.mark.parametrize("durability", ["memory", "os"])
async def test_subscribers_get_all_of_it_when_it_is_taken(durability: str, tmp_path: Path) -> None:
    store = {} if durability == "memory" else {"store": {"path": str(tmp_path / "store.db"), "durability": durability}}
    async with jetstream_room(stream=ATOMIC, **store) as here:
        wire = await here.room.wire("reader")
        await wire.subscribe(("s/#", 1))
        puller, listener = await here.puller(), await here.puller()
        await listener.say(b"SUB s.> 2")
        await listener.nothing()
        await puller.ask("s.a", b"1", Nats_Batch_Id="x", Nats_Batch_Sequence="1")
        await puller.ask("s.b", b"2", Nats_Batch_Id="x", Nats_Batch_Sequence="2")
        await listener.nothing()
        assert stored(here) == 0
        last = await puller.ask("s.c", b"3", Nats_Batch_Id="x", Nats_Batch_Sequence="3", Nats_Batch_Commit="1")
        assert json.loads(last.payload) == {"stream": "s", "seq": 3, "batch": "x", "count": 3}
        found = [await listener.got() for _ in range(3)]
        assert [(got.subject, got.payload, got.reply) for got in found] == [
            ("s.a", b"1", ""),
            ("s.b", b"2", ""),
            ("s.c", b"3", ""),
        ]
        packets = [await wire.receive() for _ in range(3)]
        assert [(packet.payload, packet.qos) for packet in packets] == [(b"1", 1), (b"2", 1), (b"3", 1)]


async def test_nobody_gets_what_is_not_taken() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller, listener = await here.puller(), await here.puller()
        await listener.say(b"SUB s.> 2")
        await listener.nothing()
        wrong = {"Nats_Expected_Last_Subject_Sequence": "7"}
        assert code(await publish(puller, ("s.a", {}), ("s.b", {}), ("s.c", wrong))) == 10071
        await listener.nothing()
        assert stored(here) == 0
        assert here.room.node.metrics.dropped[DropReason.WRONG_LAST] == 3


async def test_it_is_one_commit_of_the_store(tmp_path: Path) -> None:
    """Whatever the store had to do before: nothing of it is in one that does not have all."""
    async with jetstream_room(stream=ATOMIC, store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        committer = here.room.node.services.committer
        assert committer is not None
        before = committer.committed
        answer = await publish(puller, *[("s.a", {})] * 1000)
        assert (answer["seq"], answer["count"]) == (1000, 1000)
        assert committer.committed == before + 1


def rules_without(topic: str, folder: Path) -> dict[str, str]:
    file = folder / "acl.toml"
    file.write_text(
        f'[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["{topic}"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    return {"file": str(file)}


async def test_a_publisher_waits_once_where_much_waits_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each message: what comes behind it may wait for something else by then."""
    monkeypatch.setattr(Committer, "is_crowded", property(lambda _: True))
    async with jetstream_room(stream=ATOMIC, store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        proceeded: list[Dialogue] = []
        monkeypatch.setattr(Dialogue, "proceed", lambda dialogue: (proceeded.append(dialogue), proceed(dialogue)))
        about = "Nats_Expected_Last_Subject_Sequence"
        headers = {about: "0", f"{about}_Subject": "s.q"}
        for number in range(1, 301):
            commit = {"Nats_Batch_Commit": "1"} if number == 300 else {}
            said = {"Nats_Batch_Id": "x", "Nats_Batch_Sequence": f"{number}", **commit}
            await puller.publish("s.a", b"x" * 1000, f"r.{number}" if commit else "", **said)
        await puller.publish("s.b", b"", "r.b", **headers)
        await puller.publish("s.c", b"", "r.c")
        answers = [await puller.got() for _ in range(3)]
        assert [(got.subject, json.loads(got.payload)["seq"]) for got in answers] == [
            ("r.300", 300),
            ("r.b", 301),
            ("r.c", 302),
        ]
        assert len(proceeded) == 3, "the batch, and two messages"


async def test_a_publisher_needs_the_right_to_each_topic(tmp_path: Path) -> None:
    async with jetstream_room(stream=ATOMIC, acl=rules_without("s/secret", tmp_path)) as here:
        puller = await here.puller()
        await puller.ask("s.a", b"1", Nats_Batch_Id="x", Nats_Batch_Sequence="1")
        await puller.publish("s.secret", b"2", Nats_Batch_Id="x", Nats_Batch_Sequence="2")
        assert b"Permissions Violation" in await puller.speaker.line()
        last = await puller.ask("s.a", b"3", Nats_Batch_Id="x", Nats_Batch_Sequence="3", Nats_Batch_Commit="1")
        assert code(json.loads(last.payload)) == 10176
        assert stored(here) == 0


async def test_a_stream_that_changes_meanwhile() -> None:
    """It is deleted, or takes other topics by now."""
    for change in ("delete", "update"):
        async with jetstream_room(stream=ATOMIC) as here:
            puller = await here.puller()
            await puller.ask("s.a", b"1", Nats_Batch_Id="x", Nats_Batch_Sequence="1")
            await puller.ask("s.b", b"1", Nats_Batch_Id="x", Nats_Batch_Sequence="2")
            if change == "delete":
                await here.streams.delete("s")
                await puller.api("STREAM.CREATE.s", {"name": "s", "subjects": ["s.>"], "allow_atomic": True})
            else:
                await puller.api("STREAM.UPDATE.s", {"name": "s", "subjects": ["s.a", "s.c"], "allow_atomic": True})
            last = await puller.ask("s.c", b"", Nats_Batch_Id="x", Nats_Batch_Sequence="3", Nats_Batch_Commit="1")
            assert code(json.loads(last.payload)) == 10176
            assert stored(here) == 0


async def test_ids_of_its_messages_are_known_behind_it() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        assert (await publish(puller, ("s.a", {"Nats_Msg_Id": "1"}), ("s.a", {"Nats_Msg_Id": "2"})))["seq"] == 2
        again = json.loads((await puller.ask("s.a", b"", Nats_Msg_Id="1")).payload)
        assert again == {"stream": "s", "seq": 1, "duplicate": True}
        assert code(await publish(puller, ("s.a", {}), ("s.a", {"Nats_Msg_Id": "2"}))) == 10201
        assert stored(here) == 2


async def test_what_has_to_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last messages of topics that are not known, and of several topics; and once more, if it is out of date."""
    looked: list[str] = []

    async def filter_last(*args: Any) -> Any:
        found = await search.filter_last(*args)
        looked.append("")
        if len(looked) == 1:
            await here.fill(b"", topic="s/new")
            here.jetstream.registry.get("s").log.remove(found.last)
        return found

    monkeypatch.setattr(batch_publishing, "filter_last", filter_last)
    async with jetstream_room(stream=ATOMIC, store={"path": str(tmp_path / "store.db"), "durability": "os"}) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2", b"3", topic="s/a")
        await here.fill(b"4", b"5", topic="s/q/1")
        await here.streams.delete_message("s", 3)
        about = "Nats_Expected_Last_Subject_Sequence"
        last = {about: "4", f"{about}_Subject": "s.q.*"}
        answer = await publish(puller, ("s.a", {about: "2"}), ("s.b", last))
        assert (answer["seq"], answer["count"], len(looked)) == (8, 2, 2)
        assert code(await publish(puller, ("s.b", {f"{about}_Subject": "s.q.*"}), ("s.b", {}))) == 10193
        assert code(await publish(puller, ("s.b", {about: "0", f"{about}_Subject": "s..q"}), ("s.b", {}))) == 10052


async def test_a_stream_that_changes_too_fast_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused after a while, and does not go on for ever."""

    async def filter_last(*args: Any) -> Any:
        found = await search.filter_last(*args)
        await here.fill(b"", b"", topic="s/new")
        return found

    monkeypatch.setattr(batch_publishing, "filter_last", filter_last)
    monkeypatch.setattr(batch_publishing, "MAX_STEP", 1)
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        about = "Nats_Expected_Last_Subject_Sequence"
        assert code(await publish(puller, ("s.a", {about: "0", f"{about}_Subject": "s.q.*"}), ("s.b", {}))) == 10008
        assert here.streams.info("s").topics == 1


async def test_messages_that_expect_much_are_not_looked_at_again_for_each() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        about = "Nats_Expected_Last_Subject_Sequence"
        last = {about: "0", f"{about}_Subject": "s.q.*"}
        answer = await publish(puller, *[("s.a", last)] * 1000)
        assert answer["count"] == 1000


async def test_what_follows_waits_for_what_is_looked_up() -> None:
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        about = "Nats_Expected_Last_Subject_Sequence"
        headers = {about: "0", f"{about}_Subject": "s.>", "Nats_Batch_Id": "x", "Nats_Batch_Sequence": "1"}
        await puller.publish("s.a", b"", "r.1", Nats_Batch_Commit="1", **headers)
        await puller.publish("s.a", b"", "r.2")
        assert [json.loads((await puller.got()).payload)["seq"] for _ in range(2)] == [1, 2]


async def test_roll_ups_of_several_topics(tmp_path: Path) -> None:
    async with jetstream_room(stream={**ATOMIC, "allow_rollup": True}, acl=rules_without("s/k/2", tmp_path)) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2", topic="s/a")
        await here.fill(b"1", topic="s/k/2")
        sub = {"Nats_Rollup": "sub"}
        assert (await publish(puller, ("s.a", {}), ("s.*", sub), ("s.b", {})))["seq"] == 6
        found = await puller.api("STREAM.INFO.s", {"subjects_filter": ">"})
        assert found["state"]["subjects"] == {"s.*": 1, "s.b": 1, "s.k.2": 1}
        refused = await publish(puller, ("s.a", {}), ("s.k.*", sub))
        assert refused["error"]["code"] == 403, "it may not publish to all of them"
        assert stored(here) == 3


async def test_nothing_goes_in_the_middle_and_limits_hold_behind_it() -> None:
    async with jetstream_room(stream={**ATOMIC, "max_messages": 2}) as here:
        puller = await here.puller()
        assert (await publish(puller, *[("s.a", {})] * 5))["seq"] == 5
        info = here.streams.info("s")
        assert (info.messages, info.first_sequence) == (2, 4)


async def test_without_acknowledgements() -> None:
    async with jetstream_room(stream={**ATOMIC, "no_ack": True}) as here:
        puller = await here.puller()
        for sequence in ("1", "2"):
            commit = {"Nats_Batch_Commit": "1"} if sequence == "2" else {}
            await puller.publish("s.a", b"", "r.1", Nats_Batch_Id="x", Nats_Batch_Sequence=sequence, **commit)
        await puller.nothing()
        assert stored(here) == 2


async def test_a_client_that_leaves_while_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, gone = trio.Event(), trio.Event()

    async def filter_last(*args: Any) -> Any:
        looked.set()
        await gone.wait()
        return await search.filter_last(*args)

    monkeypatch.setattr(batch_publishing, "filter_last", filter_last)
    async with jetstream_room(stream=ATOMIC) as here:
        puller = await here.puller()
        about = "Nats_Expected_Last_Subject_Sequence"
        headers = {about: "0", f"{about}_Subject": "s.>"}
        await puller.publish("s.a", b"", Nats_Batch_Id="x", Nats_Batch_Sequence="1", Nats_Batch_Commit="1", **headers)
        await looked.wait()
        await puller.speaker.leave()
        await settled()
        gone.set()
        await settled()
        assert stored(here) == 0
