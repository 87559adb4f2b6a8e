"""A shard knows where a client belongs, and the ways there."""

from tests.broker.shards.passage_ends import Client
from trunkline.broker.net.passed import PassedConnection
from trunkline.broker.shards.hand_over import ShardHandOver
from trunkline.broker.shards.homes import Homes, dealt


class Way:
    def __init__(self, *, has_room: bool) -> None:
        self.has_room = has_room
        self.passed: list[PassedConnection] = []
        self.is_closed = False

    def hand_over(self, passed: PassedConnection) -> bool:
        if self.has_room:
            self.passed.append(passed)
        return self.has_room

    def close(self) -> None:
        self.is_closed = True


def test_each_shard_has_its_own_way() -> None:
    hand_over = ShardHandOver(Homes(0, dealt(4)))
    one, full = Way(has_room=True), Way(has_room=False)
    hand_over.passages = {1: one, 2: full}
    client = Client()
    assert hand_over.hand_over(1, client.passed)
    assert not hand_over.hand_over(2, client.passed)
    assert not hand_over.hand_over(3, client.passed), "there is no way to it"
    assert one.passed == [client.passed]
    hand_over.close()
    assert (one.is_closed, full.is_closed) == (True, True)
    assert not hand_over.hand_over(1, client.passed)
    client.passed.close()
    client.close()


def test_it_is_that_of_one_shard() -> None:
    homes = Homes(2, dealt(4))
    hand_over = ShardHandOver(homes)
    assert hand_over.own == 2
    assert hand_over.home_of("a") == homes.home_of("a") == 67 % 4
    assert homes.home_of(hand_over.draw(iter("abcdefgh").__next__)) == 2
