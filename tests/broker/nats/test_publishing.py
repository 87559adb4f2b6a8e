"""PUB and HPUB, up to those who get it."""

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.nats.speaking import nats_room
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.publishing import MAX_BLOCK
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.streams import StreamConfig

NOBODY = b"HMSG r.1 1 33 33\r\nNATS/1.0 503\r\nNats-Subject: a\r\n\r\n\r\n"


async def test_nobody_answers() -> None:
    async with nats_room() as here:
        for options, answer in (
            ({}, NOBODY),
            ({"echo": False}, NOBODY),
            ({"no_responders": False}, b""),
            ({"headers": False, "no_responders": False}, b""),
        ):
            speaker = await here.speaker(**options)
            await speaker.say(b"SUB r.* 1")
            await speaker.publish(b"a", b"x", b"r.1")
            assert await speaker.said() == answer
        assert here.node.metrics.dropped[DropReason.NO_SUBSCRIBERS] == 4


async def test_who_does_not_hear_itself_is_nobody() -> None:
    async with nats_room() as here:
        speaker = await here.speaker(echo=False)
        await speaker.say(b"SUB r.* 1", b"SUB a 2")
        await speaker.publish(b"a", b"x", b"r.1")
        assert await speaker.said() == NOBODY


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a/b", b"a+", b"\xff"])
async def test_what_is_no_subject(subject: bytes) -> None:
    async with nats_room() as here:
        for pedantic in (False, True):
            speaker = await here.speaker(pedantic=pedantic)
            await speaker.say(b"SUB > 1")
            await speaker.publish(subject)
            assert await speaker.said() == b"-ERR 'Invalid Publish Subject'\r\n"
        assert here.node.metrics.messages_in[0] == 0


async def test_wildcards_are_letters() -> None:
    async with nats_room() as here:
        speaker, quiet = await here.speaker(pedantic=True), await here.speaker()
        for each in (speaker, quiet):
            await each.say(b"SUB a.* 1", b"SUB a.b 2")
            await each.said()
        await speaker.publish(b"a.*", b"x")
        assert await speaker.said() == b"-ERR 'Invalid Publish Subject'\r\nMSG a.* 1 1\r\nx\r\n"
        assert await quiet.said() == b"MSG a.* 1 1\r\nx\r\n"


async def test_headers_that_connect_does_not_offer_end_it() -> None:
    async with nats_room() as here:
        speaker = await here.speaker(headers=False, no_responders=False)
        await speaker.say(b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx")
        assert await speaker.rest() == b""


async def test_access_rules_are_about_topics() -> None:
    asked: list[tuple[str, str]] = []

    def check(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        asked.append((action, topic))
        return Deny(Reason.NOT_AUTHORIZED) if topic.startswith("secret/") else None

    async with nats_room() as here:
        here.node.hooks.add("client.check_acl", check)  # type: ignore[arg-type]
        speaker, wire = await here.speaker(), await here.wire("watcher")
        await wire.subscribe(("#", 0))
        await speaker.publish(b"secret.x", b"no")
        await speaker.publish(b"open.x", b"yes")
        await speaker.say(b"SUB secret.> 1")
        assert await speaker.said() == (
            b"-ERR 'Permissions Violation for Publish to \"secret.x\"'\r\n"
            b"-ERR 'Permissions Violation for Subscription to \"secret.>\"'\r\n"
        )
        await wire.expect_publish("open/x", b"yes")
        assert ("publish", "secret/x") in asked
        assert ("subscribe", "secret/+/#") in asked
        assert here.node.metrics.dropped[DropReason.NOT_AUTHORIZED] == 1


async def test_what_belongs_to_the_broker_is_its_own() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.publish(b"$SYS.broker.x")
        assert b"Permissions Violation for Publish" in await speaker.said()


async def test_hooks_see_and_change_what_is_published() -> None:
    async def run(result: object, *expected: bytes) -> None:
        async with nats_room() as here:
            here.node.hooks.add("message.publish", lambda *_: result)  # type: ignore[arg-type]
            speaker = await here.speaker()
            await speaker.say(b"SUB > 1", b"HPUB a 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx")
            assert await speaker.said() == b"".join(expected)

    await run(None, b"HMSG a 1 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n")
    await run(Message("b/c", b"y"), b"MSG b.c 1 1\r\ny\r\n")
    await run(Withhold(Reason.SUCCESS))
    await run(Deny(Reason.NOT_AUTHORIZED))


async def test_a_hook_may_end_the_connection() -> None:
    async with nats_room() as here:
        here.node.hooks.add("message.publish", lambda *_: Deny(Reason.BANNED, "gone", disconnect=True))
        speaker = await here.speaker()
        await speaker.publish(b"a")
        assert await speaker.rest() == b""
        assert here.node.metrics.dropped[DropReason.HOOK] == 1


@pytest.mark.parametrize("over", ["pause", "refuse"])
async def test_rates(over: str, autojump_clock: object) -> None:
    rate: Any = {"connection_messages": "10/s", "over": over}
    async with nats_room(listener={"rate": rate}) as here:
        speaker, watcher = await here.speaker(), await here.wire("w")
        await watcher.subscribe(("a", 0))
        began = trio.current_time()
        await speaker.say(*[b"PUB a 1", b"x"] * 40)
        assert await speaker.said() == b""
        took = trio.current_time() - began
        dropped = here.node.metrics.dropped[DropReason.RATE_EXCEEDED]
        assert (took > 2, dropped > 20) == ((True, False) if over == "pause" else (False, True))


async def test_it_goes_to_streams_and_to_sessions_that_are_stored() -> None:
    async with nats_room(session={"store_qos0": True}, store={"durability": "memory"}) as here:
        await here.broker.streams.create(StreamConfig(name="log", filters=("log/#",)))
        wire = await here.wire("stays", clean=False, properties=raw.session_expiry(100))
        await wire.subscribe(("log/#", 1))
        await wire.abort()
        speaker = await here.speaker()
        for number in range(3):
            await speaker.publish(b"log.%d" % number, b"x")
        assert await speaker.said() == b""
        assert here.broker.streams.info("log").messages == 3
        back = await here.wire("stays", clean=False, properties=raw.session_expiry(100))
        for number in range(3):
            await back.expect_publish(f"log/{number}", b"x")


async def test_headers_have_a_limit() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        for size, answer in ((MAX_BLOCK, b""), (MAX_BLOCK + 1, b"-ERR 'Maximum Payload Violation'\r\n")):
            block = b"NATS/1.0\r\na: %b\r\n\r\n" % (b"x" * (size - 17))
            await speaker.say(b"HPUB a %d %d" % (len(block), len(block)), block)
            assert await (speaker.rest() if answer else speaker.said()) == answer


async def test_nobody_is_told_at_the_inbox_of_who_hears_everything() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB > 9", b"SUB r.* 1")
        await speaker.publish(b"$JS.API.none", b"", b"r.1")
        assert (await speaker.said()).startswith(b"HMSG r.1 1 ")


async def test_requests_to_the_api_are_seen_by_whom_subscribes_to_them() -> None:
    async with nats_room() as here:
        speaker, device = await here.speaker(), await here.wire("device")
        await device.subscribe(("$JS/API/#", 0))
        await speaker.say(b"SUB $JS.API.STREAM.> 1", b"SUB r.* 2", b"SUB > 3")
        await speaker.publish(b"$JS.API.STREAM.NAMES", b"", b"r.1")
        assert await speaker.line() == b"MSG $JS.API.STREAM.NAMES 1 r.1 0"
        assert await speaker.line() == b""
        assert (await speaker.line()).startswith(b"MSG r.1 2 ")  # its answer comes behind
        seen = await device.receive()
        assert seen.topic == "$JS/API/STREAM/NAMES"
        assert here.node.metrics.dropped[DropReason.NO_SUBSCRIBERS] == 0


async def test_a_request_that_only_a_subscriber_sees_may_be_answered() -> None:
    async with nats_room() as here:
        asker, service = await here.speaker(), await here.speaker()
        await service.say(b"SUB $JS.API.OTHER 1")
        assert await service.said() == b""
        await asker.say(b"SUB r.* 1")
        await asker.publish(b"$JS.API.OTHER", b"", b"r.1")
        assert await service.said() == b"MSG $JS.API.OTHER 1 r.1 0\r\n\r\n"
        assert await asker.said() == b""
        await asker.publish(b"$JS.API.OTHER", b"", b"a/b")  # no topic for an answer: not seen, and nobody answers
        assert await service.said() == b""


async def test_requests_to_the_api_that_no_rule_allows_are_seen_by_nobody(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["$JS/API/#"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with nats_room(acl={"file": str(rules)}) as here:
        speaker = await here.speaker()
        await speaker.say(b"SUB $JS.API.> 1")
        await speaker.publish(b"$JS.API.STREAM.NAMES", b"", b"r.1")
        assert await speaker.said() == b"-ERR 'Permissions Violation for Publish to \"$JS.API.STREAM.NAMES\"'\r\n"
