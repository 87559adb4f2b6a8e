"""Publishers are held for another shard, and released once."""

from trunkline.broker.links.frames import HoldPublisher, ReleasePublisher
from trunkline.broker.shards.held import HeldPublishers


class Connected:
    """Clients of a shard; one has waited enough."""

    def __init__(self) -> None:
        self.held: list[tuple[str, object, bool]] = []
        self.released: list[tuple[str, object, float]] = []

    def hold_publisher(self, client_id: str, holder: object, trusted: bool) -> bool:
        self.held.append((client_id, holder, trusted))
        return client_id != "impatient"

    def release_publisher(self, client_id: str, holder: object, in_vain: float) -> None:
        self.released.append((client_id, holder, in_vain))


def test_for_room_each_is_held_once_until_there_is_some() -> None:
    clients = Connected()
    held = HeldPublishers(2, clients)
    for client_id in ("a", "b", "a", "impatient", "impatient"):
        held.for_room(client_id)
    assert [client_id for client_id, _, _ in clients.held] == ["a", "b", "impatient", "impatient"]
    assert {(holder, trusted) for _, holder, trusted in clients.held} == {(held, True)}
    assert len(held) == 2
    held.has_room()
    held.has_room()
    assert clients.released == [("a", held, 0.0), ("b", held, 0.0)]
    held.for_room("a")
    assert len(held) == 1


def test_for_subscribers_each_by_itself() -> None:
    clients = Connected()
    held = HeldPublishers(2, clients)
    for asked in (HoldPublisher("a", 7, True), HoldPublisher("a", 8, False), HoldPublisher("impatient", 7, False)):
        held.hold(asked)
    assert clients.held == [("a", (2, 7), True), ("a", (2, 8), False), ("impatient", (2, 7), False)]
    held.release(ReleasePublisher("a", 7, 1.5))
    held.release(ReleasePublisher("a", 7, 1.5))
    held.release(ReleasePublisher("impatient", 7, 1.5))
    assert clients.released == [("a", (2, 7), 1.5)]
    held.lost()
    held.lost()
    assert clients.released[1:] == [("a", (2, 8), 0.0)]
    assert not len(held)
