"""Streams that take the messages of other streams."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.streams.world import World, burst, done, single, small_sizes
from trunkline.mqtt.message import Message
from trunkline.store import StoreError
from trunkline.streams import following
from trunkline.streams.config import Discard, Retention, StreamConfig
from trunkline.streams.following import SOURCE, Following, OriginPlace
from trunkline.streams.shapes import StreamOrigin, TopicChange

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from trunkline.store import Engine
    from trunkline.streams.stream import Stream


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Few messages need several steps and blocks."""
    monkeypatch.setattr(following, "STEP", 3)
    with small_sizes():
        yield


class Flow:
    """The origin `o` of `o/#`, and streams that follow."""

    def __init__(self, **settings: Any) -> None:
        self.world = World()
        self.world.create("o/#", name="o", **settings)
        self.look()

    def look(self) -> None:
        self.following = Following(self.world.registry)
        for stream in self.world.registry:
            self.following.look(stream)

    def follow(self, *sources: StreamOrigin, name: str = "s", filters: tuple[str, ...] = (), **settings: Any) -> Stream:
        if sources:
            settings["sources"] = sources
        stream = self.world.create(*filters, name=name, **settings)
        self.following.look(stream)
        self.run()
        return stream

    def publish(self, topic: str, *payloads: bytes) -> None:
        self.world.publish(topic, *payloads)
        self.following.note(self.world.registry.get("o"))

    def run(self) -> None:
        for _ in range(1000):
            if not self.following.is_due:
                return
            done(self.following.step(self.world, lambda: self.world.now))
            self.world.settle()
        raise AssertionError("it never rests")

    def place(self, name: str = "s") -> OriginPlace:
        (place,) = self.following.places(self.world.registry.get(name))
        return place

    def kept(self, name: str = "s") -> dict[int, tuple[str, bytes]]:
        log = self.world.registry.get(name).log
        found: dict[int, tuple[str, bytes]] = {}
        sequence = log.first
        while (sequence := log.next_live(sequence)) <= log.last:
            piece = log.find(sequence)
            if piece is None:
                done(log.fetch(self.world, sequence))
                continue
            message = piece.message(sequence)
            if not log.topics.is_rolled_up(message.topic, sequence):
                found[sequence] = message.topic, message.payload
            sequence += 1
        return found


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_what_there_is_and_what_comes() -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(20))
    flow.follow(StreamOrigin("o"))
    flow.publish("o/b", *numbers(5, 20))
    flow.run()
    assert list(flow.kept().values()) == [("o/a", each) for each in numbers(20)] + [
        ("o/b", each) for each in numbers(5, 20)
    ]
    assert flow.place() == OriginPlace(StreamOrigin("o"), 25, 0)


def test_several_sources_and_topics_of_its_own() -> None:
    flow = Flow()
    flow.world.create("p/#", name="p")
    flow.follow(StreamOrigin("o"), StreamOrigin("p"), filters=("s/#",))
    for topic in ("o/1", "p/1", "s/1", "o/2"):
        flow.publish(topic, b"x")
        flow.following.note(flow.world.registry.get("p"))
        flow.run()
    assert [topic for topic, _ in flow.kept().values()] == ["o/1", "p/1", "s/1", "o/2"]


def test_it_says_where_it_is_from() -> None:
    flow = Flow()
    flow.world.take(single("o/a", b"0", "id"))
    flow.world.take(
        Message("o/b", b"1", 1, retain=True, properties={"user_property": [(SOURCE, "other 5")], "content_type": "x"})
    )
    stream = flow.follow(StreamOrigin("o"))
    found = [piece.message(n) for n in (1, 2) if (piece := stream.log.find(n)) is not None]
    assert [each.properties for each in found] == [
        {"user_property": [("Nats-Msg-Id", "id"), (SOURCE, "o 1")]},
        {"user_property": [(SOURCE, "o 2")], "content_type": "x"},
    ]
    assert not any(each.retain for each in found)


def test_ids_say_nothing_between_streams() -> None:
    flow = Flow()
    flow.world.create("p/#", name="p")
    flow.world.take(single("o/a", b"0", "id"))
    flow.world.take(single("p/a", b"1", "id"))
    flow.follow(StreamOrigin("o"), StreamOrigin("p"))
    assert list(flow.kept().values()) == [("o/a", b"0"), ("p/a", b"1")]


def test_only_what_is_wanted() -> None:
    flow = Flow()
    for topic in ("o/a", "o/b", "o/a/x", "o/c"):
        flow.publish(topic, b"1")
    changes = (TopicChange("o/+", "t/{{wildcard(1)}}/x"), TopicChange("o/a/x", ""))
    flow.follow(StreamOrigin("o", filter="o/a/#"), name="chosen")
    flow.follow(StreamOrigin("o", changes=changes), name="changed", transform=TopicChange("t/b/x", "u"))
    assert [topic for topic, _ in flow.kept("chosen").values()] == ["o/a", "o/a/x"]
    assert [topic for topic, _ in flow.kept("changed").values()] == ["t/a/x", "u", "o/a/x", "t/c/x"]
    assert flow.place("chosen").sequence == 4, "what is not wanted is not looked at again"


def test_topics_with_a_dollar_match_no_wildcard() -> None:
    flow = Flow()
    flow.world.create("$KV/#", name="kv")
    flow.world.publish("$KV/a", b"1")
    flow.follow(StreamOrigin("kv", changes=(TopicChange("#", "t/#"),)), name="none")
    flow.follow(StreamOrigin("kv", changes=(TopicChange("$KV/#", "t/#"),)), name="all")
    assert (list(flow.kept("none").values()), list(flow.kept("all").values())) == ([], [("t/a", b"1")])


def test_where_it_begins() -> None:
    flow = Flow()
    for number in range(10):
        flow.world.now = 2000.0 + number
        flow.publish("o/a", b"%d" % number)
    flow.world.commit()
    flow.publish("o/a", b"10", b"11")
    flow.follow(StreamOrigin("o", start_sequence=9), name="sequence")
    flow.follow(StreamOrigin("o", start_time=2007.0), name="time")
    flow.follow(StreamOrigin("o", start_time=2007.0005), name="rounded")
    flow.follow(StreamOrigin("o", start_time=5000.0), name="later")
    assert [payload for _, payload in flow.kept("sequence").values()] == numbers(4, 8)
    assert [payload for _, payload in flow.kept("time").values()] == numbers(5, 7)
    assert flow.kept("rounded") == flow.kept("time"), "rather one too many"
    flow.world.now = 5001.0
    flow.publish("o/a", b"12")
    flow.run()
    assert [payload for _, payload in flow.kept("later").values()] == [b"12"]


def test_a_mirror_has_the_same_sequences_and_times() -> None:
    flow = Flow(first_sequence=100)
    flow.publish("o/a", *numbers(10))
    origin = flow.world.registry.get("o")
    for sequence in (103, 104, 109):
        assert origin.log.remove(sequence)
    flow.world.now = 5000.0
    mirror = flow.follow(mirror=StreamOrigin("o"))
    assert flow.kept() == flow.kept("o")
    assert [mirror.log.first, mirror.log.last, mirror.info.deleted] == [100, 108, 2]
    assert mirror.info.last_time == origin.info.first_time == 1000.0
    flow.publish("o/a", b"10")
    flow.run()
    assert flow.kept()[110] == ("o/a", b"10")
    assert 109 not in flow.kept()
    piece = mirror.log.find(110)
    assert piece is not None
    assert not piece.message(110).properties, "it is the message itself"


def test_what_leaves_the_origin_stays_in_a_mirror() -> None:
    flow = Flow(max_messages=3)
    flow.follow(mirror=StreamOrigin("o"))
    for payload in numbers(10):
        flow.publish("o/a", payload)
        flow.run()
    assert (len(flow.kept("o")), len(flow.kept())) == (3, 10)


def test_a_mirror_becomes_a_stream_of_its_own() -> None:
    flow = Flow()
    flow.publish("o/a", b"1")
    stream = flow.follow(mirror=StreamOrigin("o"))
    flow.world.registry.update(StreamConfig(name="s", filters=("s",)))
    flow.following.look(stream)
    flow.publish("o/a", b"2")
    flow.world.publish("s", b"own")
    flow.run()
    assert list(flow.kept().values()) == [("o/a", b"1"), ("s", b"own")]
    assert flow.following.places(stream) == []


def test_roll_ups_come_along_where_they_are_allowed() -> None:
    flow = Flow(allow_rollup=True)
    flow.follow(StreamOrigin("o"), name="allowed", allow_rollup=True)
    flow.follow(StreamOrigin("o"), name="kept")
    flow.publish("o/a", b"1", b"2")
    flow.run()
    flow.world.take(single("o/a", b"3", rollup="sub"))
    flow.following.note(flow.world.registry.get("o"))
    flow.run()
    assert [payload for _, payload in flow.kept("allowed").values()] == [b"3"]
    assert [payload for _, payload in flow.kept("kept").values()] == [b"1", b"2", b"3"]


def test_what_is_rolled_up_or_expired_is_not_taken() -> None:
    flow = Flow(allow_rollup=True)
    flow.publish("o/a", *numbers(6))
    flow.world.registry.get("o").take(single("o/a", b"all", rollup="sub"), flow.world.now)  # the others are there yet
    flow.world.registry.get("o").take(Message("o/b", b"late", 1, expires_at=flow.world.now), flow.world.now)
    flow.follow(StreamOrigin("o"))
    assert [payload for _, payload in flow.kept().values()] == [b"all"]


def test_a_stream_that_is_full_waits() -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(5))
    stream = flow.follow(StreamOrigin("o"), max_messages=2, discard=Discard.NEW)
    assert (len(flow.kept()), flow.place().lag) == (2, 3)
    assert stream.log.remove(1)
    stream.changed()
    flow.following.note(stream)
    flow.run()
    assert [payload for _, payload in flow.kept().values()] == [b"1", b"2"]


@pytest.mark.parametrize("limit", [{"max_message_size": 20}, {"max_bytes": 20}])
def test_what_never_has_room_is_left_out(limit: dict[str, int]) -> None:
    flow = Flow()
    flow.publish("o/a", b"x" * 100, b"y")
    flow.follow(StreamOrigin("o", changes=(TopicChange("o/a", "a"),)), **({k: v + 20 for k, v in limit.items()}))
    assert list(flow.kept().values()) == [("a", b"y")]


def test_origins_that_cannot_be_followed() -> None:
    flow = Flow(retention=Retention.WORK_QUEUE)
    flow.publish("o/a", b"1")
    flow.follow(StreamOrigin("o"))
    assert not flow.kept()
    assert "limits retention" in flow.place().trouble
    flow.follow(StreamOrigin("none"), name="t")
    assert flow.place("t").is_missing
    flow.following.look(flow.world.create("n/#", name="none"))
    flow.world.publish("n/1", b"1")
    flow.following.note(flow.world.registry.get("none"))
    flow.run()
    assert (len(flow.kept("t")), flow.place("t").is_missing) == (1, False)


def test_an_origin_that_is_made_anew() -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(5))
    flow.follow(StreamOrigin("o"))
    flow.follow(name="m", mirror=StreamOrigin("o"))
    flow.following.look(flow.world.registry.delete("o"))
    flow.run()
    assert flow.place().is_missing
    flow.following.look(flow.world.create("o/#", name="o", first_sequence=10**12))
    flow.publish("o/a", b"new")
    assert flow.place() == OriginPlace(StreamOrigin("o"), 0, 1)
    flow.run()
    assert [payload for _, payload in flow.kept().values()] == [*numbers(5), b"new"]
    assert len(flow.kept("m")) == 5
    assert "another one" in flow.place("m").trouble, "its sequences are others"


def test_a_mirror_without_messages_takes_those_of_an_origin_that_is_made_anew() -> None:
    flow = Flow()
    flow.follow(mirror=StreamOrigin("o"))
    flow.following.look(flow.world.registry.delete("o"))
    flow.following.look(flow.world.create("o/#", name="o"))
    flow.publish("o/a", b"new")
    flow.run()
    assert flow.kept() == {1: ("o/a", b"new")}


def test_limits_are_kept_with_each_step_and_the_stream_says_that_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Flow()
    stream = flow.follow(StreamOrigin("o"), max_messages=1)
    told: list[bool] = []
    monkeypatch.setattr(stream, "changed", lambda **_: told.append(True))
    flow.publish("o/a", b"1", b"2", b"3")
    done(flow.following.step(flow.world, lambda: flow.world.now))
    assert (stream.log.messages, bool(told)) == (1, True)


@pytest.mark.parametrize("name", ["o", "s"])
def test_a_stream_may_be_deleted_while_the_origin_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(10))
    flow.world.restart()
    flow.look()
    stream, read = flow.world.create(name="s", sources=(StreamOrigin("o"),)), flow.world.read

    async def delete(function: Callable[[Engine], Any]) -> Any:
        found = await read(function)
        if flow.world.registry.find(name) is not None:
            flow.following.look(flow.world.registry.delete(name))
        return found

    flow.following.look(stream)
    monkeypatch.setattr(flow.world, "read", delete)
    flow.run()
    assert stream.log.messages == 0


def test_a_source_that_comes_back_goes_on_where_it_was() -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(3))
    flow.follow(StreamOrigin("o"), filters=("s",))
    for sources in ((), (StreamOrigin("o"),)):
        config = StreamConfig(name="s", filters=("s",), sources=sources)
        flow.following.look(flow.world.registry.update(config))
        flow.publish("o/a", b"x")
        flow.run()
    assert [payload for _, payload in flow.kept().values()] == [*numbers(3), b"x", b"x"]


def test_places_of_former_origins_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_FORMER", 2)
    flow = Flow()
    flow.publish("o/a", b"1")
    flow.follow(StreamOrigin("o"), filters=("s",))
    for number in range(5):
        sources = (StreamOrigin("o", filter=f"o/{number}"),)
        flow.following.look(flow.world.registry.update(StreamConfig(name="s", filters=("s",), sources=sources)))
        flow.run()
    assert len(flow.world.stream.places) == 3


def test_a_source_that_rests_keeps_its_place_whatever_others_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_FORMER", 2)
    flow = Flow()
    flow.world.create("p/#", name="p")
    flow.world.publish("p/a", b"once")
    flow.publish("o/a", b"1")
    flow.follow(StreamOrigin("p"), filters=("s",))
    for number in range(5):
        sources = (StreamOrigin("p"), StreamOrigin("o", filter=f"o/{number}"))
        flow.following.look(flow.world.registry.update(StreamConfig(name="s", filters=("s",), sources=sources)))
        flow.run()
    assert [payload for _, payload in flow.kept().values()] == [b"once"]
    assert len(flow.world.stream.places) == 4


def test_others_have_their_turn_between_those_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    flow = Flow()
    streams = [flow.follow(StreamOrigin("o"), name=f"s{number}") for number in range(5)]

    async def pause() -> None:
        taken.append(sum(stream.log.messages for stream in streams))

    monkeypatch.setattr(flow.world, "pause", pause)
    flow.publish("o/a", *numbers(3))
    flow.run()
    assert taken[:5] == [0, 3, 6, 9, 12]


def test_the_place_in_an_origin_outlives_those_of_former_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_FORMER", 1)
    flow = Flow()
    flow.follow(StreamOrigin("o"), filters=("s",))
    for number in range(6):
        sources = (StreamOrigin("o"), StreamOrigin("o", filter=f"o/none/{number}"))
        flow.following.look(flow.world.registry.update(StreamConfig(name="s", filters=("s",), sources=sources)))
        flow.publish("o/a", b"%d" % number)
        flow.run()
    assert [payload for _, payload in flow.kept().values()] == numbers(6)


def test_an_origin_that_nobody_follows_any_more_is_not_looked_at() -> None:
    flow = Flow()
    flow.follow(StreamOrigin("o"), filters=("s",))
    flow.following.look(flow.world.registry.update(StreamConfig(name="s", filters=("s",))))
    flow.publish("o/a", b"1")
    assert not flow.following.is_due


def test_what_cannot_be_read_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow()
    flow.publish("o/a", *numbers(10))
    flow.world.restart()
    flow.look()

    async def refuse(function: Callable[[Engine], object]) -> object:
        raise StoreError("the disk")

    with monkeypatch.context() as broken:
        broken.setattr(flow.world, "read", refuse)
        with pytest.raises(StoreError):
            flow.follow(StreamOrigin("o"))
    flow.run()
    assert len(flow.kept()) == 10


@pytest.mark.parametrize("seed", range(20))
def test_each_message_once_whatever_ends_the_process(seed: int) -> None:
    """Crashes between any two steps, with commits here and there."""
    chance, flow = random.Random(seed), Flow()
    flow.follow(StreamOrigin("o"), filters=("s",))
    flow.follow(name="m", mirror=StreamOrigin("o"))
    flow.world.commit()
    number = 0
    for _ in range(60):
        match chance.randrange(5):
            case 0:
                flow.world.crash()
                flow.look()
            case 1:
                flow.world.commit()
            case 2 | 3:
                payloads = numbers(chance.randrange(1, 6), number)
                number += len(payloads)
                assert not flow.world.take(burst(["o/a"], payloads))
                flow.following.note(flow.world.registry.get("o"))
            case _:
                done(flow.following.step(flow.world, lambda: flow.world.now))
    flow.run()
    origin = flow.kept("o")
    assert list(flow.kept().values()) == list(origin.values())
    assert flow.kept("m") == origin


def test_streams_that_follow_nothing_cost_a_look_up() -> None:
    flow = Flow()
    flow.world.create("p/#", name="p")
    flow.following.note(flow.world.registry.get("p"))
    assert not flow.following.is_due


def test_chains() -> None:
    flow = Flow()
    flow.follow(mirror=StreamOrigin("o"))
    flow.follow(StreamOrigin("s"), name="t")
    flow.publish("o/a", *numbers(7))
    for _ in range(3):
        flow.run()
        flow.following.note(flow.world.stream)
    assert list(flow.kept("t").values()) == list(flow.kept("o").values())
    seen: Sequence[OriginPlace] = flow.following.places(flow.world.registry.get("t"))
    assert [place.sequence for place in seen] == [7]
