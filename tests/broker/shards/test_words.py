"""Parts of two shards speak to each other over a link."""

from typing import Any

import pytest

from tests.broker.shards.peer_pair import pair
from trunkline.broker.shards.words import Words


async def test_what_is_said_is_heard_by_who_hears_of_it() -> None:
    one, other, ends = pair()
    heard: list[Any] = []
    other.words.hear("weather", lambda shard, content: heard.append((shard, content)))
    with one.scheduler.turn:
        one.words.tell("weather", {"rain": 3})
        one.words.tell("music", "nobody hears of that")
    ends.settle()
    assert heard == [(0, {"rain": 3})]


async def test_a_question_is_answered_at_once_or_later() -> None:
    one, other, ends = pair()
    replies: list[Any] = []
    other.words.answer("double", lambda shard, content, reply: reply([shard, 2 * content]))
    other.words.answer("later", lambda shard, content, reply: replies.append(reply))
    answers: list[Any] = []
    with one.scheduler.turn:
        one.words.ask(1, "double", 4, answers.append)
        one.words.ask(1, "later", 5, answers.append)
        one.words.ask(1, "unknown", 6, answers.append)
    ends.settle()
    assert answers == [[0, 8], None]
    with other.scheduler.turn:
        replies[0]("now")
    ends.settle()
    assert answers == [[0, 8], None, "now"]


async def test_what_is_asked_of_a_shard_that_goes_has_no_answer() -> None:
    one, other, ends = pair()
    asked: list[Any] = []
    other.words.answer("a", lambda shard, content, reply: asked.append(reply))
    answers: list[Any] = []
    with one.scheduler.turn:
        one.words.ask(1, "a", 1, answers.append)
    ends.settle()
    ends.cut()
    assert answers == [None]
    with one.scheduler.turn:
        one.words.ask(1, "a", 2, answers.append)
    assert answers == [None, None], "it is down"
    ends.connect()
    ends.settle()
    with other.scheduler.turn:
        asked[0]("too late")
    ends.settle()
    assert answers == [None, None]


async def test_what_others_were_asked_waits_on() -> None:
    one, other = pair()[0], pair()[0]
    words = Words(0, {1: one.peer, 2: other.peer}, one.scheduler)
    answers: list[Any] = []
    others: list[Any] = []
    with one.scheduler.turn, other.scheduler.turn:
        words.ask(1, "a", None, answers.append)
        words.ask(2, "a", None, others.append)
    words.has_gone(1)
    assert (answers, others) == ([None], [])
    words.has_gone(2)
    assert (answers, others) == ([None], [None])


async def test_who_comes_and_goes_is_told() -> None:
    one, _, ends = pair()
    told: list[Any] = []
    one.words.came.append(lambda shard: told.append(("came", shard, one.words.reached)))
    one.words.went.append(lambda shard: told.append(("went", shard, one.words.reached)))
    ends.cut()
    ends.connect()
    assert told == [("went", 1, []), ("came", 1, [1])]


async def test_a_connection_that_takes_the_place_of_another_ends_that(caplog: pytest.LogCaptureFixture) -> None:
    one, _, ends = pair()
    ends.settle()
    told: list[Any] = []
    one.words.went.append(told.append)
    answers: list[Any] = []
    with one.scheduler.turn:
        one.words.ask(1, "a", 1, answers.append)
        one.peer.connected(lambda data: None, lambda: None)
    assert (told, answers) == ([1], [None])


async def test_a_part_that_breaks_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    one, other, ends = pair()
    heard: list[Any] = []

    def breaks(shard: int, content: object) -> None:
        raise RuntimeError("it broke")

    other.words.hear("bad", breaks)
    other.words.hear("good", lambda shard, content: heard.append(content))
    with one.scheduler.turn:
        one.words.tell("bad", 1)
        one.words.tell("good", 2)
    ends.settle()
    assert heard == [2]
    assert "it broke" in caplog.text
    assert other.peer.is_up
