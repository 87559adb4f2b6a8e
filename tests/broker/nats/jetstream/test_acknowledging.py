"""Acknowledgements: done with, again, later, never, and which message they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from tests.broker.nats.jetstream.pulled import SECOND, Puller, jetstream_room

if TYPE_CHECKING:
    from pathlib import Path


async def pulled(puller: Puller) -> str:
    """The reply subject of the next message."""
    await puller.pull(batch=1)
    return (await puller.got()).reply


async def state(puller: Puller) -> tuple[int, int]:
    info = await puller.api("CONSUMER.INFO.s.c")
    return info["num_ack_pending"], info["ack_floor"]["stream_seq"]


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+TERM", b"+TERM no good"])
async def test_it_is_done_with(payload: bytes) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        reply = await pulled(puller)
        assert await state(puller) == (1, 0)
        assert (await puller.ask(reply, payload)).payload == b""
        assert await state(puller) == (0, 1)
        assert "last_active" in (await puller.api("CONSUMER.INFO.s.c"))["ack_floor"]
        assert (await puller.ask(reply, payload)).payload == b"", "twice is no error"


@pytest.mark.parametrize(
    ("payload", "delay"),
    [
        (b"-NAK", 0),
        (b'-NAK {"delay": 7000000000}', 7),
        (b"-NAK 7s", 7),
        (b"-NAK0m7.5s ", 7.5),
        (b"-NAK  +7000ms", 7),
        (b"-NAK -7s", 0),
        (b"-NAK 7", 0),
        (b"-NAK \xff", 0),
        (b"-NAK {", 0),
        (b'-NAK {"delay": "x"}', 0),
        (b"-NAK [1]", 0),
        (b'-NAK {"delay": -5}', 0),
        (b'-NAK {"delay": ' + b"9" * 400 + b"}", 0),
        (b"+WPI", 35),
        (b"anything else", 30),
    ],
)
async def test_it_comes_again(payload: bytes, delay: float, autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        begun = trio.current_time()
        reply = await pulled(puller)
        if payload == b"+WPI":
            await trio.sleep(5)
        await puller.publish(reply, payload)
        await puller.pull(batch=1)
        again = await puller.got()
        assert again.reply.startswith("$JS.ACK.s.c.2.1.2.")
        assert trio.current_time() - begun == pytest.approx(delay, abs=0.1)


async def test_it_comes_again_at_once_to_one_that_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        begun = trio.current_time()
        await puller.pull(batch=2)
        await puller.publish((await puller.got()).reply, b"-NAK")
        assert (await puller.got()).payload == b"1"
        assert trio.current_time() == begun


async def test_more_time_is_kept_over_a_start(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    settings: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}
    async with jetstream_room(**settings) as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer(ack_wait=30 * SECOND, filter_subject="s.a")
        reply = await pulled(puller)
        await puller.ask("s.b")  # all that has happened is stored
        mock_clock.jump(20)
        await puller.ask(reply, b"+WPI")
    async with jetstream_room(**settings) as here:
        puller = await here.puller()
        mock_clock.jump(15)
        await puller.pull(batch=1, no_wait=True)
        assert (await puller.got()).status == "404 No Messages"
        mock_clock.jump(20)
        await puller.pull(batch=1)
        assert (await puller.got()).reply.startswith("$JS.ACK.s.c.2.1.2.")


async def test_it_asks_for_the_next_one() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2", b"3")
        puller = await here.puller()
        await puller.consumer()
        reply = await pulled(puller)
        await puller.publish(reply, b"+NXT", "r.n")
        second = await puller.got()
        assert (second.payload, await state(puller)) == (b"2", (1, 1))
        await puller.publish(second.reply, b'+NXT {"batch": 1, "no_wait": true}', "r.n")
        assert (await puller.got()).payload == b"3"


async def test_all_before_it() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2", b"3")
        puller = await here.puller()
        await puller.consumer(ack_policy="all")
        replies = [await pulled(puller) for _ in range(3)]
        await puller.ask(replies[1])
        assert await state(puller) == (1, 2)


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.s.no.1.1.1.1.0",
        "$JS.ACK.no.c.1.1.1.1.0",
        "$JS.ACK.s.c.1.1.1.1",
        "$JS.ACK.s.c.x.1.1.1.0",
        "$JS.ACK.s.c." + "9" * 400 + ".1.1.1.0",
        "$JS.ACK.s",
    ],
)
async def test_what_is_no_acknowledgement(subject: str) -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        await pulled(puller)
        got = await puller.ask(subject)
        assert got.status == "503"
        assert (await state(puller))[0] == 1


async def test_a_sequence_that_was_never_delivered() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        for sequence in (1, 99, 10**30):
            assert (await puller.ask(f"$JS.ACK.s.c.1.{sequence}.1.1.0")).payload == b""
        assert await state(puller) == (0, 0)


async def test_others_may_acknowledge_if_the_rules_say_so(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["$JS/ACK/s/c/#"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.fill(b"1", b"2")
        puller = await here.puller()
        await puller.consumer()
        await puller.consumer("d")
        reply = await pulled(puller)
        await puller.publish(reply)
        assert await puller.speaker.said() == f"-ERR 'Permissions Violation for Publish to \"{reply}\"'\r\n".encode()
        assert await state(puller) == (1, 0)
        await puller.pull(consumer="d", batch=1)
        await puller.ask((await puller.got()).reply)
        info: Any = await puller.api("CONSUMER.INFO.s.d")
        assert info["num_ack_pending"] == 0


async def test_acknowledgements_are_no_decisions_to_remember() -> None:
    """Each has a subject of its own, which never comes again."""
    async with jetstream_room() as here:
        await here.fill(*[b"x"] * 100)
        puller = await here.puller()
        await puller.consumer()
        await puller.pull(batch=100)
        for _ in range(100):
            await puller.publish((await puller.got()).reply)
        assert await state(puller) == (0, 100)
        client = here.room.connection.client
        assert client is not None
        assert len(client.standing.channel.may_publish[0]) < 6


async def test_it_answers_when_that_is_stored(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}
    async with jetstream_room(**settings) as here:
        await here.fill(b"1")
        puller = await here.puller()
        await puller.consumer()
        reply = await pulled(puller)
        committer = here.room.node.services.committer
        assert committer is not None
        before = committer.committed
        await puller.ask(reply)
        assert committer.committed > before
    async with jetstream_room(**settings) as here:
        assert await state(await here.puller()) == (0, 1)
