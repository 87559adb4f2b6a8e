"""The routes of one shard, with stand-ins for the others."""

from collections.abc import Callable
from typing import Any

from tests.broker.session.test_durable import committer_of
from tests.broker.test_pubsub import Member
from tests.store.clocks import clock_at
from trunkline.broker.alarms import Alarms
from trunkline.broker.links.frames import LinkRoute, Word
from trunkline.broker.metrics import Metrics
from trunkline.broker.shards.bursts import Forwarded
from trunkline.broker.shards.outbox import Unsent, unsent
from trunkline.broker.shards.place import ShardPlace
from trunkline.broker.shards.routing import ShardPubSub
from trunkline.config.config import Config
from trunkline.hooks import Hooks
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.versions import Version
from trunkline.router import Options, RetainedStore, Router
from trunkline.store.memory import MemoryEngine

CALENDAR = 1000.0


class Other:
    """Another shard, to which everything goes, and from which nothing comes."""

    online, durable, owner = True, False, None

    def __init__(self, number: int) -> None:
        self.number = number
        self.client_id = f"shard {number}"
        self.is_up = True
        self.has_too_much = False
        self.missed: dict[str, bool] = {}
        self.routes: dict[str, LinkRoute] = {}
        self.got: list[Forwarded] = []
        #: Of these, those that were to be kept.
        self.kept: list[Forwarded] = []
        self.resent: list[tuple[int, bytes]] = []
        #: Whoever waits, and for what.
        self.waiting: list[tuple[str, Callable[[], None]]] = []
        self.numbers: set[int] = set()
        #: What sessions here want.
        self.told: list[str] = []
        self.said: list[Word] = []

    def forward(self, forwarded: Forwarded, *, is_kept: bool = False) -> bool:
        self.got.append(forwarded)
        if is_kept:
            self.kept.append(forwarded)
        return True

    def resend(self, number: int, burst: bytes) -> None:
        self.resent.append((number, burst))

    def until_safe(self, action: Callable[[], None]) -> None:
        self.waiting.append(("safe", action))

    def until_there(self, action: Callable[[], None]) -> None:
        self.waiting.append(("there", action))

    def say(self, word: Word) -> None:
        self.said.append(word)

    def is_new(self, number: int) -> bool:
        is_new = number not in self.numbers
        self.numbers.add(number)
        return is_new

    def set_route(self, filter: str, route: LinkRoute | None) -> None:
        self.told.append(filter)

    def acknowledge(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, action in waiting:
            action()


class Stream:
    """It takes so many messages."""

    receiver = "a stream"

    def __init__(self, room: int) -> None:
        self._room = room
        self.messages = list[Message]()

    def refusal(self, publication: Publication) -> str:
        return "full" if len(self.messages) + publication.count > self._room else ""

    def take(self, publication: Publication, sequence: int) -> None:
        self.messages += publication.messages


class Routes:
    """Of the shard 0."""

    def __init__(self, others: int = 2, *, durable: bool = True, **settings: Any) -> None:
        self.engine = MemoryEngine()
        committer, self.turns, _ = committer_of(self.engine)
        self.committer = committer if durable else None
        self.hooks = Hooks()
        config = Config.model_validate(settings)
        alarms = Alarms(self.hooks, lambda: 0.0)
        place = ShardPlace(0, 1 + others, 1, 0.0, _alone)
        self.pubsub = ShardPubSub(
            Router(),
            RetainedStore(),
            Metrics(),
            alarms,
            self.hooks,
            config,
            self.committer,
            place=place,
            scheduler=self.turns,  # type: ignore[arg-type]
            clock=clock_at(CALENDAR),
        )
        self.others = [Other(1 + number) for number in range(others)]
        self.pubsub.peers.update({each.number: each for each in self.others})  # type: ignore[misc]

    def want(self, other: Other, filter: str, route: LinkRoute | None = LinkRoute(2)) -> None:  # noqa: B008
        if route is None:
            del other.routes[filter]
        else:
            other.routes[filter] = route
        self.pubsub.routes_changed(other, {filter: route}, is_whole=True)  # type: ignore[arg-type]

    def subscribe(self, filter: str, *, qos: int = 1, online: bool = True, durable: bool = False) -> Member:
        member = Member(f"{filter} {self.pubsub.router.subscriptions}")
        member.subscriber.online, member.subscriber.durable = online, durable
        self.pubsub.router.subscribe(member.subscriber, filter, Options(qos=qos))
        return member

    def take(self, publication: Any, **about: Any) -> list[Any]:
        """It comes from the first of the others. Returns what it waits for."""
        return self.pubsub.take(self.others[0], Forwarded(publication, **about))  # type: ignore[arg-type]

    @property
    def retained(self) -> dict[str, int]:
        """The versions of all topics."""
        return {kept.message.topic: kept.version for kept in self.pubsub.retained}

    @property
    def unsent(self) -> Unsent:
        """What the next life finds."""
        assert self.committer is not None
        self.committer.after_commit(lambda: None)
        self.turns.end()
        return unsent(self.engine)


async def _alone(_: object) -> None:
    """Nobody joins it."""


def burst(topics: str, first_byte: int = 0x33) -> PublishBatch:
    """PUBLISH packets, one of each of these topics of one letter, retained and at QoS 1 unless it says otherwise."""
    packets = [bytes([first_byte, 6, 0, 1]) + topic.encode() + b"\0\1x" for topic in topics]
    starts = [8 * number for number in range(len(topics))]
    numbers = [1 + number for number in range(len(topics))]
    batch = PublishBatch([*topics], first_byte, Version.V311, b"".join(packets), starts, numbers)
    batch.guid = 1
    return batch
