"""Several messages with one request. What servers answer is compared by the client's tests of the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio.testing

from tests.broker.nats.jetstream.pulled import OPEN_ALONE, READ_DIRECTLY, Got, Puller, jetstream_room
from trunkline.broker.nats.jetstream import direct_batches
from trunkline.broker.nats.jetstream.asker import Asker
from trunkline.broker.nats.jetstream.messages import wire_size
from trunkline.nats.jetstream.fields import Moment
from trunkline.nats.protocol.headers import decode_headers
from trunkline.streams import StreamConfig, StreamOrigin, TopicChange, search
from trunkline.streams.errors import MessageNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trunkline.streams.log import StreamLog, StreamStore
    from trunkline.streams.search import StreamMessage

PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def said(got: Got) -> tuple[str, dict[str, str]]:
    """The status, and what the headers say of the place in the batch."""
    _, headers = decode_headers(got.block)
    names = ("Nats-Sequence", "Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence")
    return got.status, {name[5:]: headers[name] for name in names if name in headers}


async def begin(puller: Puller, payload: Any) -> None:
    await puller.publish("$JS.API.DIRECT.GET.s", payload, "r.x")


async def batch(puller: Puller, **asked: Any) -> list[tuple[str, dict[str, str]]]:
    """All that is answered, with a status at the end."""
    await begin(puller, asked)
    found: list[tuple[str, dict[str, str]]] = []
    while not found or not found[-1][0]:
        found.append(said(await puller.got()))
    return found


def message(sequence: int, pending: int, last: int) -> tuple[str, dict[str, str]]:
    return "", {"Sequence": str(sequence), "Num-Pending": str(pending), "Last-Sequence": str(last)}


def end(pending: int, last: int, **more: int) -> tuple[str, dict[str, str]]:
    up_to = {"UpTo-Sequence": str(more["up_to"])} if more else {}
    return "204 EOB", {"Num-Pending": str(pending), "Last-Sequence": str(last), **up_to}


async def test_each_message_says_how_many_are_left_and_which_was_before() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2", b"3", b"4")
        await puller.api("STREAM.MSG.DELETE.s", {"seq": 2})
        assert await batch(puller, seq=1, batch=2) == [message(1, 2, 0), message(3, 1, 1), end(1, 3)]
        assert await batch(puller, seq=2, batch=9) == [message(3, 1, 0), message(4, 0, 3), end(0, 4)]
        assert await batch(puller, start_time=PAST, batch=1) == [message(1, 2, 0), end(2, 1)]
        await puller.nothing()


async def test_the_last_of_subjects_say_up_to_where_they_are() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        for topic in ("s/a", "s/b", "s/a", "s/c/d"):
            await here.fill(b"x", topic=topic)
        everything = [message(2, 2, 0), message(3, 1, 2), message(4, 0, 3)]
        assert await batch(puller, multi_last=["s.>"]) == [*everything, end(0, 4, up_to=4)]
        assert await batch(puller, multi_last=[">"], up_to_seq=99) == [*everything, end(0, 4, up_to=99)]
        assert await batch(puller, multi_last=["s.>"], batch=1) == [message(2, 2, 0), end(2, 2, up_to=4)]
        rest = [message(3, 1, 0), message(4, 0, 3)]
        assert await batch(puller, multi_last=["s.>"], seq=3) == [*rest, end(0, 4, up_to=4)]
        assert await batch(puller, multi_last=["s.>"], start_time=FUTURE) == [end(0, 0, up_to=4)]
        former = [message(1, 1, 0), message(2, 0, 1)]
        assert await batch(puller, multi_last=["s.a", "s.b", "s..b"], up_to_seq=2) == [*former, end(0, 2, up_to=2)]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"batch": 2}, "408 Empty Request"),
        ({"batch": 2, "seq": 0}, "408 Empty Request"),
        ({"up_to_seq": 2}, "408 Empty Request"),
        ({"multi_last": []}, "408 Empty Request"),
        ({"seq": 1, "batch": "x"}, "408 Malformed Request"),
        ({"seq": 1, "batch": -1}, "408 Malformed Request"),
        ({"seq": 1, "batch": 1, "max_bytes": -1}, "408 Malformed Request"),
        ({"multi_last": "s.a"}, "408 Malformed Request"),
        ({"multi_last": ["s.a", 5]}, "408 Malformed Request"),
        ({"multi_last": ["s.a"], "up_to_seq": -1}, "408 Malformed Request"),
        ({"multi_last": ["s.a"], "up_to_time": "x"}, "408 Malformed Request"),
        ({"start_time": "x", "batch": 1}, "408 Malformed Request"),
        ({"start_time": 5}, "408 Malformed Request"),
        ({"start_time": PAST, "seq": 1}, "408 Bad Request"),
        ({"start_time": PAST, "seq": 1, "batch": 1}, "408 Bad Request"),
        ({"start_time": PAST, "last_by_subj": "s.a"}, "408 Bad Request"),
        ({"last_by_subj": "s.a", "batch": 1}, "408 Bad Request"),
        ({"multi_last": ["s.a"], "last_by_subj": "s.a"}, "408 Bad Request"),
        ({"multi_last": ["s.a"], "next_by_subj": "s.a"}, "408 Bad Request"),
        ({"multi_last": ["s.a"], "up_to_seq": 1, "up_to_time": FUTURE}, "408 Bad Request"),
        ({"seq": 2, "batch": 1}, "404 Message Not Found"),
        ({"seq": 1, "batch": 1, "next_by_subj": "s.b"}, "404 Message Not Found"),
        ({"seq": 1, "batch": 1, "next_by_subj": "s..b"}, "404 Message Not Found"),
        ({"start_time": FUTURE}, "404 Message Not Found"),
        ({"start_time": FUTURE, "batch": 1}, "404 Message Not Found"),
        ({"multi_last": ["s.b"]}, "404 No Results"),
        ({"multi_last": ["s..b"]}, "404 No Results"),
        ({"multi_last": ["s.a"], "up_to_time": PAST}, "404 No Results"),
    ],
)
async def test_statuses(asked: dict[str, Any], status: str) -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        await here.fill(b"x")
        assert await batch(await here.puller(), **asked) == [(status, {})]


async def test_a_single_message_since_a_moment() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(b"1")
        await here.fill(b"2", topic="s/b")
        for asked, payload in (({}, b"1"), ({"next_by_subj": "s.b"}, b"2"), ({"up_to_seq": 1}, b"1")):
            assert (await puller.ask("$JS.API.DIRECT.GET.s", {"start_time": PAST, **asked})).payload == payload
        assert (await puller.api("STREAM.MSG.GET.s", {"start_time": PAST}))["message"]["seq"] == 1


async def test_too_many_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_batches, "MAX_SUBJECTS", 2)
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        for topic in ("s/a", "s/b", "s/c"):
            await here.fill(b"x", topic=topic)
        assert await batch(puller, multi_last=["s.*"]) == [("413 Too Many Results", {})]
        assert len(await batch(puller, multi_last=["s.*"], up_to_seq=2)) == 3, "the third was not there yet"


async def test_too_many_filters() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(b"x")
        asked = [f"s.{number}" for number in range(direct_batches.MAX_FILTERS - 1)]
        assert await batch(puller, multi_last=[*asked, "s.a"]) == [message(1, 0, 0), end(0, 1, up_to=1)]
        assert await batch(puller, multi_last=[*asked, "s.a", "s.a"]) == [("413 Too Many Subjects", {})]


async def test_bytes_of_a_batch_are_limited() -> None:
    """If the request does not say how, by what may wait for a client."""
    async with jetstream_room(stream=READ_DIRECTLY, nats={"max_pending": "64KiB"}) as here:
        puller = await here.puller()
        await here.fill(*[bytes(20_000)] * 6)
        assert await batch(puller, seq=1, batch=6) == [*[message(n, 6 - n, n - 1) for n in range(1, 5)], end(2, 4)]
        assert await batch(puller, seq=1, batch=6, max_bytes=1) == [message(1, 5, 0), end(5, 1)]
        size = wire_size((await here.streams.get("s", 1)).message, b"")
        for most, last in ((size - 1, 1), (size, 1), (size + 1, 2)):
            assert (await batch(puller, seq=1, batch=6, max_bytes=most))[-1] == end(6 - last, last)


async def test_what_comes_meanwhile_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are as they were at one moment."""
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2")

        async def count_from(*asked: Any) -> int:
            await here.fill(b"3")
            return await search.count_from(*asked)

        monkeypatch.setattr(direct_batches, "count_from", count_from)
        found = await batch(puller, seq=1, batch=9)
        assert [said["Sequence"] for status, said in found if not status] == ["1", "2"]


async def test_many_messages_leave_in_several_turns_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_batches, "AT_ONCE", 3)
    poured: list[int] = []
    steps: list[str] = []
    pour = Asker.pour

    async def count(asker: Asker, reply: bytes, answers: Sequence[tuple[bytes, bytes]]) -> None:
        poured.append(len(answers))
        steps.append("pour")
        await pour(asker, reply, answers)

    monkeypatch.setattr(Asker, "pour", count)
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(*[b"x"] * 8)
        pause = here.jetstream.host.pause

        async def note() -> None:
            steps.append("pause")
            await pause()

        monkeypatch.setattr(here.jetstream.host, "pause", note)
        found = await batch(puller, seq=1, batch=8)
        assert found == [*[message(n, 8 - n, n - 1) for n in range(1, 9)], end(0, 8)]
        assert poured == [3, 3, 2]
        assert steps == ["pause", "pour", "pause", "pour", "pause", "pour"]


async def test_a_message_that_is_removed_meanwhile_is_left_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(log: StreamLog, store: StreamStore, sequence: int) -> StreamMessage:
        if sequence == 2:
            raise MessageNotFound
        return await search.get(log, store, sequence)

    monkeypatch.setattr(direct_batches, "get", get)
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        for topic in ("s/a", "s/b", "s/c"):
            await here.fill(b"x", topic=topic)
        assert await batch(puller, multi_last=[">"]) == [message(1, 2, 0), message(3, 0, 1), end(0, 3, up_to=3)]


async def test_up_to_a_moment(mock_clock: trio.testing.MockClock) -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        times: list[float] = []
        for topic in ("s/a", "s/b", "s/c"):
            await here.fill(b"x", topic=topic)
            times.append((await here.streams.get("s", len(times) + 1)).time)
            mock_clock.jump(10)
        for last in (1, 2, 3):
            up_to = Moment().write(times[last - 1] + 5)
            assert (await batch(puller, multi_last=[">"], up_to_time=up_to))[-1] == end(0, last, up_to=last)


async def test_a_client_that_does_not_read_keeps_nothing_in_memory() -> None:
    """What it has not read waits in the stream."""
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(*[bytes(100_000)] * 100)
        await begin(puller, {"seq": 1, "batch": 100})
        await trio.testing.wait_all_tasks_blocked()
        connection = here.room.connections[0]
        assert connection.client is not None
        most = connection.client.standing.pressure.high_bytes + direct_batches.BYTES_AT_ONCE + 200_000
        assert most < connection._transport.pending + 500_000 < 10_000_000
        assert connection._transport.pending <= most
        found = [said(await puller.got()) for _ in range(101)]
        assert found[-1] == end(0, 100)


async def test_a_subscription_that_ends_before_its_batch() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        puller = await here.puller()
        await here.fill(b"1", b"2", b"3")
        await puller.say(b"SUB q.* 2", b"UNSUB 2 2")
        await puller.publish("$JS.API.DIRECT.GET.s", {"seq": 1, "batch": 3}, "q.x")
        assert [(await puller.got()).payload for _ in range(2)] == [b"1", b"2"]
        await puller.nothing()
        assert (await puller.ask("$JS.API.DIRECT.GET.s", {"seq": 3})).payload == b"3"


async def test_what_may_not_be_read_is_not_there(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(OPEN_ALONE)
    async with jetstream_room(stream=READ_DIRECTLY, acl={"file": str(rules)}) as here:
        await here.fill(b"yes", topic="s/open/a")
        await here.fill(b"no", topic="s/closed/a")
        puller = await here.puller()
        assert await batch(puller, seq=1, batch=5, next_by_subj="s.open.*") == [message(1, 0, 0), end(0, 1)]
        assert await batch(puller, multi_last=["s.open.a"]) == [message(1, 0, 0), end(0, 1, up_to=2)]
        for asked in ({"seq": 1, "batch": 5}, {"multi_last": ["s.open.a", "s.closed.a"]}, {"multi_last": [">"]}):
            assert await batch(puller, **asked) == [("404 Message Not Found", {})]


async def test_a_payload_behind_a_subject_is_too_much() -> None:
    async with jetstream_room(stream=READ_DIRECTLY) as here:
        await here.fill(b"x")
        got = await (await here.puller()).ask("$JS.API.DIRECT.GET.s.s.a", json.dumps({"batch": 2}).encode())
        assert got.status == "408 Bad Request"


async def test_single_topics_that_may_not_be_read_are_left_out(tmp_path: Path) -> None:
    """The filter may be subscribed to, and what rules deny of it does not come, as in a subscription."""
    rules = tmp_path / "rules"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "receive"\ntopics = ["s/secret"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["$JS/API/#", "#"]\n'
    )
    async with jetstream_room(stream=READ_DIRECTLY, acl={"file": str(rules)}) as here:
        for topic in ("s/a", "s/secret", "s/b"):
            await here.fill(b"x", topic=topic)
        puller = await here.puller()
        assert await batch(puller, seq=1, batch=5) == [message(1, 2, 0), message(3, 0, 1), end(0, 3)]
        assert await batch(puller, multi_last=["s.*"]) == [message(1, 2, 0), message(3, 0, 1), end(0, 3, up_to=3)]


@pytest.mark.parametrize("asked", [{"seq": 1, "batch": 5}, {"multi_last": [">"]}])
@pytest.mark.parametrize(
    "shape",
    [
        {"filters": (), "mirror": StreamOrigin("s")},
        {"filters": (), "sources": (StreamOrigin("s"),)},
        {"filters": ("other/#",), "transform": TopicChange("other/+", "s/closed/{{wildcard(1)}}")},
    ],
    ids=["mirror", "source", "transform"],
)
async def test_what_a_stream_has_from_elsewhere_is_no_way_round_the_rules(
    tmp_path: Path, shape: dict[str, Any], asked: dict[str, Any]
) -> None:
    """Its own filters do not say what is in it."""
    rules = tmp_path / "rules"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "subscribe"\ntopics = ["s/#"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["$JS/API/#", "#"]\n'
    )
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.streams.create(StreamConfig(name="copy", **shape, **READ_DIRECTLY))
        await here.fill(b"no", topic="other/a" if shape["filters"] else "s/closed/a")
        await trio.testing.wait_all_tasks_blocked()
        assert here.streams.info("copy").messages == 1
        got = await (await here.puller()).ask("$JS.API.DIRECT.GET.copy", asked)
        assert said(got) == ("404 Message Not Found", {})
