"""How far a shard has come with another one is stored with what came."""

from tests.broker.session.test_durable import committer_of
from trunkline.broker.links.frames import LinkPlace
from trunkline.broker.shards.places import LINKS, LinkPlaces, Reached, places_from
from trunkline.store import Space, WriteBatch
from trunkline.store.engine import rows
from trunkline.store.memory import MemoryEngine

OTHER = Space("other")


class Message:
    """What came."""

    owner = None

    def write(self, batch: WriteBatch) -> None:
        batch.put(OTHER, b"message", b"x")


class House:
    def __init__(self, engine: MemoryEngine | None = None) -> None:
        self.engine = engine or MemoryEngine()
        self.committer, self.turns, _ = committer_of(self.engine)
        self.places = LinkPlaces(self.committer, {shard: each.number for shard, each in self.stored.items()})
        self.told: list[str] = []

    def reached(self, shard: int, term: int, number: int) -> None:
        self.places.reached(shard, term, number, lambda: self.told.append(f"{shard}.{term}.{number}"))

    @property
    def stored(self) -> dict[int, Reached]:
        return places_from(rows(self.engine, LINKS))


def test_it_is_told_when_it_is_stored_together_with_what_came() -> None:
    house = House()
    house.committer.change(Message())
    house.reached(3, 7, 1)
    house.reached(300, 1, 5)
    house.reached(3, 7, 2)
    assert (house.told, house.stored) == ([], {})
    house.turns.end()
    assert house.told == ["3.7.1", "300.1.5", "3.7.2"]
    assert house.stored == {3: Reached(LinkPlace(7, 2, 2), 0), 300: Reached(LinkPlace(1, 5, 5), 0)}
    assert house.engine.get(OTHER, b"message") == b"x"


def test_only_what_has_changed_is_written() -> None:
    house = House()
    house.reached(1, 1, 1)
    house.turns.end()
    batch = WriteBatch()
    batch.delete(LINKS, (1).to_bytes(2, "big"))
    house.engine.commit(batch)
    house.reached(2, 1, 1)
    house.turns.end()
    assert list(house.stored) == [2]


def test_a_number_comes_once_from_each_shard() -> None:
    house = House()
    assert [house.places.is_new(1, number) for number in (4, 4, 3, 9)] == [True, False, False, True]
    assert house.places.is_new(2, 1)
    house.reached(1, 1, 1)
    house.turns.end()
    assert house.stored == {1: Reached(LinkPlace(1, 1, 1), 9)}
    again = House(house.engine)
    assert [again.places.is_new(1, number) for number in (9, 10)] == [False, True]
    assert again.places.is_new(2, 4), "it was not stored, and nobody has acknowledged it"
    again.reached(1, 2, 1)
    again.turns.end()
    assert again.stored == {1: Reached(LinkPlace(2, 1, 1), 10)}
