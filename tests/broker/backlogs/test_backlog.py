"""A backlog, without a broker around it."""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.broker.session.test_durable import EPOCH, committer_of
from trunkline.broker.backlogs.backlog import Membership
from trunkline.broker.backlogs.backlogs import UNSAID, Backlogs
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS
from trunkline.broker.committer import PIECE
from trunkline.broker.stored_publications import MESSAGES
from trunkline.mqtt.message import Message
from trunkline.router import Router
from trunkline.store import WriteBatch
from trunkline.store.memory import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.store import StoreError


@dataclass(eq=False)
class Place:
    needed: int = 0
    woken: list[Membership] = field(default_factory=list[Membership])
    too_long: int = 0

    def wake(self, membership: Membership) -> None:
        self.woken.append(membership)

    def shorten(self, cut: object) -> None:
        self.too_long += 1


class Noting(MemoryEngine):
    """Knows how many entries there were at most."""

    most = 0

    def commit(self, batch: WriteBatch) -> None:
        super().commit(batch)
        self.most = max(self.most, self.count(ENTRIES))


class Here:
    def __init__(self, max_length: int = 0) -> None:
        self.engine = Noting()
        self.committer, self.turns, self.writer = committer_of(self.engine)
        self.router: Router = Router()
        self.backlogs = Backlogs(self.router, self.committer, max_length)
        self._guid = 0

    def publish(self, topic: str, qos: int = 1) -> Message:
        self._guid += 1
        message = Message(topic, b"", qos, guid=self._guid, timestamp=EPOCH)
        for sink in self.router.match(topic).sinks:
            sink.take(message, self.committer.publications.next_number())
        return message


def test_only_what_comes_later_is_for_a_member() -> None:
    here, place = Here(), Place()
    early = here.backlogs.join("t", place)
    here.publish("t")
    late = here.backlogs.join("t", place)
    here.publish("t")
    assert late.backlog is early.backlog
    assert (early.backlog.total - early.total, late.backlog.total - late.total) == (2, 1)
    assert [len(each.backlog.behind(each.read)) for each in (early, late)] == [2, 1]


def test_messages_of_qos_0_are_not_kept() -> None:
    here = Here()
    member = here.backlogs.join("t", Place())
    here.publish("t", qos=0)
    assert member.backlog.total == 0


def test_what_is_stored_leaves_the_memory() -> None:
    here = Here()
    member = here.backlogs.join("t", Place())
    for _ in range(3):
        here.publish("t")
    assert len(member.backlog.recent) == 3
    here.turns.end()
    assert not member.backlog.recent
    assert (here.engine.count(ENTRIES), here.engine.count(MESSAGES), here.engine.count(FILTERS)) == (3, 3, 1)


def test_what_is_acknowledged_waits_for_the_commit() -> None:
    here = Here()
    here.backlogs.join("t", Place())
    message = here.publish("t")
    done: list[str] = []
    assert message.stored is not None
    here.committer.publications.wait_for(message.stored, lambda: done.append("stored"))
    assert not done
    here.turns.end()
    assert done == ["stored"]


def test_what_is_acknowledged_waits_for_the_commit_when_a_client_goes_meanwhile() -> None:
    here = Here()
    member = here.backlogs.join("t", Place())
    message = here.publish("t")
    done: list[str] = []
    commits: list[Callable[[int, StoreError | None], None]] = []
    here.writer.commit = lambda batches, done: commits.append(done)  # type: ignore[method-assign]
    assert message.stored is not None
    here.committer.publications.wait_for(message.stored, lambda: done.append("stored"))
    here.turns.end()
    member.backlog.unwatch(member)
    here.turns.end()
    assert not done
    commits.pop()(1, None)
    assert done == ["stored"]
    assert not member.backlog.recent


def test_what_is_in_a_later_piece_is_not_stored_with_an_earlier_one() -> None:
    here, told = Here(), list[str]()
    member = here.backlogs.join("t", Place())
    commits: list[Callable[[int, StoreError | None], None]] = []
    here.writer.commit = lambda batches, done: commits.append(done)  # type: ignore[method-assign]
    for name in ("first", "second"):
        message = here.publish("t")
        assert message.stored is not None
        here.committer.publications.wait_for(message.stored, partial(told.append, name))
        here.committer.noted = PIECE + 1
        here.turns.end()
    commits.pop()(1, None)
    here.turns.end()
    assert told == ["first"]
    assert len(member.backlog.recent) == 1
    commits.pop()(1, None)
    assert told == ["first", "second"]


def test_a_member_whose_client_is_there_is_told() -> None:
    here, place = Here(), Place()
    member = here.backlogs.join("t", place)
    member.backlog.watchers[member] = None
    here.publish("t")
    assert place.woken == [member]


def test_without_members_nothing_is_kept() -> None:
    here, place = Here(), Place()
    member = here.backlogs.join("t", place)
    message = here.publish("t")
    here.backlogs.leave(member)
    assert not here.router.match("t").sinks
    here.turns.end()
    assert message.stored is not None
    assert not message.stored.pins
    assert not here.engine.count(ENTRIES)


def test_the_first_entry_that_anybody_needs() -> None:
    here = Here()
    places = [Place(), Place(), Place()]
    members = [here.backlogs.join("t", place) for place in places]
    backlog = members[0].backlog
    for place, needed in zip(places, (30, 10, 20), strict=True):
        place.needed = needed
    assert backlog.find_low() == 10
    places[1].needed = 25
    assert backlog.find_low() == 20
    here.backlogs.leave(members[2])
    assert backlog.find_low() == 25
    here.backlogs.leave(members[0])
    here.backlogs.leave(members[1])
    assert backlog.find_low() == float("inf")


def test_totals_that_are_not_known_stay_so_in_the_store() -> None:
    """Taken for known ones, they would say that more waits than there is, and whole messages be dropped for that."""
    here = Here()
    member = here.backlogs.join("t", Place())
    here.publish("t")
    known = member.to_plain()
    assert known == (member.since, 0, 0)
    for stored, is_exact in ((known, True), (UNSAID, False)):
        for _ in range(2):
            member.restore(*stored[1:])
            assert (member.is_exact, member.total) == (is_exact, 0)
            stored = member.to_plain()
    [recent] = member.backlog.recent
    member.advance(recent.entry)
    assert member.to_plain()[1:] == (1, recent.entry.weight)
