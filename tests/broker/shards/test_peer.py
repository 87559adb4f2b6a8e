"""What is published here for another shard comes there: in order, once, and whoever waits for it is told when it is
safe."""

import logging
from dataclasses import replace
from functools import partial

import pytest
from trio.testing import MockClock

from tests.broker.links.wires import wire_of
from tests.broker.shards.peer_pair import Pair, Shard, message, pair
from trunkline.broker.links.frames import HoldPublisher, LinkBeat, LinkHello, LinkPlace, LinkRoute, ReleasePublisher
from trunkline.broker.links.link import BEAT, BEATS
from trunkline.broker.shards import peer as peers
from trunkline.broker.shards.bursts import Forwarded, decode_burst
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.ledger import one_after_other
from trunkline.store.memory import MemoryEngine

pytestmark = pytest.mark.trio

WANTED = LinkRoute(2)


def bursts(shard: Shard) -> int:
    """How many it has published."""
    return shard.peer.link._outgoing.number


# What leaves


async def test_what_a_turn_publishes_leaves_together_and_in_order() -> None:
    here, there, ends = pair()
    here.turn(partial(here.forward, b"1", b"2"), partial(here.forward, b"3", qos=1))
    assert len(here.sent) == 1
    assert bursts(here) == 1
    here.turn(partial(here.forward, b"4"))
    assert bursts(here) == 2
    ends.settle()
    assert there.side.payloads == [b"1", b"2", b"3", b"4"]
    here.turn()
    assert bursts(here) == 2, "nothing was published"


async def test_times_are_those_of_the_node() -> None:
    here, there = Shard(0, epoch=100.0), Shard(1, epoch=40.0)
    ends = Pair(here, there)
    ends.connect()
    here.turn(lambda: here.peer.forward(Forwarded(replace(message(), expires_at=7.0))))
    ends.settle()
    assert there.side.taken[0].publication.expires_at == 67.0


async def test_all_that_is_said_of_a_publication_comes_with_it() -> None:
    here, there, ends = pair()
    forwarded = Forwarded(message(), "$share/g/t", (3, 4), 17, 0, True)
    here.turn(lambda: here.peer.forward(forwarded))
    ends.settle()
    assert there.side.taken[0][1:] == forwarded[1:]


async def test_much_leaves_in_several_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, ends = pair(durable=True)
    monkeypatch.setattr(peers, "MAX_BURST", 3 * message().weight)
    there.writer.waits = True
    told: list[str] = []
    here.turn(partial(here.forward, *(b"%d" % number for number in range(6)), qos=1))
    assert bursts(here) == 2, "three, and three"
    here.turn(partial(here.forward, b"x" * 1000, b"y", qos=1), lambda: here.peer.until_there(lambda: told.append("y")))
    assert bursts(here) == 4, "what is larger leaves by itself"
    ends.settle()
    assert there.side.payloads == [b"0", b"1", b"2", b"3", b"4", b"5", b"x" * 1000, b"y"]
    assert told == []
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert told == ["y"]


@pytest.mark.parametrize("how", ["until_there", "until_safe"])
async def test_what_leaves_in_several_bursts_is_there_with_the_last(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    here, there, ends = pair(credit=1)
    monkeypatch.setattr(peers, "MAX_BURST", message().weight)
    told: list[str] = []
    here.turn(partial(here.forward, b"1", b"2", qos=1), lambda: getattr(here.peer, how)(lambda: told.append(how)))
    ends.carry()
    there.rest()
    ends.carry()
    assert (there.side.payloads, told) == ([b"1"], [])
    ends.settle()
    assert (there.side.payloads, told) == ([b"1", b"2"], [how])


async def test_without_a_connection_all_that_is_kept_waits_for_one() -> None:
    here, there = Shard(0), Shard(1)
    here.turn(partial(here.forward, b"lost"))
    here.turn(partial(here.forward, b"kept", qos=1))
    here.turn(lambda: here.peer.forward(Forwarded(message(b"retained", 1), version=9)))
    here.turn(partial(here.forward, b"waited for"), lambda: here.peer.until_there(lambda: None))
    Pair(here, there).connect()
    assert there.side.payloads == [b"kept", b"retained", b"waited for"]


# Who waits for it


@pytest.mark.parametrize("how", ["until_there", "until_safe"])
async def test_it_is_there_when_it_is_stored_there(how: str) -> None:
    here, there, ends = pair(durable=True)
    there.writer.waits = True
    told: list[str] = []
    here.turn(partial(here.forward, b"x", qos=1), lambda: getattr(here.peer, how)(lambda: told.append(how)))
    ends.settle()
    assert there.side.payloads == [b"x"]
    assert told == []
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert told == [how]
    ends.cut()
    assert here.stored.unsent.bursts == [], "it is there"


@pytest.mark.parametrize("durable", [True, False])
async def test_what_need_not_be_stored_is_there_when_it_has_come(durable: bool) -> None:
    here, there, ends = pair(durable=durable)
    there.side.is_durable = False
    if durable:
        there.writer.waits = True
    told: list[str] = []
    here.turn(partial(here.forward, b"x"), lambda: here.peer.until_there(lambda: told.append("x")))
    assert told == []
    ends.settle()
    assert told == ["x"]


async def test_what_need_not_be_stored_waits_for_what_came_before() -> None:
    """An acknowledgement is one of all before it."""
    here, there, ends = pair(durable=True)
    there.writer.waits = True
    told: list[str] = []
    for payload, is_durable in ((b"1", True), (b"2", False), (b"3", False)):
        there.side.is_durable = is_durable
        here.turn(
            partial(here.forward, payload, qos=1),
            lambda payload=payload: here.peer.until_there(lambda: told.append(payload.decode())),  # type: ignore[misc]
        )
        ends.settle()
    assert there.side.payloads == [b"1", b"2", b"3"]
    assert told == []
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert told == ["1", "2", "3"]
    there.writer.waits = True
    here.turn(partial(here.forward, b"4", qos=1), lambda: here.peer.until_there(lambda: told.append("4")))
    ends.settle()
    assert told == ["1", "2", "3", "4"], "nothing waits any more"


async def test_who_publishes_nothing_waits_for_what_others_have() -> None:
    here, there, ends = pair(durable=True)
    there.writer.waits = True
    told: list[str] = []
    here.turn(partial(here.forward, b"x", qos=1))
    here.turn(lambda: here.peer.until_there(lambda: told.append("there")))
    here.turn(lambda: here.peer.until_safe(lambda: told.append("safe")))
    assert bursts(here) == 3, "they are no publications, and have their places among them"
    ends.settle()
    assert told == []
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert told == ["there", "safe"]


async def test_while_the_other_shard_is_down_it_is_safe_when_it_is_stored_here() -> None:
    here, there = Shard(0, engine=MemoryEngine()), Shard(1, engine=MemoryEngine())
    here.writer.waits = True
    told: list[str] = []
    here.turn(
        partial(here.forward, b"x", qos=1),
        lambda: here.peer.until_safe(lambda: told.append("safe")),
        lambda: here.peer.until_there(lambda: told.append("there")),
    )
    assert told == []
    here.turn(here.writer.go_on)
    assert told == ["safe"]
    assert len(here.stored.unsent.bursts) == 1
    Pair(here, there).connect()
    assert told == ["safe", "there"], "each once"
    assert there.side.payloads == [b"x"]
    here.turn(here.commit)
    assert here.stored.unsent.bursts == []


async def test_what_is_on_its_way_when_the_other_shard_is_down_is_stored_here() -> None:
    here, _there, ends = pair(durable=True)
    told: list[str] = []
    here.turn(partial(here.forward, b"x", qos=1), lambda: here.peer.until_safe(lambda: told.append("safe")))
    assert told == []
    assert here.stored.unsent.bursts == []
    ends.cut()
    assert told == ["safe"]
    assert len(here.stored.unsent.bursts) == 1


async def test_all_that_is_on_its_way_and_may_not_be_lost_is_stored_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In however many pieces it has left; not what is lost with a connection, nor what is stored already."""
    here, _, ends = pair(durable=True)
    monkeypatch.setattr(peers, "MAX_BURST", message().weight)
    here.turn(
        partial(here.forward, b"1", b"2", b"3", qos=1),
        partial(here.forward, b"lost"),
        lambda: here.peer.until_safe(lambda: None),
    )
    here.turn(partial(here.forward, b"kept", qos=2, is_kept=True))
    here.turn(partial(here.forward, b"4"), lambda: here.peer.until_safe(lambda: None))
    ends.cut()
    rows = [decode_burst(burst, 0.0) for _, _, burst in here.stored.unsent.bursts]
    assert [[each.publication.messages[0].payload for each in row] for row in rows] == [[b"kept"], [b"1", b"2", b"3"]]


async def test_what_is_kept_is_stored_once() -> None:
    """Though somebody waits until it is safe, and the other shard is down then."""
    here, _, ends = pair(durable=True)
    assert here.committer is not None
    safe = one_after_other(here.committer.after_commit, here.peer.until_safe)
    told: list[str] = []
    here.turn(partial(here.forward, b"x", qos=2, is_kept=True), lambda: safe(lambda: told.append("safe")))
    ends.cut()
    assert told == ["safe"]
    assert len(here.stored.unsent.bursts) == 1


async def test_without_a_store_it_is_as_safe_as_it_can_be_when_the_other_shard_is_down() -> None:
    here, there, ends = pair()
    told: list[str] = []
    here.turn(partial(here.forward, b"x", qos=1), lambda: here.peer.until_safe(lambda: told.append("safe")))
    assert told == []
    ends.cut()
    assert told == ["safe"]
    ends.connect()
    assert (told, there.side.payloads) == (["safe"], [b"x"])


async def test_what_is_kept_leaves_before_it_is_safe() -> None:
    here, there, ends = pair(durable=True)
    there.writer.waits = True
    told: list[str] = []
    kept = partial(here.peer.forward, Forwarded(message(b"x", 2)), is_kept=True)
    assert here.committer is not None
    safe = one_after_other(here.committer.after_commit, here.peer.until_safe)
    here.turn(kept, lambda: safe(lambda: told.append("safe")))
    ends.settle()
    assert (there.side.payloads, told) == ([b"x"], [])
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert told == ["safe"]


@pytest.mark.parametrize("is_down", [True, False])
async def test_too_much_is_not_stored_here_for_a_shard_that_is_down(
    monkeypatch: pytest.MonkeyPatch, is_down: bool
) -> None:
    here, there = Shard(0, engine=MemoryEngine()), Shard(1, engine=MemoryEngine())
    monkeypatch.setattr(peers, "MAX_WAITING", 100)
    told: list[str] = []
    here.turn(partial(here.forward, b"x" * 100, qos=1), lambda: here.peer.until_safe(lambda: told.append("safe")))
    here.turn()
    assert told == []
    assert here.stored.unsent.bursts == []
    if is_down:
        monkeypatch.setattr(peers, "MAX_WAITING", 2000)
        here.turn(partial(here.forward, b"y", qos=1))
        assert len(here.stored.unsent.bursts) == 1, "there is room for it now"
    else:
        Pair(here, there).connect()
    assert told == ["safe"]


async def test_what_was_made_safe_is_sent_by_the_next_life() -> None:
    here, there = Shard(0, engine=MemoryEngine()), Shard(1, engine=MemoryEngine())
    here.turn(partial(here.forward, b"x", b"y", qos=1), lambda: here.peer.until_safe(lambda: None))
    here = here.next_life()
    ends = Pair(here, there)
    resend(here)
    ends.connect()
    assert there.side.payloads == [b"x", b"y"]
    here.turn(here.commit)
    assert here.stored.unsent.bursts == []


# What is kept until it is there


def resend(shard: Shard) -> None:
    """As a shard does when it begins."""
    with shard.scheduler.turn:
        for _, number, burst in shard.stored.unsent.bursts:
            shard.peer.resend(number, burst)


async def test_a_row_that_nobody_can_read_does_not_keep_others_from_being_sent() -> None:
    here, there, ends = pair(durable=True)
    with here.scheduler.turn:
        here.peer._store.outbox.keep(1, 1, b"?")
    here.turn(partial(here.forward, b"x", qos=2, is_kept=True))
    ends.cut()
    here = here.next_life()
    assert len(here.stored.unsent.bursts) == 2
    ends = Pair(here, there)
    ends.connect()
    resend(here)
    ends.settle()
    here.turn(here.commit)
    assert here.stored.unsent.bursts == []
    assert there.side.payloads == [b"x"]
    assert here.scheduler.crashes == {"decode_burst": 1}


async def test_what_is_kept_leaves_when_it_is_stored_here() -> None:
    here, there, ends = pair(durable=True)
    here.writer.waits = True
    here.turn(partial(here.forward, b"x", qos=2, is_kept=True))
    ends.settle()
    assert there.side.payloads == []
    here.turn(here.writer.go_on)
    [(shard, number, _)] = here.stored.unsent.bursts
    assert (shard, number) == (1, 1001)
    ends.settle()
    assert there.side.payloads == [b"x"]
    assert there.side.taken[0].number == number
    here.turn(here.commit)
    assert here.stored.unsent.bursts == [], "it is there"


async def test_in_memory_it_leaves_at_once() -> None:
    here, there, ends = pair()
    here.turn(partial(here.forward, b"x", qos=2, is_kept=True))
    ends.settle()
    assert there.side.taken[0].number == 0


@pytest.mark.parametrize("has_come", [True, False])
async def test_the_next_life_sends_what_it_does_not_know_to_be_there(has_come: bool) -> None:
    here, there, ends = pair(durable=True)
    here.turn(partial(here.forward, b"1", b"2", qos=2, is_kept=True))
    ends.cut(arrives=has_come)
    assert there.side.payloads == [b"1", b"2"] * has_come
    here = here.next_life()
    assert len(here.stored.unsent.bursts) == 2
    resend(here)
    ends = Pair(here, there)
    ends.connect()
    assert [each.number for each in there.side.taken] == [1001, 1002, 1001, 1002][2 - 2 * has_come :]
    here.turn(here.commit)
    assert here.stored.unsent.bursts == []
    here.turn(partial(here.forward, b"3", qos=2, is_kept=True))
    ends.settle()
    assert there.side.taken[-1].number > 1002


async def test_a_number_is_new_once_whatever_ends() -> None:
    here, there, ends = pair(durable=True)
    assert [there.peer.is_new(number) for number in (5, 5, 4, 6)] == [True, False, False, True]
    here.turn(partial(here.forward, b"x"))
    ends.settle()
    again = there.next_life()
    assert [again.peer.is_new(number) for number in (6, 7)] == [False, True]
    assert all(Shard(0).peer.is_new(number) for number in (5, 5)), "nothing is sent again by a life without a store"


async def test_what_a_life_has_stored_does_not_come_to_the_next_one() -> None:
    here, there, ends = pair(durable=True)
    here.turn(partial(here.forward, b"1", qos=1))
    ends.settle()
    there.writer.waits = True
    here.turn(partial(here.forward, b"2", qos=1))
    ends.settle()
    assert there.stored.reached[0].place == LinkPlace(1, 1, 1)
    ends.cut()
    again = there.next_life()
    Pair(here, again).connect()
    assert again.side.payloads == [b"2"]
    assert again.stored.reached[0].place == LinkPlace(1, 2, 2)


# What waits is bounded


async def test_publishers_wait_for_a_shard_that_does_not_keep_pace() -> None:
    here, there, ends = pair(durable=True, credit=20_000)
    there.writer.waits = True
    one, two = b"1" * 10_000, b"2" * 10_000
    here.turn(partial(here.forward, one, two, qos=1, publisher="fast"))
    assert here.publishers.held == [], "it was not full before"
    here.turn(partial(here.forward, *[b"3"] * 9, qos=1, publisher="fast"))
    assert here.publishers.held == ["fast"], "once"
    here.turn(partial(here.forward, b"4", publisher="other"))
    assert here.publishers.held == ["fast", "other"]
    ends.settle()
    assert here.publishers.held == ["fast", "other"]
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert here.publishers.held == []
    assert [(client_id, trusted) for client_id, _, trusted in here.publishers.asked] == [
        ("fast", True),
        ("other", True),
    ]
    assert [client_id for client_id, _, _ in here.publishers.released] == ["fast", "other"]
    assert there.side.payloads == [one, two, *[b"3"] * 9, b"4"]
    assert here.peer.refused == 0


async def test_publishers_wait_for_what_is_on_its_way_though_nobody_keeps_it() -> None:
    here, there, ends = pair(credit=4 * message().weight)
    for _ in range(4):
        here.turn(partial(here.forward, b"x"))
        assert here.publishers.held == []
    assert here.peer.link.weight == 0, "all have left"
    here.turn(partial(here.forward, b"x"))
    assert here.publishers.held == ["p"]
    ends.settle()
    assert here.publishers.held == []
    assert len(there.side.payloads) == 5


async def test_whoever_waits_for_room_goes_on_when_the_link_is_lost() -> None:
    here, _, ends = pair(credit=1000)
    here.turn(partial(here.forward, b"x" * 3000, qos=1), partial(here.forward, b"y", publisher="q"))
    assert here.publishers.held == ["q"]
    ends.cut()
    assert here.publishers.held == []


async def test_who_may_not_be_held_is_not_released() -> None:
    here, there, ends = pair()
    here.publishers.allows = False
    ends.cut()
    here.turn(partial(here.forward, b"x" * here.peer.link.credit, b"2", b"3", qos=1))
    assert here.publishers.held == []
    ends.connect()
    assert there.side.payloads[1:] == [b"2", b"3"]


async def test_what_nobody_waits_for_is_refused_where_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = message().weight
    here, there, ends = pair(credit=weight)
    monkeypatch.setattr(peers, "MAX_WAITING", 3 * weight)
    answers: list[bool] = []
    waiting: list[str] = []
    here.turn(
        lambda: answers.extend(here.forward(b"1")),
        lambda: answers.extend(here.forward(b"2", b"3", b"4", b"5", publisher="q")),
        lambda: answers.extend(here.forward(b"6", qos=1)),
        lambda: waiting.extend(here.publishers.held),
    )
    assert answers == [True, True, True, False, False, True]
    assert here.peer.refused == 2
    assert waiting == ["q", "p"]
    ends.settle()
    assert there.side.payloads == [b"1", b"2", b"3", b"6"]


async def test_what_waits_on_the_link_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, ends = pair(durable=True, credit=1000)
    ends.cut()
    here.turn(partial(here.forward, b"x" * 3000, qos=1))
    monkeypatch.setattr(peers, "MAX_WAITING", 3000)
    answers: list[bool] = []
    here.turn(lambda: answers.extend(here.forward(b"1")), lambda: answers.extend(here.forward(b"2", qos=1)))
    assert answers == [False, True]
    ends.connect()
    assert there.side.payloads == [b"x" * 3000, b"2"]


async def test_nobody_is_held_for_a_shard_that_is_down() -> None:
    here, there, ends = pair(durable=True, credit=1000)
    there.writer.waits = True
    here.turn(partial(here.forward, b"x" * 3000, b"1", qos=1))
    assert here.publishers.held == ["p"]
    ends.cut()
    assert here.publishers.held == [], "it might be down for ever"
    here.turn(partial(here.forward, b"2", b"3", qos=1))
    assert here.publishers.held == []


async def test_without_a_store_no_more_than_too_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Shard(0)
    monkeypatch.setattr(peers, "MAX_WAITING", 3 * message().weight)
    answers: list[bool] = []
    for _ in range(5):
        here.turn(lambda: answers.extend(here.forward(b"x" * message().weight, qos=1)))
    assert answers[0]
    assert not answers[-1]
    assert here.peer.link.weight < 10 * message().weight


# Retained messages that nobody waits for


def retained(topic: str, payload: bytes, version: int, qos: int = 0) -> Forwarded:
    return Forwarded(Message(topic, payload, qos=qos, retain=True, publisher="p"), version=version)


async def test_a_shard_that_is_down_gets_the_newest_retained_message_of_each_topic() -> None:
    here, there, ends = pair(durable=True)
    ends.cut()
    for number in range(20):
        here.turn(partial(here.peer.forward, retained(f"t{number % 2}", b"old", number + 1)))
    assert here.peer.link.weight == 0, "what is old waits nowhere"
    here.turn(partial(here.peer.forward, retained("t1", b"sure", 30, 1)))
    ends.connect()
    assert here.side.newest == ["t0"], "what has left is newer than what was missed"
    assert sorted(there.side.payloads) == [b"newest", b"sure"]
    assert here.peer.missed == {}


async def test_a_retained_message_is_sent_again_that_was_lost_on_its_way() -> None:
    """Also at QoS 0: no later one may follow."""
    here, there, ends = pair()
    here.turn(partial(here.peer.forward, retained("t", b"x", 1)), partial(here.forward, b"lost"))
    here.turn(partial(here.forward, b"lost"))
    ends.cut()
    ends.connect()
    assert there.side.payloads == [b"x", b"lost"], "what left with it comes with it"


async def test_what_subscribers_have_is_sent_silently() -> None:
    here, there, ends = pair(durable=True)
    ends.cut()
    silent, new = retained("a", b"x", 1)._replace(is_silent=True), retained("b", b"x", 2)
    for each in (silent, silent._replace(publication=new.publication), new, retained("c", b"x", 3), silent):
        here.turn(partial(here.peer.forward, each))
    ends.connect()
    assert [(each.publication.topic, each.is_silent) for each in there.side.taken] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]


async def test_what_was_missed_is_sent_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, ends = pair(durable=True)
    monkeypatch.setattr(peers, "NEWEST_AT_ONCE", 2)
    ends.cut()
    for number in range(5):
        here.turn(partial(here.peer.forward, retained(f"t{number}", b"old", number + 1)))
    ends.connect()
    while here.peer.missed:
        here.turn(here.peer._is_due)
        ends.settle()
    assert here.side.newest == [f"t{number}" for number in range(5)]
    assert there.side.payloads == [b"newest"] * 5


async def test_what_is_retained_may_find_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there, ends = pair(durable=True, credit=2000)
    monkeypatch.setattr(peers, "MAX_WAITING", 2000)
    there.writer.waits = True
    here.turn(partial(here.forward, b"x" * 3000, qos=1))
    here.turn(partial(here.peer.forward, retained("t", b"old", 1)))
    assert list(here.peer.missed) == ["t"]
    assert here.side.newest == []
    with there.scheduler.turn:
        there.writer.go_on()
    ends.settle()
    assert there.side.payloads == [b"x" * 3000, b"newest"]


# Publishers there


async def test_a_slow_session_holds_publishers_at_the_other_shard() -> None:
    here, there, ends = pair()
    slow, other = object(), object()
    here.peer.say(HoldPublisher("p", id(slow), False))
    here.peer.say(HoldPublisher("p", id(other), True))
    ends.settle()
    assert there.publishers.asked == [("p", (0, id(slow)), False), ("p", (0, id(other)), True)]
    here.peer.say(ReleasePublisher("p", id(slow), 2.5))
    here.peer.say(ReleasePublisher("q", id(slow), 2.5))
    ends.settle()
    assert there.publishers.released == [("p", (0, id(slow)), 2.5)]
    here.peer.say(ReleasePublisher("p", id(slow), 2.5))
    ends.settle()
    assert there.publishers.held == ["p"], "the other one still holds it"
    ends.cut()
    assert there.publishers.held == [], "nobody could release it any more"
    assert there.publishers.released[1:] == [("p", (0, id(other)), 0.0)]
    here.peer.say(HoldPublisher("p", id(slow), True))
    here.peer.say(ReleasePublisher("p", id(slow), 0.0))
    ends.connect()
    assert there.publishers.held == []
    assert len(there.publishers.asked) == 2


async def test_a_publisher_that_may_not_be_held_there_is_not_released() -> None:
    here, there, ends = pair()
    there.publishers.allows = False
    here.peer.say(HoldPublisher("p", id(here), True))
    here.peer.say(ReleasePublisher("p", id(here), 1.0))
    ends.settle()
    assert len(there.publishers.asked) == 1
    assert there.publishers.released == []


# Connections


async def test_bad_bytes_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    here, there, ends = pair()
    here.turn(partial(here.forward, b"x", qos=1))
    here.sent.clear()
    with there.scheduler.turn:
        there.peer.received(b"\0\0\0\1\x63")
    assert there.closed == 1
    assert not there.peer.is_up
    assert "the link to worker 0 is given up: no frame has the kind 99" in caplog.text
    there.turn(partial(there.forward, b"late"))
    assert there.sent == []
    ends.connect()
    assert (there.closed, here.closed) == (1, 1), "what was given up is not closed again"
    assert there.side.payloads == [b"x"]


async def test_what_came_before_a_mistake_has_come(caplog: pytest.LogCaptureFixture) -> None:
    here, there, ends = pair()
    here.turn(partial(here.forward, b"x", qos=1))
    [data] = here.sent
    with there.scheduler.turn:
        there.peer.received(data + wire_of(LinkHello(0, 1, 100)))
    assert "a second HELLO" in caplog.text
    assert there.side.payloads == [b"x"]
    ends.connect()
    assert there.side.payloads == [b"x"]


async def test_a_burst_that_nobody_can_read_does_not_end_what_follows() -> None:
    here, there, ends = pair()
    told: list[str] = []
    here.peer.link.publish(b"?", lambda: told.append("?"))
    here.turn(partial(here.forward, b"x", qos=1))
    ends.settle()
    assert there.side.payloads == [b"x"]
    assert told == ["?"]
    assert there.scheduler.crashes == {"decode_burst": 1}


async def test_a_publication_that_cannot_be_taken_does_not_take_others_with_it() -> None:
    here, there, ends = pair(durable=True)

    def fail(forwarded: Forwarded) -> None:
        if forwarded.publication.messages[0].payload == b"bad":
            raise ValueError

    there.side.on_take = fail
    told: list[str] = []
    here.turn(
        partial(here.forward, b"1", b"bad", b"2", qos=1), lambda: here.peer.until_there(lambda: told.append("there"))
    )
    ends.settle()
    assert there.side.payloads == [b"1", b"2"]
    assert told == ["there"]
    assert there.scheduler.crashes == {"Side.take": 1}


async def test_a_connection_replaces_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trunkline.shards")
    here, there, ends = pair()
    assert (here.closed, there.closed) == (0, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "the link to worker 0 is up",
        "the link to worker 1 is up",
    ]
    ends.connect()
    assert (here.closed, there.closed) == (1, 1)
    assert here.peer.is_up
    assert there.peer.is_up
    caplog.clear()
    ends.cut()
    ends.cut()
    assert here.scheduler.timers == there.scheduler.timers == 0
    assert [record.getMessage() for record in caplog.records] == [
        "the link to worker 1 is down",
        "the link to worker 0 is down",
    ]
    ends.connect()
    assert (here.closed, there.closed) == (1, 1), "what is lost is closed already"


@pytest.mark.parametrize(("is_ending", "level"), [(False, logging.WARNING), (True, logging.INFO)])
async def test_a_link_that_ends_with_the_node_is_no_fault(
    caplog: pytest.LogCaptureFixture, is_ending: bool, level: int
) -> None:
    here, _, ends = pair()
    caplog.set_level(logging.INFO, "trunkline.shards")
    here.peer.is_ending = is_ending
    ends.cut()
    (how,) = [record.levelno for record in caplog.records if record.getMessage() == "the link to worker 1 is down"]
    assert how == level


async def test_a_piece_of_a_frame_belongs_to_its_connection() -> None:
    here, there, ends = pair()
    here.turn(partial(here.forward, b"x", qos=1))
    [data] = here.sent
    with there.scheduler.turn:
        there.peer.received(data[:-1])
    ends.connect()
    assert there.side.payloads == [b"x"]


async def test_shards_that_have_nothing_to_say_say_that(mock_clock: MockClock) -> None:
    here, there, ends = pair()
    for _ in range(2 * BEATS):
        mock_clock.jump(BEAT)
        here.rest()
        there.rest()
        assert here.sent == there.sent == [wire_of(LinkBeat())]
        ends.settle()
    assert here.peer.is_up
    assert there.peer.is_up


async def test_a_shard_that_says_nothing_is_given_up(mock_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    here, _there, ends = pair()
    for number in range(1, BEATS + 1):
        assert here.peer.is_up
        assert here.closed == 0
        mock_clock.jump(BEAT)
        here.rest()
        assert len(here.sent) == min(number, BEATS - 1)
    assert not here.peer.is_up
    assert here.closed == 1
    assert "the link to worker 1 is given up: it says nothing" in caplog.text
    here.sent.clear()
    mock_clock.jump(10 * BEAT)
    here.rest()
    assert here.sent == []
    assert here.closed == 1
    assert here.scheduler.timers == 0
    ends.connect()
    assert here.peer.is_up


# Routes


async def test_each_knows_what_the_other_one_wants() -> None:
    here, there = Shard(0), Shard(1)
    here.turn(lambda: here.peer.set_route("a", WANTED), lambda: here.peer.set_route("b", WANTED))
    ends = Pair(here, there)
    ends.connect()
    assert there.peer.routes == {"a": WANTED, "b": WANTED}
    assert there.side.changes == [({"a": WANTED, "b": WANTED}, True)]
    here.turn(lambda: here.peer.set_route("a", None), lambda: here.peer.set_route("c", WANTED))
    ends.settle()
    assert there.peer.routes == {"b": WANTED, "c": WANTED}
    assert there.side.changes[1:] == [({"a": None, "c": WANTED}, True)]
    assert here.side.changes == [({}, True)]
    ends.cut()
    assert there.peer.routes == {"b": WANTED, "c": WANTED}, "it may come back"


async def test_who_subscribes_is_told_when_the_other_shard_routes_by_it() -> None:
    here, there, ends = pair()
    told: list[dict[str, LinkRoute]] = []
    here.turn(
        lambda: here.peer.set_route("a", WANTED), lambda: here.peer.when_routed(lambda: told.append(there.peer.routes))
    )
    assert told == []
    ends.settle()
    assert told == [{"a": WANTED}]


async def test_many_routes_are_told_in_several_turns() -> None:
    here, there = Shard(0), Shard(1)
    filters = [str(number) for number in range(2500)]
    here.turn(*[partial(here.peer.set_route, filter, WANTED) for filter in filters])
    Pair(here, there).connect()
    assert [(len(changes), is_whole) for changes, is_whole in there.side.changes] == [
        (1000, False),
        (1000, False),
        (500, True),
    ]
    assert list(there.peer.routes) == filters


async def test_a_shard_is_told_when_another_life_of_the_other_one_begins() -> None:
    here, there, ends = pair(durable=True)
    assert (here.side.lives, there.side.lives) == (1, 1)
    ends.cut()
    ends.connect()
    assert (here.side.lives, there.side.lives) == (1, 1)
    again = there.next_life()
    Pair(here, again).connect()
    assert here.side.lives == 2


async def test_it_is_a_subscriber_by_itself() -> None:
    peer = Shard(0).peer
    assert (peer.number, peer.client_id, peer.durable, peer.online) == (1, "shard 1", False, True)
