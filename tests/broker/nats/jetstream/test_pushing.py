"""Push consumers: to whom, how fast, and what they say while there is nothing."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from tests.broker.nats.jetstream.pulled import SECOND, Got, Puller, jetstream_room
from tests.conformance import raw
from trunkline.broker.nats.jetstream.pushing import PUSHED_AT_ONCE, WINDOW
from trunkline.mqtt.message import Message

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.nats.jetstream.pulled import JetStreamRoom

NUMBERS = [b"%d" % number for number in range(5)]


async def payloads(puller: Puller, count: int) -> list[bytes]:
    return [(await puller.got()).payload for _ in range(count)]


async def test_what_is_there_and_what_comes() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2")
        puller = await here.puller()
        await puller.consumer(deliver_subject="r.d")
        await here.fill(b"3")
        first = await puller.got()
        assert (first.subject, first.sid, first.payload) == ("s.a", "1", b"1")
        assert first.reply.startswith("$JS.ACK.s.c.1.1.1.")
        assert await payloads(puller, 2) == [b"2", b"3"]
        assert (await puller.api("CONSUMER.INFO.s.c"))["push_bound"]


async def test_it_waits_for_somebody_to_subscribe() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        maker, reader = await here.puller(), await here.puller()
        await maker.consumer(deliver_subject="d.x")
        await maker.nothing()
        info = await maker.api("CONSUMER.INFO.s.c")
        assert (info["delivered"]["consumer_seq"], "push_bound" in info) == (0, False)
        await reader.say(b"SUB d.* 2")
        assert await payloads(reader, 1) == [b"1"]
        await reader.say(b"UNSUB 2")
        await reader.nothing()
        await here.fill(b"2")
        await maker.nothing()
        await maker.say(b"SUB d.x 3")
        assert await payloads(maker, 1) == [b"2"], "it did not leave the stream for nobody"


async def test_a_group_shares() -> None:
    async with jetstream_room() as here:
        one, two = await here.puller(), await here.puller()
        for each in (one, two):
            await each.say(b"SUB d q 2")
            await each.nothing()
        await one.consumer(deliver_subject="d", deliver_group="q")
        await here.fill(*[b"%d" % number for number in range(20)])
        found: list[list[Got]] = [[], []]
        for each, own in zip((one, two), found, strict=True):
            await each.say(b"PING")
            while (line := await each.speaker.line()) != b"PONG":
                size = int(line.split()[-1])
                own.append(Got(*line.decode().split()[1:3], "", b"", await each.speaker.exactly(size + 2)))
        assert len(found[0]) + len(found[1]) == 20
        assert all(found)


async def test_clients_of_mqtt_get_it_under_the_deliver_topic() -> None:
    async with jetstream_room() as here:
        wire = await here.room.wire("device")
        await wire.subscribe(("alarms/all", 1))
        puller = await here.puller()
        await puller.consumer(deliver_subject="alarms.all", ack_policy="none")
        await here.fill(b"1")
        packet = await wire.receive()
        assert (packet.type, packet.topic, packet.payload) == (raw.PUBLISH, "alarms/all", b"1")


async def test_what_is_pushed_does_not_expire_a_second_time() -> None:
    """How long a message lives in the stream is the stream's."""
    async with jetstream_room() as here:
        device, reader = await here.room.wire("device"), await here.room.wire("reader")
        await device.publish("s/a", b"1", qos=1, properties=raw.message_expiry(60))
        await reader.subscribe(("alarms", 1))
        await (await here.puller()).consumer(deliver_subject="alarms", ack_policy="none")
        packet = await reader.receive()
        assert packet.payload == b"1"
        assert 2 not in dict(packet.properties), "no expiry interval"


async def test_heartbeats_while_there_is_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.say(b"SUB d 2")
        await puller.consumer(deliver_subject="d", idle_heartbeat=5 * SECOND)
        begun = trio.current_time()
        for beat in (5, 10):
            got = await puller.got()
            assert (got.subject, got.sid, got.reply) == ("d", "2", "")
            assert got.block == (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n\r\n")
            assert trio.current_time() - begun == pytest.approx(beat)
        await trio.sleep(4)
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"]
        got = await puller.got()
        assert got.block.endswith(b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n")
        assert trio.current_time() - begun == pytest.approx(19), "a message puts it off"


async def filled(here: JetStreamRoom, count: int, size: int = 10_000) -> None:
    for number in range(count):
        await here.streams.publish("s/a", b"%08d" % number + b"x" * size)


async def questioned(puller: Puller, **config: Any) -> None:
    """It is pushed to, and asked from time to time whether it keeps up."""
    await puller.say(b"SUB d 2")
    settings = {"ack_policy": "none", "flow_control": True, "idle_heartbeat": 30 * SECOND, **config}
    await puller.consumer(deliver_subject="d", **settings)


async def test_flow_control(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 1000, 4000)
        puller = await here.puller()
        await questioned(puller)
        came, question, sent, asked_at = 0, Got("", "", "", b"", b""), 0, 0
        while (got := await puller.got()).status != "100 Idle Heartbeat":
            if got.status:
                assert (got.status, question.status) == ("100 FlowControl Request", "")
                question, asked_at = got, sent
            else:
                came += 1
                sent += len(got.payload)
        assert question.reply.startswith("$JS.FC.s.c.")
        assert 0.9 * WINDOW <= sent <= WINDOW + 70 * 4100
        assert f"Nats-Consumer-Stalled: {question.reply}\r\n".encode() in got.block
        await puller.publish(question.reply)
        sent -= asked_at
        while (got := await puller.got()).status != "100 Idle Heartbeat":
            if got.status:
                question = got
            else:
                came += 1
                sent += len(got.payload)
        assert 0.9 * WINDOW <= sent <= WINDOW + 70 * 4100, (
            "what was sent behind a question is not confirmed by its answer"
        )
        while came < 1000:
            await puller.publish(question.reply)
            while not (got := await puller.got()).status and came < 1000:
                came += 1
                if came == 1000:
                    break
            if got.status == "100 FlowControl Request":
                question = got
        assert came == 1000


async def test_who_confirms_at_once_is_not_stopped_by_large_messages(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await questioned(puller)
        for _ in range(80):
            here.jetstream.publish(Message("s/a", b"x" * 100_000))
        came = 0
        while came < 80:
            got = await puller.got()
            assert got.status != "100 Idle Heartbeat"
            if got.status:
                await puller.publish(got.reply)
            else:
                came += 1


async def test_flow_control_that_begins_later(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 2 * WINDOW // 10_000)
        puller = await here.puller()
        await puller.say(b"SUB d 2")
        config = {"deliver_subject": "d", "ack_policy": "none", "idle_heartbeat": 30 * SECOND}
        await puller.consumer(**config)
        await payloads(puller, 2 * WINDOW // 10_000)
        await puller.consumer(**config, flow_control=True)
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"], "nobody was asked about what came before"


class Steps(trio.abc.Instrument):
    """How often tasks of the broker run that wait for something else than a connection."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("Ref._run_task")


async def test_nothing_runs_while_a_confirmation_is_awaited(mock_clock: trio.testing.MockClock) -> None:
    """Not even where messages are to come again."""
    async with jetstream_room() as here:
        await filled(here, 200)
        puller = await here.puller()
        await questioned(puller, ack_policy="explicit", ack_wait=SECOND)
        while (await puller.got()).status != "100 FlowControl Request":
            pass
        await payloads(puller, 40)
        mock_clock.jump(2)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(50):
            await puller.speaker.say(b"PING")
            while await puller.speaker.line() != b"PONG":
                pass
        trio.lowlevel.remove_instrument(steps)
        assert steps.count < 10


async def test_an_answer_to_another_question_confirms_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 200)
        puller = await here.puller()
        await questioned(puller)
        while (await puller.got()).status != "100 Idle Heartbeat":
            await puller.publish("$JS.FC.s.c.777")
        assert (await puller.ask("$JS.FC.s.no.1")).status == "503"


async def test_the_same_answer_again_confirms_nothing_more(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 300)
        puller = await here.puller()
        await questioned(puller)
        came = {True: 0, False: 0}
        answers: list[str] = []
        while len(answers) < 2:
            got = await puller.got()
            if got.status == "100 FlowControl Request":
                answers.append(got.reply)
                for _ in range(5 if len(answers) == 1 else 0):
                    await puller.publish(got.reply)
            elif not got.status:
                came[len(answers) == 0] += 1
        assert answers[0] != answers[1]
        assert came[False] <= 2 * came[True], "one answer lets as much follow as the first did"
        while (await puller.got()).status != "100 Idle Heartbeat":
            await puller.publish(answers[0])


async def test_who_subscribes_later_is_not_asked_what_others_were(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 300)
        one, two = await here.puller(), await here.puller()
        await questioned(one)
        while (await one.got()).status != "100 Idle Heartbeat":
            pass
        await one.say(b"UNSUB 2")
        await one.nothing()
        await two.say(b"SUB d 2")
        assert not (await two.got()).status, "it does not wait for the answer of one that has gone"


async def test_they_push_one_after_the_other() -> None:
    """However many there are, others get their turn."""
    async with jetstream_room() as here:
        await here.fill(*[b"%d" % number for number in range(2 * PUSHED_AT_ONCE)])
        puller = await here.puller()
        for name in "abcde":
            await puller.consumer(name, deliver_subject="d", ack_policy="none")
        turns: Counter[int] = Counter()
        turn = 0

        def watch(*_: object) -> None:
            turns[turn] += 1

        async with trio.open_nursery() as nursery:

            async def count_turns() -> None:
                nonlocal turn
                while True:
                    await trio.lowlevel.checkpoint()
                    turn += 1

            publish = here.jetstream.publish
            here.jetstream.publish = lambda message: (watch(), publish(message))[1]  # type: ignore[method-assign]
            nursery.start_soon(count_turns)
            await puller.say(b"SUB d 2")
            await payloads(puller, 10 * PUSHED_AT_ONCE)
            nursery.cancel_scope.cancel()
        assert max(turns.values()) <= 2 * PUSHED_AT_ONCE


async def test_a_rate(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await filled(here, 11)
        puller = await here.puller()
        await puller.say(b"SUB d 2")
        await puller.nothing()
        begun = trio.current_time()
        await puller.consumer(deliver_subject="d", ack_policy="none", rate_limit_bps=80_000)
        await payloads(puller, 11)
        assert trio.current_time() - begun == pytest.approx(10, rel=0.02)


async def test_who_does_not_read_is_waited_for() -> None:
    """A consumer without flow control does not push into a connection that takes nothing."""
    async with jetstream_room() as here:
        for _ in range(600):
            await here.streams.publish("s/a", b"x" * 100_000)
        slow, other = await here.puller(), await here.puller()
        await slow.say(b"SUB d 2")
        await slow.nothing()
        await other.consumer(deliver_subject="d", ack_policy="none")
        while not any(each.pending for each in here.room.connections):
            await trio.lowlevel.checkpoint()
        for _ in range(50):
            info = await other.api("CONSUMER.INFO.s.c")
        assert info["num_pending"] > 300
        assert max(each.pending for each in here.room.connections) < 20_000_000
        assert {len(payload) for payload in await payloads(slow, 600)} == {100_000}


async def test_one_that_changes_goes_on_elsewhere() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="d.1")
        await here.fill(b"1")
        await puller.consumer(deliver_subject="r.2")
        assert await payloads(puller, 1) == [b"1"]
        again = {"stream_name": "s", "config": {"durable_name": "c", "deliver_subject": "d.3"}}
        refused = await puller.api("CONSUMER.DURABLE.CREATE.s.c", again)
        assert refused["error"]["err_code"] == 10013, "somebody gets it"


@pytest.mark.parametrize("verb", ["CONSUMER.DELETE.s.c", "STREAM.DELETE.s"])
@pytest.mark.parametrize("is_bound", [False, True])
async def test_one_that_is_deleted_ends(verb: str, is_bound: bool) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="r.d" if is_bound else "d")
        await here.fill(b"1", b"2")
        await payloads(puller, 2 if is_bound else 0)
        assert len(here.jetstream._pushers) == 1
        assert (await puller.api(verb))["success"]
        await trio.testing.wait_all_tasks_blocked()
        assert not here.jetstream._pushers
        assert not here.jetstream._by_topic


async def test_one_that_nobody_reads_is_deleted_in_time(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        made = await puller.api("CONSUMER.CREATE.s", {"stream_name": "s", "config": {"deliver_subject": "d"}})
        assert made["config"]["inactive_threshold"] == 5 * SECOND
        await trio.sleep(4)
        assert len(here.jetstream._pushers) == 1
        await trio.sleep(4)
        assert not here.jetstream._pushers
        bound = await puller.api("CONSUMER.CREATE.s", {"stream_name": "s", "config": {"deliver_subject": "r.d"}})
        await trio.sleep(60)
        assert (await puller.api(f"CONSUMER.INFO.s.{bound['name']}"))["push_bound"]


async def test_a_day_without_anything(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    hour, day = 3600, 86_400
    monkeypatch.setattr("tests.broker.nats.speaking.PATIENCE", inf)
    async with jetstream_room(nats={"ping_interval": 10 * day}) as here:
        puller = await here.puller()
        await puller.say(b"SUB d 2")
        config = {
            "name": "e",
            "deliver_subject": "d",
            "idle_heartbeat": hour * SECOND,
            "inactive_threshold": 2 * hour * SECOND,
        }
        await puller.api("CONSUMER.CREATE.s.e", {"stream_name": "s", "config": config})
        begun = trio.current_time()
        for beat in range(1, 24):
            assert (await puller.got()).status == "100 Idle Heartbeat"
            assert trio.current_time() - begun == pytest.approx(beat * hour, abs=1)
        await here.fill(b"1")
        assert await payloads(puller, 1) == [b"1"]
        assert (await puller.api("CONSUMER.INFO.s.e"))["push_bound"], "somebody has been there all the time"
        await puller.say(b"UNSUB 2")
        await puller.nothing()
        await trio.sleep(1.9 * hour)
        assert "push_bound" not in await puller.api("CONSUMER.INFO.s.e")
        await trio.sleep(0.2 * hour)
        assert (await puller.api("CONSUMER.INFO.s.e"))["error"]["err_code"] == 10014
        assert not here.jetstream._pushers


@pytest.mark.parametrize("subject", ["$JS.x", "$JS.API.STREAM.PURGE.s", "$JS.ACK.s.c.1.1.1.1.1", "$JS.FC.s.c.1"])
async def test_what_is_pushed_is_no_request(subject: str) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        made = await puller.consumer(deliver_subject=subject, ack_policy="none")
        assert made["config"]["deliver_subject"] == subject
        await trio.testing.wait_all_tasks_blocked()
        assert (await puller.api("CONSUMER.INFO.s.c"))["delivered"]["consumer_seq"] == 0
        await puller.say(f"SUB {subject} 2".encode())
        got = await puller.got()
        assert (got.subject, got.sid, got.payload) == ("s.a", "2", b"1")
        await puller.nothing()
        assert here.streams.info("s").messages == 1


async def test_it_pushes_again_after_a_start(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}
    async with jetstream_room(**settings) as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="alarms")
        await here.fill(b"1", b"2")
    async with jetstream_room(**settings) as here:
        wire = await here.room.wire("device")
        await wire.subscribe(("alarms", 0))
        assert (await wire.receive()).payload == b"1", "before any client of NATS has come"


async def test_what_cannot_be_pushed_to(tmp_path: Path) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        for subject, code in (("s.x", 10081), ("a.*", 10079), ("a..b", 10079), ("a/b", 10012), ("$SYS.broker", 0)):
            config = {"stream_name": "s", "config": {"deliver_subject": subject}}
            refused = await puller.api("CONSUMER.CREATE.s", config)
            assert refused["error"]["err_code"] == code, subject


async def test_messages_wake_nobody_whom_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="d")
        await trio.testing.wait_all_tasks_blocked()
        (pusher,) = here.jetstream._pushers.values()
        woken: list[int] = []
        monkeypatch.setattr(pusher, "wake", lambda: woken.append(1))
        for number in range(5):
            await here.fill(b"%d" % number)
        assert not woken
        monkeypatch.undo()
        await puller.say(b"SUB d 2")
        await payloads(puller, 5)
        await trio.testing.wait_all_tasks_blocked()
        assert list(pusher.cursor.watchers) == [pusher.wake], "and those once that somebody reads"


async def test_what_is_pushed_comes_behind_the_answer() -> None:
    """A client may hear the deliver subject already, and know nothing of a consumer before the answer."""
    async with jetstream_room() as here:
        await here.fill(*NUMBERS)
        puller = await here.puller()
        for name in ("a", "b"):
            config = {"durable_name": name, "deliver_subject": f"r.{name}", "ack_policy": "none"}
            said = {"stream_name": "s", "config": config}
            await puller.publish(f"$JS.API.CONSUMER.DURABLE.CREATE.s.{name}", said, "r.x")
            assert (await puller.got()).subject == "r.x"
            assert await payloads(puller, 5) == NUMBERS


async def test_what_is_pushed_elsewhere_comes_behind_the_answer_that_said_so() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="d")
        await here.fill(*NUMBERS)
        config = {"durable_name": "c", "ack_policy": "explicit", "deliver_subject": "r.d"}
        said = {"stream_name": "s", "config": config}
        await puller.publish("$JS.API.CONSUMER.DURABLE.CREATE.s.c", said, "r.x")
        assert (await puller.got()).subject == "r.x"
        assert await payloads(puller, 5) == NUMBERS
