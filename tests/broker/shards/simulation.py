"""Shards of a node in a world in which a seed decides what happens: links and clients come and go, disks are full, and
shards are killed at any moment. Clients keep a ledger, and in the end nothing that was acknowledged may be missing.

    python -m tests.broker.shards.simulation 0 10000      # the long form: seeds from 0 to 9,999
    python -m tests.broker.shards.simulation 4711         # one seed, and what happened
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations, count
from math import inf
from random import Random
from time import perf_counter
from typing import Any
from unittest.mock import patch

import trio
from trio.testing import MockClock

from tests.broker.shards.agenda import Agenda, SimulatedDisk, deterministic
from tests.broker.shards.simulated_clients import Client, Line, Publisher, Subscriber
from tests.broker.shards.simulated_ledger import Ledger, Message, Subscription, Terms
from tests.broker.shards.simulated_links import SimulatedCable
from tests.broker.shards.simulated_shards import Life, Temper
from tests.broker.shards.simulated_streams import STREAMED, Reader, StreamLedger
from trunkline.broker.shards import away_feeds

STEPS = 160
#: Seconds between two steps, on average.
PACE = 0.04
#: Seconds after which a link that is well has told all routes.
ROUTED = 2.5
#: Seconds until a member is picked, at most, where there is no trouble.
ON_ITS_WAY = 0.5
#: Seconds that everything takes at most to come to rest.
PATIENCE = 120.0

PLAIN, RETAINED, SHARED, WILLS = ("t/0", "t/1", "t/2"), ("r/0", "r/1"), ("s/0", "s/1"), ("w/0",)

# What is not there yet. Each flag that becomes True makes more of what the clients see count.

#: A shard that begins anew knows what the others' durable sessions want before it acknowledges anything.
ROUTES_SURVIVE = True
#: A message at QoS 2 comes to other shards, once, though its publisher's is killed.
OUTBOX = True
#: Retained messages are alike everywhere, though the publisher's shard was killed.
RESYNC = True
#: A shard gets from others what it has published, and was killed before it stored it, though they were killed, too.
RETAINED_RETURN = True
#: A deletion that nobody was told of holds everywhere or nowhere, though its shard was killed before it stored it, and
#: the others, which have forgotten it, were killed, too.
DELETIONS_RETURN = False


class World:
    def __init__(self, seed: int, nursery: trio.Nursery, log: Callable[[str], None]) -> None:
        self.random = random = Random(seed)
        self.agenda = Agenda()
        self.ledger = Ledger()
        self.temper = Temper.of(random)
        self.counts = Counter[str]()
        self._nursery = nursery
        self._log = log
        self._moments = count(1)
        self.disks = [SimulatedDisk() for _ in range(random.choice((2, 2, 3, 3, 4, 5)))]
        self.terms: Terms = dict.fromkeys(range(len(self.disks)), 0)
        #: Those that can be reached by others, and those that serve clients.
        self.linked: dict[int, Life] = {}
        self.lives: dict[int, Life] = {}
        self.cables: dict[frozenset[int], SimulatedCable] = {}
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        #: Subscribers by what they want.
        self._filters: dict[Client, tuple[str, ...]] = {}
        self._make_clients()
        self.stream = StreamLedger(self)
        self._is_settling = False
        #: Times of the last trouble of disks and shards.
        self._last_trouble = -inf

    def _make_clients(self) -> None:
        random, shards = self.random, len(self.disks)
        for number in range(random.randrange(2, 5)):
            durable = random.random() < 0.6
            self.publishers.append(Publisher(self, f"p{number}", random.randrange(shards), durable=durable))
        for number in range(random.randrange(3, 7)):
            reader = Subscriber(self, f"r{number}", random.randrange(shards), durable=random.random() < 0.6)
            self._filters[reader] = random.choice(
                (
                    PLAIN,
                    RETAINED,
                    (*PLAIN, *RETAINED),
                    ("t/+",),
                    ("r/+", "w/0"),
                    ("t/0", "w/0"),
                    ("s/+",),
                    ("s/0", "t/1"),
                    ("q/+",),
                )
            )
            self.subscribers.append(reader)
        for number in range(random.choice((0, 2, 3, 4))):
            member = Subscriber(self, f"m{number}", random.randrange(shards), durable=True)
            self._filters[member] = (random.choice(("$share/g/s/0", "$share/h/s/+")),)
            self.subscribers.append(member)

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.subscribers, *self.stream.readers]

    def moment(self) -> int:
        """Greater than any before."""
        return next(self._moments)

    def note(self, text: str) -> None:
        self._log(f"{self.agenda.now:8.3f} {text}")

    # Shards

    def begin(self, number: int) -> None:
        self.terms[number] = max(self.terms.values()) + 1
        self._nursery.start_soon(Life(self, number, self.terms[number]).run)

    def joined(self, life: Life) -> None:
        self.note(f"shard {life.number} begins its life {life.term}")
        self.linked[life.number] = life
        for number in self.linked:
            if number != life.number:
                self.dial(frozenset((number, life.number)))

    def began(self, life: Life) -> None:
        self.note(f"shard {life.number} serves")
        self.lives[life.number] = life

    def died(self, life: Life) -> None:
        self.note(f"shard {life.number} is killed")
        self.counts["kills"] += 1
        self._last_trouble = self.agenda.now
        self.linked.pop(life.number, None)
        self.lives.pop(life.number, None)
        for pair, cable in list(self.cables.items()):
            if life.number in pair:
                cable.cut(dropping=self.random.random() < 0.3)
        for each in self.ledger.subscriptions:
            if each.client.shard == life.number and not each.client.durable:
                each.has_ended = True
        for client in self.clients:
            if client.line is not None and client.line.life is life:
                line = client.line
                self.agenda.after(self.random.random() * 0.5, partial(client.gone, line))
        self.agenda.after(
            0.05 + self.random.random() * self.random.choice((0.2, 0.2, 3.0, 9.0)), partial(self._restart, life)
        )

    def _restart(self, life: Life) -> None:
        if life.has_ended.is_set():
            self.begin(life.number)
        else:
            self.agenda.after(0.05, partial(self._restart, life))

    def crashed(self, life: Life) -> None:
        crashes = life.node.scheduler.crashes
        if crashes:
            self.ledger.fault(f"shard {life.number}: {dict(crashes)}")

    # Links

    def dial(self, pair: frozenset[int]) -> None:
        cable = self.cables.get(pair)
        if (cable is None or cable.is_cut) and all(number in self.linked for number in pair):
            ends = [self.linked[number] for number in sorted(pair)]
            self.random.shuffle(ends)
            redial = lambda: self.agenda.after(self.random.random() * 0.5, partial(self.dial, pair))
            self.cables[pair] = SimulatedCable(ends[0], ends[1], self.agenda, self.random, redial)

    def _healthy_since(self, one: int, other: int) -> float:
        """The link of two shards; infinite, if it is not up."""
        cable = self.cables.get(frozenset((one, other)))
        return inf if cable is None else cable.healthy_since

    # What clients say and hear

    def new_will(self, client: Client) -> Message:
        name = f"{client.name}.will{self.moment()}"
        will = Message(
            name, client.name, 0, "w/0", self.random.choice((1, 2)), retain=False, shard=client.shard, is_will=True
        )
        self.ledger.messages[name] = will
        return will

    def sent(self, message: Message) -> None:
        kind = ", which deletes it" if message.deletes else ", retained" * message.retain
        self.note(f"{message.publisher} sends {message.name} on {message.topic} at QoS {message.qos}{kind}")
        if not message.sends:
            message.sent, message.sent_at = self.moment(), self.agenda.now
            message.sent_terms = dict(self.terms)
        message.last_terms = dict(self.terms)
        message.sends += 1
        if message.qos == 2 and not message.is_will:
            return  # it is routed with its PUBREL
        self._route(message)
        if not message.qos:
            self._expect_soon(message)

    def _route(self, message: Message) -> None:
        """A shard hands it to those that it knows of."""
        self._note_routes()
        matching = [each for each in self.ledger.subscriptions if each.is_active and each.matches(message.topic)]
        message.narrow([each for each in matching if self._is_routed(each, message.shard)])

    def releasing(self, message: Message) -> None:
        message.sent_terms = message.last_terms = dict(self.terms)

    def released(self, message: Message) -> bool:
        """PUBREL is sent. Returns whether another life of the shard has got it already."""
        self.note(f"{message.publisher} sends PUBREL of {message.name}")
        self._route(message)
        return not OUTBOX and message.sent_terms[message.shard] != self.terms[message.shard]

    def acked(self, message: Message) -> None:
        self.note(f"{message.publisher} knows that {message.name} is stored")
        message.acked, message.acked_at = self.moment(), self.agenda.now
        if self._well_since() + ROUTED <= message.sent_at:
            self._note_members(message)
        self.counts[f"acknowledged at QoS {message.qos}"] += 1

    def granted(self, asked: Subscription) -> None:
        self.note(f"{asked.client.name} has subscribed to {asked.filter}")
        asked.granted, asked.granted_at = self.moment(), self.agenda.now
        home = asked.client.shard
        if self._well_since() + ROUTED <= asked.sent_at:
            self._expect_retained(asked)
        for number, life in self.lives.items():
            if number == home or self._healthy_since(home, number) + ROUTED <= asked.sent_at:
                asked.routed[number] = life.term

    def _well_since(self) -> float:
        """Since when there is no trouble."""
        if len(self.lives) < len(self.disks):
            return inf
        return max(self._last_trouble, *[self._healthy_since(*pair) for pair in combinations(self.lives, 2)])

    def _note_members(self, message: Message) -> None:
        for each in self.ledger.subscriptions:
            client, since = each.client, message.sent_at - 1
            if each.group and each.is_active and each.matches(message.topic) and each.granted_at < since:
                kept = message.online if client.is_online else message.offline
                if client.since < since:
                    kept.setdefault(each.group, []).append(client)
        self.counts["shared beside offline members"] += bool(message.online and message.offline)

    def _check_member(self, client: Subscriber, message: Message) -> None:
        """Nobody who is offline gets it while somebody is online. One who came while it was on its way may."""
        if client.since < message.sent_at + ON_ITS_WAY:
            return
        for group, offline in message.offline.items():
            online = message.online.get(group)
            if client in offline and online:
                others = [each for each in self.subscribers if each is not client and group in each.subscriptions]
                if not any(each.has_got(message) for each in others):
                    self.ledger.fault(f"{client.name} of {group} was offline and gets {message.name}")

    def found_retained(self, client: Subscriber, message: Message) -> None:
        """It comes with a subscription. A newer one may not have been there before."""
        self.note(f"{client.name} finds {message.name}")
        asked = [each for each in client.subscriptions.values() if each.matches(message.topic)]
        since = min([each.sent for each in asked], default=0)
        for newer in self._retained_before(message.topic, since, client.shard):
            if message.is_surely_older(newer):
                self.ledger.fault(f"{client.name} finds {message.name} on {message.topic}, older than {newer.name}")

    def _retained_before(self, topic: str, moment: int, shard: int) -> list[Message]:
        """Those that everybody was to know at that moment, at this shard."""
        return [
            each
            for each in self.ledger.messages.values()
            if each.topic == topic
            and each.retain
            and 0 < each.acked < moment
            and (each.shard == shard or self._healthy_since(each.shard, shard) + ROUTED <= self.agenda.now)
        ]

    def _expect_retained(self, asked: Subscription) -> None:
        for topic in filter(asked.matches, RETAINED):
            before = self._retained_before(topic, asked.sent, asked.client.shard)
            about = [
                each for each in self.ledger.messages.values() if each.topic == topic and each.retain and each.sent
            ]
            rivals = [each for each in about if not any(each.is_surely_older(other) for other in before)]
            if before and not any(each.deletes for each in rivals):
                self.agenda.after(1.5, partial(self._check_retained_came, asked, topic, rivals, asked.client.line))

    def _check_retained_came(self, asked: Subscription, topic: str, rivals: list[Message], line: Line | None) -> None:
        client = asked.client
        if not asked.is_active or client.line is not line or self._last_trouble + 10 > self.agenda.now:
            return
        self.counts["retained messages expected"] += 1
        came = [each for moment, each in client.retained if moment > asked.sent and each.topic == topic]
        live = [each.message for each in client.deliveries if each.moment > asked.sent and each.message.topic == topic]
        if not came and not live:
            self.ledger.fault(f"{client.name} finds nothing on {topic}, and should {[each.name for each in rivals]}")

    def delivered(self, client: Subscriber, message: Message) -> None:
        self.note(f"{client.name} gets {message.name}")
        self._check_member(client, message)
        self.counts["delivered"] += 1
        self.counts["to another shard"] += client.shard != message.shard

    # Who knows of whom

    def _note_routes(self) -> None:
        now = self.agenda.now
        for each in self.ledger.subscriptions:
            if each.is_active:
                home = each.client.shard
                for number, life in self.lives.items():
                    if number == home or max(self._healthy_since(home, number), each.granted_at) + ROUTED <= now:
                        each.routed[number] = life.term

    def _is_routed(self, subscription: Subscription, shard: int) -> bool:
        term = subscription.routed.get(shard)
        return term is not None and (ROUTES_SURVIVE or shard == subscription.client.shard or term == self.terms[shard])

    def _expect_soon(self, message: Message) -> None:
        """At QoS 0 too, as long as nothing happens."""
        now = self.agenda.now
        for each in message.expected or ():
            home, line = each.client.shard, each.client.line
            well_since = 0.0 if home == message.shard else self._healthy_since(home, message.shard)
            if each.client.is_online and not each.group and well_since + ROUTED <= now:
                check = partial(self._check_soon, message, each, line, well_since, now)
                self.agenda.after(1.5, check)

    def _check_soon(
        self, message: Message, each: Subscription, line: Line | None, well_since: float, sent_at: float
    ) -> None:
        home = each.client.shard
        is_well = home == message.shard or self._healthy_since(home, message.shard) == well_since
        is_quiet = self._last_trouble + 10 < sent_at
        if is_well and is_quiet and each.client.line is line and each.is_active:
            self.counts["checked at QoS 0"] += 1
            if not each.client.has_got(message):
                self.ledger.fault(f"{each.client.name} does not get {message.name} at QoS 0, though all is well")

    # Steps

    def step(self) -> None:
        random, temper = self.random, self.temper
        self._note_routes()
        if random.random() < temper.kills and self.lives:
            self._kill()
        if random.random() < temper.cuts and self.cables:
            self.counts["cuts"] += 1
            cable = self._some_cable()
            self.note(f"cut: {cable}")
            cable.cut(dropping=random.random() < 0.5)
        if random.random() < temper.stalls and self.cables:
            self.counts["stalls"] += 1
            cable, seconds = self._some_cable(), random.choice((0.5, 2.0, 6.0)) * random.random()
            self.note(f"stalls for {seconds:.1f} s: {cable}")
            cable.slow(seconds) if random.random() < 0.3 else cable.stall(seconds, both=random.random() < 0.5)
        if random.random() < temper.full:
            self._fill()
        self._move(random.choice(self.clients))
        publisher = random.choice(self.publishers)
        if publisher.is_online and random.random() < 0.7:
            topic = random.choice((*PLAIN, *RETAINED, *SHARED, *STREAMED))
            qos, retain = random.choice((0, 1, 1, 2)), topic in RETAINED and random.random() < 0.7
            for _ in range(random.choice((1, 1, 1, 2, 5))):
                publisher.publish(topic, qos, retain=retain, deletes=retain and random.random() < 0.2)
                if random.random() < 0.4:
                    topic = random.choice(RETAINED if topic in RETAINED else (*PLAIN, *SHARED, *STREAMED))
                if random.random() < 0.1:
                    qos = random.choice((0, 1, 1, 2))

    def _kill(self) -> None:
        life = self.random.choice(list(self.lives.values()))
        if self.random.random() < 0.3:
            life.die()
        else:
            life.store.cut_in, life.store.applied = self.random.randrange(3), self.random.random() < 0.5

    def _some_cable(self) -> SimulatedCable:
        return self.random.choice(list(self.cables.values()))

    def _fill(self) -> None:
        disk = self.random.choice(self.disks)
        disk.room = self.random.choice((0, 100, 1000))
        self.note(f"disk {self.disks.index(disk)} is full")
        self.counts["full disks"] += 1
        self._last_trouble = inf
        self.agenda.after(self.random.random() * 5, partial(self._free, disk))

    def _free(self, disk: SimulatedDisk) -> None:
        disk.room = inf
        self.note(f"disk {self.disks.index(disk)} has room")
        if all(each.room == inf for each in self.disks):
            self._last_trouble = self.agenda.now + 10  # a refused commit is tried again in a while

    def _move(self, client: Client) -> None:
        random = self.random
        if client.shard not in self.lives:
            return
        if client.line is None:
            if random.random() < 0.5:
                client.connect()
        elif client.is_online and random.random() < self.temper.leaves:
            random.choice((client.leave, client.disconnect, client.connect))()
        if isinstance(client, Subscriber) and client.is_online and random.random() < 0.1 + self.temper.subscribes:
            client.change() if isinstance(client, Reader) else self._subscribe(client)

    def _subscribe(self, client: Subscriber) -> None:
        filter = self.random.choice(self._filters[client])
        if filter not in client.subscriptions:
            client.subscribe(filter, self.random.choice((1, 2) if "$" in filter else (0, 1, 2, 2)))
        elif self.random.random() < 0.3 and client.subscriptions[filter].granted and "$" not in filter:
            client.unsubscribe(filter)

    # The whole

    async def run(self) -> None:
        self.note(f"{self.temper}")
        for client in self.clients:
            self.note(f"{client.name} is at home at {client.shard}{', durable' * client.durable}")
        for number in range(len(self.disks)):
            self.begin(number)
        await self.until(lambda: len(self.lives) == len(self.disks))
        for client in self.clients:
            if self.random.random() < 0.8:
                client.connect()
        await self.agenda.run_until(self.agenda.now + 0.5)
        for client in self.subscribers:
            if client.is_online and self.random.random() < 0.8:
                self._subscribe(client)
        await self.agenda.run_until(self.agenda.now + self.random.choice((0.2, 3.5)))
        for _ in range(STEPS):
            self.step()
            pause = self.random.expovariate(1 / PACE)
            await self.agenda.run_until(self.agenda.now + (pause if self.random.random() < 0.97 else 60 * pause))
        await self._settle()
        self._check()

    async def until(self, is_reached: Callable[[], bool]) -> None:
        end = self.agenda.now + PATIENCE
        while not is_reached():
            if self.agenda.now > end:
                self.ledger.fault("it does not come to rest: " + ", ".join(self._restless()))
                return
            await self.agenda.run_until(self.agenda.now + 0.25)

    async def _settle(self) -> None:
        """No more trouble: everything comes where it belongs."""
        self.note("no more trouble")
        for disk in self.disks:
            disk.room = inf
        for life in self.lives.values():
            life.store.cut_in = -1
        for cable in self.cables.values():
            cable.heal()
        self.temper.lazy = 0.0
        await self.agenda.run_until(self.agenda.now + 1.0)  # clients of a killed shard learn that it is gone
        await self.until(self._is_at_rest)
        await self.agenda.run_until(self.agenda.now + 3.0)
        await self.stream.settle()
        await self.until(self._is_at_rest)  # a link that was silent for long is given up when the trouble is over

    def _is_at_rest(self) -> bool:
        for client in self.clients:
            if client.line is None and client.durable and client.shard in self.lives:
                client.connect()
        return next(self._restless(), None) is None

    def _restless(self) -> Iterator[str]:
        """What has not come to its end."""
        if missing := set(range(len(self.disks))) - set(self.lives):
            yield f"{missing} do not live"
        for client in self.clients:
            if client.durable and not client.is_online:
                yield f"{client.name} is offline"
        for publisher in self.publishers:
            if publisher.open:
                yield f"{publisher.name} waits for {[each.name for each in publisher.open.values()]}"
        for life in self.lives.values():
            yield from self._kept_by(life)

    def _kept_by(self, life: Life) -> Iterator[str]:
        committer = life.node.services.committer
        assert committer is not None
        if committer.waiting:
            yield f"shard {life.number}: {committer.waiting} wait for the store"
        for peer in life.pubsub.peers.values():
            told = peer.link._told
            kept: dict[str, Any] = {
                "bytes": peer.link.weight,
                "held publishers": len(peer._held),
                "bursts that are not stored": peer._unstored,
                "publications and who waits for them": len(peer._items) + len(peer._acknowledged) + len(peer._safe),
                "bursts that can be lost": len(peer._unsafe),
                "SUBACKs": len(told._told_waiting) + len(told._untold_waiting),
                "links that are down": not peer.is_up,
            }
            for what, number in kept.items():
                if number:
                    yield f"shard {life.number} has {number} {what} of shard {peer.number}"

    # Afterwards

    def _check(self) -> None:
        self.ledger.check(self.subscribers, self.terms)
        self.stream.check()
        self._check_retained()
        for one, other in combinations(self.lives.values(), 2):
            for near, far in ((one, other), (other, one)):
                if near.pubsub.peers[far.number].routes != far.pubsub.wants._told:
                    self.ledger.fault(f"shard {near.number} has other routes of {far.number} than that has")
        for life in self.lives.values():
            for filter, route in life.pubsub.wants._told.items():
                if life.pubsub.wants.of(filter) != route:
                    self.ledger.fault(f"shard {life.number} has told {route} of {filter}")
            self.crashed(life)

    def _check_retained(self) -> None:
        if self.counts["kills"] and not RESYNC:
            return
        for topic in RETAINED:
            found = {
                life.number: message.payload.decode()
                for life in self.lives.values()
                if (message := life.node.retained.get(topic, self.agenda.now)) is not None
            }
            if not found or (len(found) == len(self.lives) and len(set(found.values())) == 1):
                continue
            versions = {self.lives[number].node.retained.kept(topic).version: found[number] for number in found}
            newest = [self.ledger.messages[versions[max(versions)]]]
            if len(found) < len(self.lives):  # or it was deleted
                newest += [each for each in self.ledger.messages.values() if each.deletes and each.topic == topic]
            is_excused = any(
                not each.acked and each.sent and each.sent_terms[each.shard] != self.terms[each.shard]
                for each in newest
            )
            returns = DELETIONS_RETURN if any(each.deletes for each in newest) else RETAINED_RETURN
            if returns or not is_excused:
                self.ledger.fault(f"of {topic} different messages are retained: {found}")


class _Errors(logging.Handler):
    """What no broker should log."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.ERROR)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._ledger.fault(f"logged: {self.format(record)}")


@contextmanager
def _watching(ledger: Ledger) -> Iterator[None]:
    logger, handler = logging.getLogger("trunkline"), _Errors(ledger)
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(handler)


def run(seed: int, log: Callable[[str], None] = lambda text: None) -> World:
    """Returns the world as it is in the end; `ledger.wrong` says what went wrong."""

    async def main() -> World:
        async with trio.open_nursery() as nursery:
            world = World(seed, nursery, log)
            with _watching(world.ledger):
                await world.run()
                for life in list(world.lives.values()):
                    life.is_alive, life.store.is_cut = False, True
                    life.is_over.set()
                    await life.has_ended.wait()
            nursery.cancel_scope.cancel()
        return world

    chance = Random(seed)
    with (
        deterministic(seed),
        patch.object(away_feeds, "MAX_MESSAGES", chance.choice((2, 128))),
        patch.object(away_feeds, "MAX_BYTES", chance.choice((300, 1 << 18))),
    ):
        return trio.run(main, clock=MockClock(autojump_threshold=0))


def _main(first: int, last: int) -> int:
    began, total, failed = perf_counter(), Counter[str](), 0
    if first == last:
        world = run(first, print)
        print(*world.ledger.wrong, sep="\n")
        return len(world.ledger.wrong)
    for seed in range(first, last):
        world = run(seed)
        total += world.counts
        if world.ledger.wrong:
            failed += 1
            print(
                f"seed {seed}: {len(world.ledger.wrong)} faults:",
                *[each[:300] for each in world.ledger.wrong[:3]],
                sep="\n    ",
                flush=True,
            )
    print(f"{last - first} seeds in {perf_counter() - began:.0f} s, {failed} failed:", dict(total))
    return failed


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:3]]
    sys.exit(min(_main(numbers[0], numbers[-1]), 1))
