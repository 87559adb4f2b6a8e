"""What clients ask of consumers: names, changes, limits, rights, and consumers that others made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.nats.jetstream.pulled import jetstream_room
from trunkline.broker.nats.jetstream import consumer_requests
from trunkline.nats.jetstream.fields import Moment
from trunkline.store import StoreError
from trunkline.streams import ConsumerConfig, StreamConfig

if TYPE_CHECKING:
    from pathlib import Path

    import trio.testing

SECOND = 1_000_000_000


def asked(stream: str = "s", action: str | None = None, **config: Any) -> dict[str, Any]:
    found = {"stream_name": stream, "config": {"ack_policy": "explicit", **config}}
    return found if action is None else found | {"action": action}


def failed(answer: dict[str, Any]) -> tuple[int, int]:
    error = answer["error"]
    return error["code"], error["err_code"]


@pytest.mark.parametrize(
    ("verb", "said", "name", "is_durable"),
    [
        ("CREATE.s", asked(), "", False),
        ("CREATE.s.n", asked(), "n", False),
        ("CREATE.s.n", asked(name="n"), "n", False),
        ("CREATE.s", asked(name="n"), "n", False),
        ("CREATE.s.n", asked(name="m"), "n", False),
        ("CREATE.s.n", asked(name="m", durable_name="n"), "n", True),
        ("DURABLE.CREATE.s.n", asked(name="m", durable_name="n"), "n", True),
        ("CREATE.s.n", asked(name="n", durable_name="n"), "n", True),
        ("CREATE.s.n", asked(durable_name="n"), "n", True),
        ("CREATE.s.n.s.a", asked(name="n", filter_subject="s.a"), "n", False),
        ("DURABLE.CREATE.s.n", asked(durable_name="n"), "n", True),
    ],
)
async def test_consumers_are_made(verb: str, said: dict[str, Any], name: str, is_durable: bool) -> None:
    async with jetstream_room() as here:
        made = await (await here.puller()).api(f"CONSUMER.{verb}", said)
        (info,) = here.streams.consumers("s")
        assert made["name"] == info.name == (name or info.name)
        assert made["stream_name"] == "s"
        assert (info.config.durable, info.config.name) == (is_durable, name)
        assert made["config"].get("durable_name", "") == (name if is_durable else "")


@pytest.mark.parametrize(
    ("verb", "said", "error"),
    [
        ("CREATE.s", asked(durable_name="n"), (400, 10020)),
        ("CREATE.s.n", asked(name="n", durable_name="m"), (400, 10017)),
        ("CREATE.s.n.s.a", asked(name="n", filter_subject="s.b"), (400, 10131)),
        ("CREATE.s.n.s.a", asked(name="n"), (400, 10131)),
        ("DURABLE.CREATE.s.n", asked(), (400, 10018)),
        ("DURABLE.CREATE.s.n", asked(durable_name="m"), (400, 10017)),
        ("CREATE.s", asked("t"), (400, 10056)),
        ("CREATE.s", {"config": {}}, (400, 10056)),
        ("CREATE.s", b"", (400, 10056)),
        ("CREATE.t", asked("t"), (404, 10059)),
        ("CREATE.s.n", asked(action="x"), (400, 10025)),
        ("CREATE.s.n", asked(action="update"), (400, 10149)),
        ("CREATE.s.n", asked(deliver_subject="s.x"), (400, 10081)),
        ("CREATE.s.n", asked(deliver_subject="a/b"), (500, 10012)),
        ("CREATE.s.n", {"stream_name": "s", "config": [1]}, (400, 10025)),
    ],
)
async def test_what_cannot_be_made(verb: str, said: Any, error: tuple[int, int]) -> None:
    async with jetstream_room() as here:
        assert failed(await (await here.puller()).api(f"CONSUMER.{verb}", said)) == error
        assert here.streams.consumers("s") == []


async def test_consumers_that_are_there() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        made = await puller.api("CONSUMER.CREATE.s.n", asked(name="n", durable_name="n", action="create"))
        again = await puller.api("CONSUMER.CREATE.s.n", asked(name="n", durable_name="n", action="create"))
        assert again["created"] == made["created"]
        other = asked(name="n", durable_name="n", max_deliver=7)
        assert failed(await puller.api("CONSUMER.CREATE.s.n", other | {"action": "create"})) == (400, 10148)
        assert here.streams.consumer_info("s", "n").config.max_deliver == 0
        for action in ("update", ""):
            changed = await puller.api("CONSUMER.CREATE.s.n", other | {"action": action})
            assert changed["config"]["max_deliver"] == 7
        fixed = asked(name="n", durable_name="n", deliver_policy="last")
        assert failed(await puller.api("CONSUMER.CREATE.s.n", fixed)) == (500, 10012)
        push = asked(name="n", durable_name="n", deliver_subject="d.s")
        assert failed(await puller.api("CONSUMER.CREATE.s.n", push)) == (500, 10012)


async def test_one_that_is_made_again_as_it_is_pushes_on_undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has asked its client still counts."""
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer(deliver_subject="r.d")
        followed: list[object] = []
        monkeypatch.setattr(here.jetstream, "follow", lambda *asked: followed.append(asked))
        await puller.consumer(deliver_subject="r.d")
        assert not followed
        await puller.consumer(deliver_subject="r.d", description="changed")
        assert len(followed) == 1


async def test_where_a_consumer_pushes_changes_while_nobody_listens() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        assert "push_bound" not in await puller.consumer(deliver_subject="d.a")
        await puller.say(b"SUB d.a 2")
        assert (await puller.api("CONSUMER.INFO.s.c"))["push_bound"] is True
        moved = asked(durable_name="c", deliver_subject="d.b")
        assert failed(await puller.api("CONSUMER.CREATE.s.c", moved)) == (400, 10013)
        assert "error" not in await puller.api(
            "CONSUMER.CREATE.s.c", moved | asked(durable_name="c", deliver_subject="d.a", description="x")
        )
        assert failed(await puller.api("CONSUMER.CREATE.s.c", asked(durable_name="c"))) == (500, 10012)
        await puller.say(b"UNSUB 2")
        assert (await puller.api("CONSUMER.CREATE.s.c", moved))["config"]["deliver_subject"] == "d.b"
        await puller.say(b"SUB d.b 3")
        await here.fill(b"x")
        assert [(await puller.got()).sid] == ["3"]


async def test_a_consumer_that_others_made_is_shown_and_changed() -> None:
    async with jetstream_room() as here:
        await here.streams.create_consumer("s", ConsumerConfig(name="o", durable=True, filters=("s/#",)))
        await here.streams.create_consumer("s", ConsumerConfig(filters=("s/x.y/#",)))
        puller = await here.puller()
        for name, filters in (("o", ("s/#",)), ("ephemeral-1", ("s/x.y/#",))):
            config = (await puller.api(f"CONSUMER.INFO.s.{name}"))["config"]
            changed = await puller.api(f"CONSUMER.CREATE.s.{name}", asked(**config | {"description": "new"}))
            assert "error" not in changed, changed
            found = here.streams.consumer_info("s", name).config
            assert (found.description, found.filters) == ("new", filters)
            paused = await puller.api(f"CONSUMER.PAUSE.s.{name}", {"pause_until": "2130-01-01T00:00:00Z"})
            assert paused["paused"] is True


async def test_other_filters_are_counted_anew() -> None:
    async with jetstream_room() as here:
        for topic in ("s/a", "s/b", "s/b"):
            await here.fill(b"x", topic=topic)
        puller = await here.puller()
        assert (await puller.consumer(filter_subject="s.a"))["num_pending"] == 1
        assert (await puller.consumer(filter_subject="s.b"))["num_pending"] == 2
        assert here.streams.consumer_info("s", "c").config.filters == ("s/b",)


@pytest.mark.parametrize(
    ("most", "stream"),
    [(2, {}), (1, {}), (1000, {"max_consumers": 2}), (0, {"max_consumers": 2}), (1000, {"max_consumers": 1})],
)
async def test_no_more_consumers_than_there_may_be(most: int, stream: dict[str, Any]) -> None:
    async with jetstream_room(stream=stream, nats={"max_consumers": most}) as here:
        puller = await here.puller()
        for name in ("a", "b")[: stream.get("max_consumers", most)]:
            await puller.consumer(name)
        assert failed(await puller.api("CONSUMER.CREATE.s.c", asked())) == (400, 10026)
        await puller.consumer("a")  # it is there
        await puller.consumer("a", description="changed")
        await puller.api("CONSUMER.DELETE.s.a")
        await puller.consumer("c")


@pytest.mark.parametrize("most", [1, 2])
async def test_many_at_once_are_no_more_than_there_may_be(most: int) -> None:
    async with jetstream_room(nats={"max_consumers": most}) as here:
        await here.fill(b"x")
        pullers = [await here.puller() for _ in range(5)]
        wanted = asked(deliver_policy="by_start_time", opt_start_time="2026-01-01T00:00:00Z")
        for number, puller in enumerate(pullers):
            await puller.publish(f"$JS.API.CONSUMER.CREATE.s.c{number}", wanted, "r.1")
        answers = [(await puller.got()).payload for puller in pullers]
        assert sum(b'"error"' not in answer for answer in answers) == len(here.streams.consumers("s")) == most


async def test_a_work_queue() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.api("STREAM.CREATE.w", {"name": "w", "subjects": ["w.*"], "retention": "workqueue"})
        assert failed(await puller.api("CONSUMER.CREATE.w", asked("w", ack_policy="none"))) == (400, 10084)
        assert failed(await puller.api("CONSUMER.CREATE.w", asked("w", deliver_policy="new"))) == (400, 10101)
        assert "error" not in await puller.api("CONSUMER.CREATE.w.a", asked("w", filter_subject="w.a"))
        assert failed(await puller.api("CONSUMER.CREATE.w.b", asked("w", filter_subject="w.a"))) == (400, 10100)
        assert failed(await puller.api("CONSUMER.CREATE.w.b", asked("w", ack_wait=-1, filter_subject="w.b"))) == (
            500,
            10012,
        )
        assert "error" not in await puller.api("CONSUMER.CREATE.w.b", asked("w", filter_subject="w.b"))
        assert failed(await puller.api("CONSUMER.CREATE.w.c", asked("w"))) == (400, 10100)


async def test_a_work_queue_of_topics_that_begin_with_a_dollar() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.api("STREAM.CREATE.w", {"name": "w", "subjects": ["$KV.w.*"], "retention": "workqueue"})
        assert "error" not in await puller.api("CONSUMER.CREATE.w.a", asked("w", filter_subject="$KV.w.a"))
        assert failed(await puller.api("CONSUMER.CREATE.w.b", asked("w"))) == (400, 10100)


async def test_what_is_told_of_a_consumer() -> None:
    async with jetstream_room() as here:
        await here.fill(b"1", b"2", b"3")
        puller = await here.puller()
        made = await puller.consumer()
        assert made["config"]["num_replicas"] == 0
        assert made["delivered"] == made["ack_floor"] == {"consumer_seq": 0, "stream_seq": 0}
        for _ in range(2):
            await puller.pull(batch=1)
        first, _ = await puller.got(), await puller.got()
        await puller.publish(first.reply)
        await puller.pull(reply="r.w", batch=5)
        assert (await puller.got()).payload == b"3"
        said = await puller.api("CONSUMER.INFO.s.c")
        assert (said["stream_name"], said["name"]) == ("s", "c")
        for part, sequence in (("delivered", 3), ("ack_floor", 1)):
            assert (said[part]["consumer_seq"], said[part]["stream_seq"]) == (sequence, sequence)
            assert said[part]["last_active"].endswith("Z")
        assert (said["num_ack_pending"], said["num_redelivered"]) == (2, 0)
        assert (said["num_waiting"], said["num_pending"]) == (1, 0)
        assert said["ts"] >= said["created"]
        assert "push_bound" not in said
        assert "paused" not in said


async def test_times_are_those_of_the_calendar(mock_clock: trio.testing.MockClock) -> None:
    """Which the store's time may be behind."""
    async with jetstream_room() as here:
        puller = await here.puller()
        log, now = here.jetstream.registry.get("s").log, here.jetstream.host.now
        log.behind = 1000.0
        assert Moment().read((await puller.consumer())["ts"]) == pytest.approx(now + 1000, abs=0.001)
        until = {"pause_until": Moment().write(now + 1000 + 3600)}
        left = (await puller.api("CONSUMER.PAUSE.s.c", until))["pause_remaining"]
        assert left == pytest.approx(3600 * SECOND, abs=2000)


async def test_what_has_to_be_read_is_counted_before_the_answer(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {"path": str(tmp_path / "store.db"), "durability": "os"}}
    async with jetstream_room(**settings) as here:
        await here.fill(b"1", b"2")
    async with jetstream_room(**settings) as here:
        since = asked(deliver_policy="by_start_time", opt_start_time="2001-01-01T00:00:00Z")
        made = await (await here.puller()).api("CONSUMER.CREATE.s.c", since)
        assert made["num_pending"] == 2


async def test_pages_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_requests, "NAMES", 3)
    monkeypatch.setattr(consumer_requests, "DESCRIPTIONS", 2)
    async with jetstream_room() as here:
        puller = await here.puller()
        empty = await puller.api("CONSUMER.NAMES.s")
        assert (empty["consumers"], empty["total"]) == ([], 0)
        for name in ("d", "b", "a", "c"):
            await puller.consumer(name)
        first, rest = await puller.api("CONSUMER.NAMES.s"), await puller.api("CONSUMER.NAMES.s", {"offset": 3})
        assert (first["consumers"], first["total"], first["offset"], first["limit"]) == (["a", "b", "c"], 4, 0, 3)
        assert (rest["consumers"], rest["total"], rest["offset"], rest["limit"]) == (["d"], 4, 3, 3)
        listed = await puller.api("CONSUMER.LIST.s", {"offset": 1})
        assert ([each["name"] for each in listed["consumers"]], listed["total"], listed["limit"]) == (["b", "c"], 4, 2)
        for verb in ("NAMES", "LIST"):
            assert failed(await puller.api(f"CONSUMER.{verb}.no")) == (404, 10059)


async def test_consumers_are_deleted() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        for verb in ("INFO", "DELETE"):
            for of in ("s.c", "no.c"):  # as servers do, they look at the payload first
                assert failed(await puller.api(f"CONSUMER.{verb}.{of}", {"a": 1})) == (400, 10038)
            assert failed(await puller.api(f"CONSUMER.{verb}.s.no")) == (404, 10014)
            assert failed(await puller.api(f"CONSUMER.{verb}.no.c")) == (404, 10059)
        assert (await puller.api("CONSUMER.DELETE.s.c", {}))["success"] is True
        assert failed(await puller.api("CONSUMER.INFO.s.c")) == (404, 10014)


async def test_consumers_are_paused() -> None:
    async with jetstream_room() as here:
        await here.fill(b"x")
        puller = await here.puller()
        await puller.consumer()
        said = await puller.api("CONSUMER.PAUSE.s.c", {"pause_until": "2130-01-01T00:00:00Z"})
        assert (said["paused"], said["pause_until"]) == (True, "2130-01-01T00:00:00Z")
        assert 0 < said["pause_remaining"] < 200 * 365 * 86400 * SECOND
        told = await puller.api("CONSUMER.INFO.s.c")
        assert (told["paused"], told["config"]["pause_until"]) == (True, "2130-01-01T00:00:00Z")
        assert 0 < told["pause_remaining"] <= said["pause_remaining"]
        await puller.pull(batch=1)
        await puller.nothing()
        resumed = await puller.api("CONSUMER.PAUSE.s.c", b"")
        assert (resumed["paused"], resumed["pause_until"]) == (False, "0001-01-01T00:00:00Z")
        assert "pause_remaining" not in resumed
        assert (await puller.got()).payload == b"x"
        past = await puller.api("CONSUMER.PAUSE.s.c", {"pause_until": "2001-01-01T00:00:00Z"})
        assert (past["paused"], "pause_remaining" in past) == (False, False)


async def test_one_that_is_paused_stays_so_over_a_start(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    settings: dict[str, Any] = {
        "store": {"path": str(tmp_path / "store.db"), "durability": "os"},
        "nats": {"ping_interval": 86_400},
    }
    async with jetstream_room(**settings) as here:
        await here.fill(b"x")
        puller = await here.puller()
        for name, more in (("c", {}), ("p", {"deliver_subject": "r.d"})):
            await puller.consumer(name, **more)
        stream = here.jetstream.registry.get("s")
        until = Moment().write(here.jetstream.host.now + stream.log.behind + 3600)
        await puller.ask((await puller.got()).reply)  # what is pushed already
        for name in ("c", "p"):
            assert (await puller.api(f"CONSUMER.PAUSE.s.{name}", {"pause_until": until}))["paused"]
        await here.fill(b"y")
    async with jetstream_room(**settings) as here:
        puller = await here.puller()
        for name in ("c", "p"):
            told = await puller.api(f"CONSUMER.INFO.s.{name}")
            assert (told["paused"], told["config"]["pause_until"]) == (True, until)
            assert 3000 * SECOND < told["pause_remaining"] <= 3600 * SECOND, "by the calendar"
        await puller.pull(batch=1, no_wait=True)
        assert (await puller.got()).status == "404 No Messages"
        await puller.pull(batch=1)
        await puller.nothing()
        mock_clock.jump(3601)
        assert {(await puller.got()).payload for _ in range(2)} == {b"x", b"y"}
        assert "paused" not in await puller.api("CONSUMER.INFO.s.c")


@pytest.mark.parametrize(
    ("until", "error"),
    [
        ("x", 10025),
        (5, 10025),
        ("2130-01-01T00:00:00", 10025),
        ("9999-12-31T23:59:59-23:00", 10025),
        ("0001-01-01T00:00:00+10:00", 10025),
    ],
)
async def test_pauses_that_cannot_be(until: Any, error: int) -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        assert failed(await puller.api("CONSUMER.PAUSE.s.c", {"pause_until": until})) == (400, error)
        assert failed(await puller.api("CONSUMER.PAUSE.s.no", {"pause_until": "2130-01-01T00:00:00Z"})) == (404, 10014)
        assert not here.streams.consumer_info("s", "c").paused


async def test_a_pause_without_end_fits_into_what_clients_read() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await here.streams.create_consumer("s", ConsumerConfig(name="c", durable=True, pause_until=1e18))
        said = await puller.api("CONSUMER.INFO.s.c")
        assert said["config"]["pause_until"] == "9999-12-31T23:59:59Z"
        assert said["pause_remaining"] == (1 << 63) - 1
        last = await puller.api("CONSUMER.PAUSE.s.c", {"pause_until": "9999-12-31T23:59:59.999999999Z"})
        assert (last["paused"], last["pause_remaining"]) == (True, (1 << 63) - 1)


async def test_who_may_not_subscribe_gets_no_consumer(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(
        '[[rule]]\npermit = "deny"\naction = "subscribe"\ntopics = ["closed/#"]\n'
        '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["d/closed"]\n'
        '[[rule]]\npermit = "allow"\ntopics = ["#", "$JS/#"]\n'
    )
    async with jetstream_room(acl={"file": str(rules)}) as here:
        await here.streams.create(StreamConfig(name="t", filters=("closed/#", "open")))
        puller = await here.puller()
        for config in ({}, {"filter_subject": "closed.a"}, {"filter_subjects": ["open", "closed.>"]}):
            for verb, more in (("CREATE.t", {}), ("CREATE.t.c", {}), ("DURABLE.CREATE.t.c", {"durable_name": "c"})):
                said = await puller.api(f"CONSUMER.{verb}", asked("t", **config, **more))
                assert said["error"]["code"] == 403, (verb, config)
        assert here.streams.consumers("t") == []
        assert "error" not in await puller.api("CONSUMER.CREATE.t.c", asked("t", filter_subject="open"))
        to = asked("t", filter_subject="open", deliver_subject="d.closed")
        assert failed(await puller.api("CONSUMER.CREATE.t.d", to)) == (403, 0)
        assert [info.name for info in here.streams.consumers("t")] == ["c"]


async def test_what_cannot_be_stored_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise StoreError("the disk is full")

    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        monkeypatch.setattr(here.jetstream.host, "committed", broken)
        for verb, said in (
            ("CONSUMER.CREATE.s.n", asked()),
            ("CONSUMER.PAUSE.s.c", {"pause_until": "2130-01-01T00:00:00Z"}),
            ("CONSUMER.DELETE.s.c", b""),
        ):
            assert failed(await puller.api(verb, said)) == (503, 10008)


async def test_nobody_is_pinned() -> None:
    async with jetstream_room() as here:
        puller = await here.puller()
        await puller.consumer()
        for name, said, error in (
            ("c", {"group": "a"}, (400, 10160)),
            ("c", {}, (400, 10025)),
            ("no", {"group": "a"}, (404, 10014)),
        ):
            assert failed(await puller.api(f"CONSUMER.UNPIN.s.{name}", said)) == error
