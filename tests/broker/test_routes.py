"""The writer of the routes: slices, order, and what becomes of requests when it crashes."""

from itertools import pairwise
from typing import Any

from tests.broker.test_pubsub import Member, pubsub
from trunkline.actors import system
from trunkline.broker.routes import FILTERS_AT_ONCE
from trunkline.router import Options


def many(count: int) -> list[tuple[str, Options]]:
    return [(f"t/{number}", Options()) for number in range(count)]


async def test_a_long_request_goes_on_in_later_turns_and_others_come_in_between() -> None:
    async with system() as actors:
        hub, greedy, other = pubsub(), Member("greedy"), Member("other")
        actors.start(hub.new_writer())
        answers: list[tuple[str, int]] = []
        hub.make_routes(
            greedy.subscriber, many(3 * FILTERS_AT_ONCE + 1), lambda grants: answers.append(("greedy", len(grants)))
        )
        hub.make_routes(
            other.subscriber, many(2 * FILTERS_AT_ONCE), lambda grants: answers.append(("other", len(grants)))
        )
        turns = [hub.router.subscriptions]
        while len(answers) < 2:
            actors.scheduler.step()
            turns.append(hub.router.subscriptions)
        assert max(after - before for before, after in pairwise(turns)) <= 2 * FILTERS_AT_ONCE
        assert answers == [("other", 2 * FILTERS_AT_ONCE), ("greedy", 3 * FILTERS_AT_ONCE + 1)]


async def test_requests_of_one_subscriber_keep_their_order() -> None:
    async with system() as actors:
        hub, member = pubsub(), Member("m")
        actors.start(hub.new_writer())
        answers: list[list[Any]] = []
        hub.make_routes(member.subscriber, many(5 * FILTERS_AT_ONCE), answers.append)
        hub.remove_routes(member.subscriber, [filter for filter, _ in many(5 * FILTERS_AT_ONCE)], answers.append)
        while len(answers) < 2:
            actors.scheduler.step()
        assert all(grant.fresh for grant in answers[0])
        assert all(existed is True for existed in answers[1])
        assert hub.router.subscriptions == 0


async def test_what_a_crash_leaves_undone_is_done_in_its_order() -> None:
    async with system() as actors:
        hub, member = pubsub(), Member("m")
        first = actors.start(hub.new_writer())
        answers: list[list[Any]] = []
        hub.make_routes(member.subscriber, many(5 * FILTERS_AT_ONCE), answers.append)
        actors.scheduler.step()
        hub.remove_routes(member.subscriber, [filter for filter, _ in many(5 * FILTERS_AT_ONCE)], answers.append)
        hub.remove_routes(member.subscriber, ["unknown"], answers.append)
        first.ask("no such request", lambda result: None)
        actors.scheduler.step()
        assert not first.alive
        hub.make_routes(member.subscriber, [("later", Options())], answers.append)
        assert answers == []
        actors.start(hub.new_writer())
        while len(answers) < 4:
            actors.scheduler.step()
        assert [len(answer) for answer in answers] == [5 * FILTERS_AT_ONCE, 5 * FILTERS_AT_ONCE, 1, 1]
        assert [target.subscriber for target in hub.router.targets("later")] == [member.subscriber]
        assert hub.router.subscriptions == 1
