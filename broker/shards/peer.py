"""One other shard: what is published here for its sessions goes there, a burst a turn, and what comes from there is
published here.

It stands on an end of a link, which decides what is sent when. A connection is whatever moves bytes: it calls
`connected`, `received` and `lost`, each within a turn of the run queue.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import trio

from trunkline.broker.links.decoder import FrameDecoder
from trunkline.broker.links.frames import HoldPublisher, ReleasePublisher, Said, ShardAnswer
from trunkline.broker.links.link import BEAT, BurstCame, LinkState, LinkUp, RoutesChanged
from trunkline.broker.shards.bursts import Forwarded, decoded, encode_burst
from trunkline.broker.shards.held import HeldPublishers
from trunkline.mqtt.session.ledger import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.committer import Committer
    from trunkline.broker.links.frames import LinkRoute, Word
    from trunkline.broker.links.link import Event, LinkEnd
    from trunkline.broker.shards.feed_words import FeedMessage
    from trunkline.broker.shards.held import Publishers
    from trunkline.broker.shards.outbox import LinkOutbox
    from trunkline.broker.shards.places import LinkPlaces
    from trunkline.broker.shards.words import Words
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.session.ledger import Wait

#: Bytes of memory, of publications, in one burst, unless a single one is larger.
MAX_BURST: Final = 1 << 18
#: Bytes that may wait for the other shard before nobody is told any more that what follows is safe, and before what
#: nobody waits for is refused.
MAX_WAITING: Final = 1 << 26
#: Retained messages of one turn that a shard is sent after it had no room for them.
NEWEST_AT_ONCE: Final = 1000

_logger = logging.getLogger("trunkline.shards")


class Side(Protocol):
    """The routes of the peer's own shard."""

    def take(self, peer: Peer, forwarded: Forwarded) -> list[Wait]:
        """Publish what came from another shard. Returns what it has to wait for, before that is told that it came."""
        ...

    def begins_anew(self, peer: Peer) -> None:
        """It is another process of this shard."""
        ...

    def send_newest(self, peer: Peer, topics: Mapping[str, bool]) -> None:
        """Forward the retained messages of these topics, or those of their deletion: silently, where that is said."""
        ...

    def routes_changed(self, peer: Peer, changes: Mapping[str, LinkRoute | None], *, is_whole: bool) -> None:
        """`is_whole`: all that it wants is known now."""
        ...


class PeerStore(NamedTuple):
    committer: Committer
    places: LinkPlaces
    outbox: LinkOutbox


class SentBurst:
    """Who waits for a burst."""

    __slots__ = ("acknowledged", "safe", "unsafe")

    def __init__(self, acknowledged: list[Callable[[], None]], safe: list[Callable[[], None]]) -> None:
        self.acknowledged = acknowledged
        self.safe = safe
        #: What is to be stored here if the other shard cannot be reached.
        self.unsafe: list[Forwarded] = []

    @property
    def is_waited_for(self) -> bool:
        return bool(self.acknowledged or self.safe)

    def call(self, actions: list[Callable[[], None]]) -> None:
        """Each once."""
        for action in actions:
            action()
        actions.clear()


class Peer:
    """A subscriber of the routes that lead to it, too."""

    owner: Ref[Any] | None = None
    online = True

    __slots__ = (
        "_acknowledged",
        "_armed",
        "_close",
        "_decoder",
        "_epoch",
        "_held",
        "_items",
        "_safe",
        "_scheduler",
        "_send",
        "_side",
        "_store",
        "_timer",
        "_unsafe",
        "_unstored",
        "_weight",
        "_words",
        "client_id",
        "durable",
        "is_ending",
        "link",
        "missed",
        "number",
        "refused",
        "routes",
    )

    def __init__(
        self,
        link: LinkEnd,
        scheduler: Scheduler,
        side: Side,
        publishers: Publishers,
        words: Words,
        epoch: float,
        store: PeerStore | None = None,
    ) -> None:
        """`epoch` is what has to be added to node time for a time that both shards know."""
        self.number = link.peer
        self.client_id = f"shard {link.peer}"
        self.durable = False
        self.link = link
        #: The node ends, and its links with it.
        self.is_ending = False
        #: What its sessions want.
        self.routes: dict[str, LinkRoute] = {}
        #: Publications that found no room.
        self.refused = 0
        #: Topics whose retained message did not, and is sent when there is some; and whether subscribers there have it.
        self.missed: dict[str, bool] = {}
        self._scheduler = scheduler
        self._side = side
        self._epoch = epoch
        self._store = store
        self._words = words
        self._decoder = FrameDecoder()
        self._send: Callable[[bytes], None] | None = None
        self._close: Callable[[], None] | None = None
        self._timer = scheduler.call_at(inf, self._is_due)
        self._armed = False
        #: Of this turn: what leaves, and its bytes; what is called when the other shard has it; and what is called when
        #: it cannot be lost any more.
        self._items: list[Forwarded] = []
        self._weight = 0
        self._acknowledged: list[Callable[[], None]] = []
        self._safe: list[Callable[[], None]] = []
        #: Bursts that can be lost with this shard, and that somebody waits for.
        self._unsafe: dict[SentBurst, None] = {}
        self._held = HeldPublishers(link.peer, publishers)
        #: Bursts from there that wait for the store.
        self._unstored = 0

    # To the other shard

    @property
    def is_full(self) -> bool:
        return self._weight + max(self.link.weight, self.link.ahead) >= self.link.credit

    @property
    def has_too_much(self) -> bool:
        """Whether publishers have to wait until what they publish now is there."""
        return self._weight + self.link.weight >= MAX_WAITING

    def forward(self, forwarded: Forwarded, *, is_kept: bool = False) -> bool:
        """It `is_kept` until it is there, also over the end of this shard: its publisher does not send it again. It
        leaves when that is stored: until then the next life of this shard would not know that it has left. Returns
        False if there is no room for it."""
        publication = forwarded.publication
        if publication.qos:
            has_room = self._store is not None or self.is_up or not self.has_too_much
        else:  # nobody waits, and of retained messages the newest of a topic will do
            has_room = not self.has_too_much and (self.is_up or not forwarded.version)
        if not has_room:
            self.refused += publication.count
            if forwarded.version:
                for topic in publication.topics:
                    self.missed[topic] = forwarded.is_silent and self.missed.get(topic, True)
            return False
        if forwarded.version and self.missed:  # this one is newer
            for topic in publication.topics:
                self.missed.pop(topic, None)
        if self.is_full and self.is_up:
            self._held.for_room(publication.publisher)
        if is_kept and self._store is not None:
            committer = self._store.committer
            forwarded = forwarded._replace(number=committer.publications.next_number())
            self._store.outbox.keep(self.number, forwarded.number, encode_burst([forwarded], self._epoch))
            committer.after_commit(partial(self._append, forwarded))
        else:
            self._append(forwarded)
        return True

    def _append(self, forwarded: Forwarded) -> None:
        if forwarded.number:
            self._acknowledged.append(partial(self._sent, forwarded.number))
        self._items.append(forwarded)
        self._weight += forwarded.publication.weight
        self._arm()

    def feed(self, message: Message, about: FeedMessage) -> None:
        """A message for a subscription to a stream, which is lost with the connection."""
        self._append(Forwarded(message, feed=about))

    def is_new(self, number: int) -> bool:
        """Whether a publication from there with this number has not come before."""
        return self._store is None or self._store.places.is_new(self.number, number)

    def resend(self, number: int, burst: bytes) -> None:
        """What this shard's life before has kept."""
        for forwarded in decoded(burst, self._epoch, self._scheduler):
            self._append(forwarded)
        self.until_there(partial(self._sent, number))

    def until_there(self, action: Callable[[], None]) -> None:
        """Call back when the other shard has what was forwarded in this turn, stored where it is to be."""
        self._acknowledged.append(action)
        self._arm()

    def until_safe(self, action: Callable[[], None]) -> None:
        """As `until_there`; while the other shard is down, when it is stored here until it is there."""
        self._safe.append(action)
        self._arm()

    def _sent(self, number: int) -> None:
        if self._store is not None:
            self._store.outbox.sent(self.number, number)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._scheduler.at_end(self)

    def end_turn(self) -> None:
        self._armed = False
        if self._misses_some:
            some = dict(islice(self.missed.items(), NEWEST_AT_ONCE))
            for topic in some:
                del self.missed[topic]
            self._side.send_newest(self, some)
            self._armed = False
        if self._items or self._acknowledged or self._safe:
            self._publish()
        if self._unsafe and not self.is_up:
            self._make_safe()
        if self._send is not None:
            now = trio.current_time()
            output = self.link.take_output(now)
            if output:
                self._send(output)
            has_more = self.link.has_more or self._misses_some
            self._timer.restart_at(now if has_more else self.link.next_due)
        if not self.is_full or not self.is_up:
            self._held.has_room()

    @property
    def _misses_some(self) -> bool:
        """And may be sent it."""
        return bool(self.missed) and self.is_up and not self.is_full

    def _publish(self) -> None:
        items, last = self._items, SentBurst(self._acknowledged, self._safe)
        if last.safe:
            last.unsafe = [item for item in items if item.publication.qos and not item.number]
        self._items, self._acknowledged, self._safe, self._weight = [], [], [], 0
        burst, weight = list[Any](), 0
        for item in items:
            more = item.publication.weight
            if burst and weight + more > MAX_BURST:
                self._publish_burst(burst, weight, SentBurst([], []))
                burst, weight = [], 0
            burst.append(item)
            weight += more
        self._publish_burst(burst, weight, last)

    def _publish_burst(self, burst: list[Forwarded], weight: int, sent: SentBurst) -> None:
        data = encode_burst(burst, self._epoch)
        is_kept = sent.is_waited_for or any(item.publication.qos or item.version for item in burst)
        stored = partial(self._is_there, sent) if is_kept else None
        self.link.publish(data, stored, overhead=max(0, weight - len(data)))
        if sent.safe:
            self._unsafe[sent] = None

    def _is_there(self, sent: SentBurst) -> None:
        self._unsafe.pop(sent, None)
        sent.call(sent.acknowledged)
        sent.call(sent.safe)

    def _make_safe(self) -> None:
        """The other shard is down. What is too much to be kept has to wait for it."""
        if self._store is not None and self.link.weight > MAX_WAITING:
            return
        unsafe, self._unsafe = self._unsafe, {}
        for sent in unsafe:
            if self._store is None:
                sent.call(sent.safe)
            else:
                committer = self._store.committer
                if sent.unsafe:
                    number = committer.publications.next_number()
                    self._store.outbox.keep(self.number, number, encode_burst(sent.unsafe, self._epoch))
                    sent.acknowledged.append(partial(self._sent, number))
                committer.after_commit(partial(sent.call, sent.safe))

    def _is_due(self) -> None:
        if self.link.is_silent(self._scheduler.now):
            self._fail("it says nothing")
        else:
            self._armed = False  # whatever an error has left
            self._arm()

    def say(self, word: Word) -> None:
        """It is lost if there is no connection, or that is lost."""
        self.link.say(word)
        self._arm()

    # Routes

    def set_route(self, filter: str, route: LinkRoute | None) -> None:
        """What sessions here want."""
        self.link.set_route(filter, route)
        self._arm()

    def when_routed(self, action: Callable[[], None]) -> None:
        """Call back when the other shard uses the routes as they are now."""
        self.link.when_routed(action)

    # Its connections

    @property
    def is_up(self) -> bool:
        return self.link.state is LinkState.UP

    def connected(self, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """There is a connection; one that there was is given up. `send` never waits, and both may be called at once."""
        if (former := self._close) is not None:
            self.lost()
            former()
        self._send, self._close = send, close
        self._decoder = FrameDecoder()
        self.link.connect(now := trio.current_time())
        self._timer.restart_at(now + BEAT)  # if an error keeps the end of this turn from setting it
        self._arm()

    def received(self, data: bytes) -> None:
        for event in self.link.receive(self._decoder.feed(data), trio.current_time()):
            self._happened(event)
        error = self.link.error or self._decoder.error
        if error is None:
            self._arm()
        else:
            self._fail(str(error))

    def lost(self) -> None:
        """The connection is gone."""
        was_up = self.is_up
        self._send = self._close = None
        self._timer.cancel()
        self.link.lose()
        if was_up:
            level = logging.INFO if self.is_ending else logging.WARNING
            _logger.log(level, "the link to worker %d is down", self.number)
            self._words.has_gone(self.number)
        self._held.has_room()
        self._held.lost()
        self._arm()

    def _fail(self, why: str) -> None:
        _logger.error("the link to worker %d is given up: %s", self.number, why)
        close = self._close
        self.lost()
        if close is not None:
            close()

    # From the other shard

    def _happened(self, event: Event) -> None:
        match event:
            case BurstCame():
                self._take(event)
            case RoutesChanged(number, changes, is_whole):
                for filter, route in changes.items():
                    if route is None:
                        self.routes.pop(filter, None)
                    else:
                        self.routes[filter] = route
                self._side.routes_changed(self, changes, is_whole=is_whole)
                self.link.routed(number)
            case HoldPublisher():
                self._held.hold(event)
            case ReleasePublisher():
                self._held.release(event)
            case Said() | ShardAnswer():
                self._words.heard(self.number, event)
            case LinkUp(is_new):
                if is_new:
                    self._side.begins_anew(self)
                _logger.info("the link to worker %d is up", self.number)
                self._words.has_come(self.number)

    def _take(self, burst: BurstCame) -> None:
        waits = list[Any]()
        for forwarded in decoded(burst.data, self._epoch, self._scheduler):
            try:
                waits += self._side.take(self, forwarded)
            except Exception as error:  # noqa: BLE001 - the others are not to be lost with it
                self._scheduler.blame(None, self._side.take, error)
        self.link.worked_off(burst.weight)
        if self._store is not None and (waits or self._unstored):
            waits.append(partial(self._store.places.reached, self.number, burst.term, burst.number))
        if waits:
            self._unstored += 1
            all_of(list(dict.fromkeys(waits)))(partial(self._stored, burst.term, burst.number))
        else:
            self.link.applied(burst.term, burst.number)

    def _stored(self, term: int, number: int) -> None:
        self._unstored -= 1
        self.link.applied(term, number)
        self._arm()
