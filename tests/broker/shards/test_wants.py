"""Other shards know what the sessions here want, and a client that has its SUBACK gets what is published there."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from tests.broker.session.test_durable import Turns
from trunkline.actors import Scheduler
from trunkline.broker.links.frames import LinkRoute
from trunkline.broker.routes import Subscriber
from trunkline.broker.shards.wants import MAX_WAIT, Wants
from trunkline.router import Options, Router


class Other:
    """A shard that answers when the test says so."""

    def __init__(self, *, is_up: bool = True) -> None:
        self.is_up = is_up
        self.told: list[tuple[str, LinkRoute | None]] = []
        self.waiting: list[Callable[[], None]] = []
        self.answers_at_once = False

    def set_route(self, filter: str, route: LinkRoute | None) -> None:
        self.told.append((filter, route))

    def when_routed(self, action: Callable[[], None]) -> None:
        if self.answers_at_once:
            action()
        else:
            self.waiting.append(action)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for action in waiting:
            action()


class House:
    def __init__(self, *others: Other, durable: bool = False, scheduler: Scheduler | None = None) -> None:
        self.router: Router[Subscriber] = Router()
        self.turns = Turns()
        self.others = others
        run_queue = scheduler or self.turns
        self.wants = Wants(self.router, run_queue, lambda: others, durable=durable)  # type: ignore[arg-type, return-value]

    def subscribe(self, client_id: str, filter: str, *, online: bool = True) -> Subscriber:
        subscriber = Subscriber(client_id, lambda mail: None)
        subscriber.online = online
        self.router.subscribe(subscriber, filter, Options(qos=1))
        self.wants.change(filter)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber, filter: str) -> None:
        self.router.unsubscribe(subscriber, filter)
        self.wants.change(filter)


@pytest.mark.parametrize("durable", [True, False])
def test_a_turn_tells_all_others_what_is_wanted_then(durable: bool) -> None:
    one, two = Other(), Other(is_up=False)
    house = House(one, two, durable=durable)
    first = house.subscribe("1", "a")
    house.subscribe("2", "b/+")
    gone = house.subscribe("3", "c")
    house.unsubscribe(gone, "c")
    assert one.told == []
    house.turns.end()
    assert one.told == two.told == [("a", LinkRoute(2, durable)), ("b/+", LinkRoute(2, durable))]
    again = house.subscribe("4", "a")
    house.unsubscribe(first, "a")
    house.turns.end()
    assert one.told[2:] == [], "it is wanted as before"
    house.unsubscribe(again, "a")
    house.turns.end()
    assert one.told[2:] == two.told[2:] == [("a", None)]
    house.subscribe("5", "a")
    house.turns.end()
    assert one.told[3:] == [("a", LinkRoute(2, durable))]


def test_of_a_group_they_know_how_many_are_there() -> None:
    other = Other()
    house = House(other, durable=True)
    filter = "$share/g/a"
    assert house.wants.of(filter) is None
    members = [house.subscribe(str(number), filter, online=number > 0) for number in range(3)]
    house.turns.end()
    assert other.told == [(filter, LinkRoute(2, True, online=2, offline=1))]
    assert house.wants.of("a") is None, "no session wants all of it"
    members[1].online = False
    house.wants.change(filter)
    house.turns.end()
    assert other.told[1:] == [(filter, LinkRoute(2, True, online=1, offline=2))]
    assert house.wants.of(filter) == LinkRoute(2, True, online=1, offline=2)
    for member in members:
        house.unsubscribe(member, filter)
    house.turns.end()
    assert other.told[2:] == [(filter, None)]


def test_what_was_restored_is_told_at_the_beginning() -> None:
    other = Other()
    house = House(other)
    for filter in ("a", "a", "$share/g/b"):
        house.router.subscribe(Subscriber(filter, lambda mail: None), filter, Options())
    house.wants.begin()
    house.turns.end()
    assert dict(other.told).keys() == {"a", "$share/g/b"}
    assert len(other.told) == 2


# SUBACK


@pytest.fixture
async def scheduler(mock_clock: MockClock) -> Scheduler:
    return Scheduler(now=trio.current_time())


async def test_a_client_waits_for_all_that_can_be_reached(scheduler: Scheduler) -> None:
    one, two, down = Other(), Other(), Other(is_up=False)
    house = House(one, two, down, scheduler=scheduler)
    told: list[str] = []
    house.subscribe("1", "a")
    house.wants.when_told(lambda: told.append("1"))
    assert one.told == [("a", LinkRoute(2))], "they know it before they are asked"
    one.answer()
    assert told == []
    two.answer()
    assert told == ["1"]
    assert down.waiting == []
    assert scheduler.timers == 0


@pytest.mark.parametrize("number", [0, 1])
async def test_nobody_waits_for_shards_that_are_down(scheduler: Scheduler, number: int) -> None:
    told: list[str] = []
    House(*[Other(is_up=False)] * number, scheduler=scheduler).wants.when_told(lambda: told.append("1"))
    assert told == ["1"]
    assert scheduler.timers == 0


async def test_shards_that_know_it_already_answer_at_once(scheduler: Scheduler) -> None:
    others = [Other(), Other()]
    house = House(*others, scheduler=scheduler)
    told: list[str] = []
    for other in others:
        other.answers_at_once = True
    house.wants.when_told(lambda: told.append("1"))
    assert told == ["1"]
    assert scheduler.timers == 0


@pytest.mark.parametrize("late", [1, 2])
async def test_nobody_waits_for_ever(scheduler: Scheduler, mock_clock: MockClock, late: int) -> None:
    others = [Other() for _ in range(3)]
    house = House(*others, scheduler=scheduler)
    told: list[str] = []
    house.wants.when_told(lambda: told.append("1"))
    for other in others[late:]:
        other.answer()
    mock_clock.jump(MAX_WAIT / 2)
    scheduler.step()
    assert told == []
    mock_clock.jump(MAX_WAIT / 2)
    scheduler.step()
    assert told == ["1"]
    for other in others:
        other.answer()
    assert told == ["1"], "an answer that comes later is none to anybody"
