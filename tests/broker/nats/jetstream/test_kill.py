"""kill -9 right behind answers: what was acknowledged to a publisher is in the stream, and what a consumer was told to
be done with does not come again. A ledger beside the broker says what that is."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from tests.broker.nats.jetstream.pulled import Puller
from tests.broker.nats.speaking import Speaker
from tests.nats.servers import BROKER, NatsServer, running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROUNDS = 2
#: Answers behind which the broker is killed, and messages that are sent in a round.
ANSWERS = 300
MESSAGES = 2000


async def puller(server: NatsServer) -> Puller:
    one = Puller(await Speaker.over(await trio.open_tcp_stream("127.0.0.1", server.port), {}))
    await one.say(b"SUB r.> 1")
    return one


async def answers_until_killed(server: NatsServer, one: Puller, last: int) -> list[tuple[int, dict[str, Any]]]:
    """Kill it behind so many answers to `r.NUMBER`. Returns all that came, with their numbers."""
    found: list[tuple[int, dict[str, Any]]] = []
    try:
        with suppress(trio.BrokenResourceError, AssertionError):  # the connection has ended
            while True:
                got = await one.got()
                found.append((int(got.subject.removeprefix("r.")), json.loads(got.payload)))
                if len(found) == last:
                    await trio.to_thread.run_sync(server.kill)
    finally:
        await one.speaker.leave()
    assert len(found) >= last
    return found


async def publish_until_killed(server: NatsServer, first: int, ledger: set[int]) -> None:
    """Note what is acknowledged; a refusal would fail."""
    one = await puller(server)
    for number in range(first, first + MESSAGES):
        await one.publish("log.a", b"%d" % number, f"r.{number}")
    for number, answer in await answers_until_killed(server, one, random.randrange(1, ANSWERS)):
        assert "error" not in answer
        ledger.add(number)


async def acknowledge_until_killed(server: NatsServer, ledger: set[int], came: list[int]) -> None:
    one = await puller(server)
    before, last = len(ledger), random.randrange(1, ANSWERS)
    try:
        with suppress(trio.BrokenResourceError, AssertionError):
            while True:
                await one.pull(consumer="c", batch=50, expires=1_500_000_000)
                waiting: dict[str, int] = {}
                for _ in range(50):
                    got = await one.got()
                    if got.status:
                        return
                    number = int(got.payload)
                    came.append(number)
                    waiting[f"r.ack.{number}"] = number
                    await one.publish(got.reply, b"+ACK", f"r.ack.{number}")
                while waiting:
                    ledger.add(waiting.pop((await one.got()).subject))
                    if len(ledger) == before + last:
                        await trio.to_thread.run_sync(server.kill)
    finally:
        await one.speaker.leave()


async def test_nothing_that_was_acknowledged_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "os")
    stored: set[int] = set()
    done: set[int] = set()
    with running(BROKER, tmp_path) as server:
        maker = await puller(server)
        assert "error" not in await maker.api("STREAM.CREATE.s", {"name": "s", "subjects": ["log.>"]})
        config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 10**9, "max_ack_pending": 10_000}
        assert "error" not in await maker.api("CONSUMER.DURABLE.CREATE.s.c", {"stream_name": "s", "config": config})
        await maker.speaker.leave()
        for turn in range(ROUNDS):
            await publish_until_killed(server, turn * MESSAGES, stored)
            await trio.to_thread.run_sync(server.start)
        assert stored

        came: list[int] = []
        for _ in range(ROUNDS):
            known = set(done)
            fresh: list[int] = []
            await acknowledge_until_killed(server, done, fresh)
            assert not known & set(fresh), "what is done with does not come again"
            came += fresh
            await trio.to_thread.run_sync(server.kill)
            await trio.to_thread.run_sync(server.start)
        while not stored <= set(came):
            before = len(came)
            await take_all(server, came)
            assert len(came) > before, f"{len(stored - set(came))} are lost"


async def test_what_has_ended_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second message lives for a second: the others are there, and it is not, whenever the broker is killed."""
    monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "os")
    lasting: dict[int, int] = {}
    ending: set[int] = set()
    with running(BROKER, tmp_path) as server:
        maker = await puller(server)
        config = {"name": "s", "subjects": ["log.>"], "allow_msg_ttl": True}
        assert "error" not in await maker.api("STREAM.CREATE.s", config)
        await maker.speaker.leave()
        for turn in range(2 * ROUNDS):
            await publish_lives_until_killed(server, turn * MESSAGES, lasting, ending)
            await trio.to_thread.run_sync(server.start)
        one = await puller(server)
        with trio.fail_after(60):
            for sequence in ending:
                while "error" not in await one.api("STREAM.MSG.GET.s", {"seq": sequence}):
                    await trio.lowlevel.checkpoint()
        for sequence, number in lasting.items():
            found = await one.api("STREAM.MSG.GET.s", {"seq": sequence})
            assert b64decode(found["message"]["data"]) == b"%d" % number
        await one.speaker.leave()
    assert lasting
    assert ending


async def publish_lives_until_killed(server: NatsServer, first: int, lasting: dict[int, int], ending: set[int]) -> None:
    one = await puller(server)
    for number in range(first, first + MESSAGES // 2):
        await one.publish("log.a", b"%d" % number, f"r.{number}", Nats_TTL="1s" if number % 2 else "never")
    for number, answer in await answers_until_killed(server, one, random.randrange(1, ANSWERS)):
        if number % 2:
            ending.add(answer["seq"])
        else:
            lasting[answer["seq"]] = number


async def test_batches_are_there_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has as many messages as its number says, and is killed while others come."""
    monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "os")
    acknowledged: dict[int, int] = {}
    with running(BROKER, tmp_path) as server:
        maker = await puller(server)
        config = {"name": "s", "subjects": ["log.>"], "allow_atomic": True}
        assert "error" not in await maker.api("STREAM.CREATE.s", config)
        await maker.speaker.leave()
        for turn in range(ROUNDS):
            await publish_batches_until_killed(server, turn * BATCHES, acknowledged)
            await trio.to_thread.run_sync(server.start)
        one = await puller(server)
        found: list[tuple[int, int]] = []
        for sequence in range(1, (await one.api("STREAM.INFO.s"))["state"]["last_seq"] + 1):
            message = (await one.api("STREAM.MSG.GET.s", {"seq": sequence}))["message"]
            number, place = map(int, b64decode(message["data"]).split())
            found.append((number, place))
        await one.speaker.leave()
    assert acknowledged
    whole = [(number, place) for number in dict(found) for place in range(1, size_of(number) + 1)]
    assert found == whole, "one behind the other, each with all of its messages"
    last = {number: sequence for sequence, (number, _) in enumerate(found, 1)}
    assert acknowledged.items() <= last.items()


#: Of a round.
BATCHES = 60


def size_of(batch: int) -> int:
    return 1 + batch * 37 % 100


async def publish_batches_until_killed(server: NatsServer, first: int, acknowledged: dict[int, int]) -> None:
    """Batches one behind the other, without waiting for answers."""
    one = await puller(server)
    for number in range(first, first + BATCHES):
        size = size_of(number)
        for place in range(1, size + 1):
            said = {"Nats_Batch_Id": f"{number}", "Nats_Batch_Sequence": f"{place}"}
            if place == size:
                said["Nats_Batch_Commit"] = "1"
            reply = f"r.{number}" if place == size else ""
            await one.publish("log.a", b"%d %d" % (number, place), reply, **said)
    for number, answer in await answers_until_killed(server, one, random.randrange(1, BATCHES // 2)):
        assert answer["count"] == size_of(number)
        acknowledged[number] = answer["seq"]


async def test_what_follows_a_stream_has_each_message_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any moment of following, and found as if it had not been."""
    monkeypatch.setenv("TRUNKLINE_STORE__PATH", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRUNKLINE_STORE__DURABILITY", "os")
    stored: set[int] = set()
    with running(BROKER, tmp_path) as server:
        maker = await puller(server)
        for config in (
            {"name": "s", "subjects": ["log.>"]},
            {"name": "m", "mirror": {"name": "s"}},
            {"name": "t", "sources": [{"name": "s"}], "max_msgs_per_subject": 1},
        ):
            assert "error" not in await maker.api(f"STREAM.CREATE.{config['name']}", config)
        await maker.speaker.leave()
        for turn in range(ROUNDS):
            await publish_until_killed(server, turn * MESSAGES, stored)
            await trio.to_thread.run_sync(server.start)
        maker = await puller(server)
        origin = (await maker.api("STREAM.INFO.s"))["state"]
        assert origin["messages"] >= len(stored) > 0
        while (mirror := (await maker.api("STREAM.INFO.m"))["state"])["last_seq"] < origin["last_seq"]:
            pass
        assert mirror == origin
        while (await maker.api("STREAM.INFO.t"))["sources"][0]["lag"]:
            pass
        assert (await maker.api("STREAM.INFO.t"))["state"]["last_seq"] == origin["messages"], "each of them once"
        await maker.speaker.leave()


async def take_all(server: NatsServer, came: list[int]) -> None:
    """Take all that there is."""
    one = await puller(server)
    await one.pull(consumer="c", batch=ROUNDS * MESSAGES + 1, expires=1_500_000_000)
    while not (got := await one.got()).status:
        came.append(int(got.payload))
        await one.publish(got.reply)
    await one.speaker.leave()
