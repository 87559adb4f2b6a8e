"""The pubsub layer of one shard among several.

What is published here goes to the sessions here, as in a node of one shard, and to each shard that wants it, once. What
comes from another shard goes to the sessions here alone. Retained messages go to all shards, and each keeps the newest
of a topic: a version is greater than all that its shard has seen before.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby, repeat
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio

from trunkline.broker.links.link import CREDIT
from trunkline.broker.node_use import SUBSCRIPTIONS
from trunkline.broker.pubsub import NO_SHARES, PubSub, parts_of
from trunkline.broker.shards.bursts import Forwarded, pieces
from trunkline.broker.shards.common_use import CommonUse
from trunkline.broker.shards.outbox import LinkOutbox
from trunkline.broker.shards.shares import NOBODY, SharePicker, all_offline
from trunkline.broker.shards.stream_refusals import StreamRefusals
from trunkline.broker.shards.versions import STEP, Versions
from trunkline.broker.shards.wants import Wants, wanted_at
from trunkline.broker.shards.words import Words
from trunkline.mqtt.message import Message
from trunkline.mqtt.session.ledger import all_of, one_after_other
from trunkline.mqtt.topics import SHARE_PREFIX, parse_shared
from trunkline.router import Options, Router
from trunkline.router.retained import is_own
from trunkline.router.target import Receivers, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from trunkline.actors import Scheduler
    from trunkline.broker.links.frames import LinkRoute
    from trunkline.broker.pubsub import Own, Shares
    from trunkline.broker.routes import Grant, Subscriber
    from trunkline.broker.shards.feed_words import FeedMessage
    from trunkline.broker.shards.outbox import Unsent
    from trunkline.broker.shards.peer import Peer
    from trunkline.broker.shards.place import ShardPlace
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.reasons import Reason
    from trunkline.mqtt.session.ledger import Wait
    from trunkline.router.shared import Group
    from trunkline.store.clock import StoreClock

_ALL: Final = Options(qos=2)
ALL: Final = "#"
#: Groups whose turns are remembered.
MAX_PICKERS: Final = 10_000


class ShardPubSub(PubSub):
    def __init__(
        self,
        *args: Any,
        place: ShardPlace,
        scheduler: Scheduler,
        clock: StoreClock,
    ) -> None:
        super().__init__(*args)
        self.makes_wait = True
        self.number = number = place.number
        #: By number.
        self.peers: dict[int, Peer] = {}
        self.words = Words(place.number, self.peers, scheduler)
        self.use = CommonUse(self.words, scheduler, place.count)
        #: Where other shards want what.
        self._away: Router[Peer] = Router()
        self.wants = Wants(self.router, scheduler, self.peers.values, durable=self.committer is not None)
        self.route_watchers += [self.wants.change, self._count_subscriptions]
        #: Shards that have told what they want, and whether all have.
        self._known: set[int] = set()
        self.are_known = trio.Event()
        self._pickers: dict[str, SharePicker] = {}
        self._random = Random(number)
        self._versions = Versions(number, self.retained)
        self._clock = clock
        self.outbox = None if self.committer is None else LinkOutbox(self.committer)
        #: Of the message that is retained next.
        self._version = 0
        #: The last publication that went to other shards, and until when each of them is safe.
        self._forwarded: tuple[Publication | None, list[Wait]] = (None, [])
        #: Whether what is published is kept until it is there.
        self._is_kept = False
        #: The same of a publication that is being published.
        self._sending: list[Wait] = []
        self.late_refusals = self._late = StreamRefusals(
            self.words, lambda message: self.refusal_of(message, self.router.match(message.topic))
        )
        #: Told of a message that a stream here has refused, and of one for a subscription to a stream.
        self.on_refused: Callable[[Message, str], None] = _nobody
        self.on_fed: Callable[[FeedMessage, Message], None] = _nobody

    # What is published here

    def publish(
        self,
        publication: Publication,
        now: float,
        origin: Subscriber | None = None,
        own: Own | None = None,
        route: Route[Subscriber] | None = None,
    ) -> int:
        outer, self._sending = (self._sending, self._version, self._bound_for), []
        self._bound_for = wanted_at(map(self._away.match, publication.topics)) if self._hooks.message_routed else ()
        if publication.retain:
            self._version = version = self._versions.next(now + self._clock.calendar, publication.count)
        else:
            version = 0
        try:
            reached = super().publish(publication, now, origin, own, route)
            if reached or not self.refused(publication):
                reached += self._forward(publication, version)
        finally:  # a hook may publish something while something else is published
            self._forwarded = (publication, self._sending)
            self._sending, self._version, self._bound_for = outer
        return reached

    def _forward(self, publication: Publication, version: int) -> int:
        """Returns the number of shards where it goes to somebody."""
        shared = len(self._sending)
        if version:
            if is_own(publication.topic):
                return shared
            for peer in self.peers.values():
                self._send(peer, Forwarded(publication, version=version, shared=self._shared(peer, publication)))
            for number, message in enumerate(publication.messages):
                self._spread(message.topic, version + number * STEP)
        reached = 0
        for part, route in parts_of(publication, self._away.match):
            for target in route.targets:
                if not version:
                    self._send(target.subscriber, Forwarded(part, shared=self._shared(target.subscriber, part)))
            for group in route.groups:
                filter = group.shared_filter
                if self.router.group(filter) is None:  # else its members here were considered, too
                    self._share_out(filter, part)
            reached = max(reached, len(route.targets) + len(route.groups))
        if self._late.concern(publication):
            self._late.sent(publication, self._sending)
        return shared + reached

    def _shared(self, peer: Peer, publication: Publication) -> Sequence[str] | None:
        """The shared filters that members are picked of, if the peer may have members of others."""
        if peer.number in self._known:
            return None
        routes = [match(topic) for topic in publication.topics for match in (self.router.match, self._away.match)]
        return tuple({group.shared_filter: None for route in routes for group in route.groups})

    def _send(self, peer: Peer, forwarded: Forwarded, *, is_kept: bool = False) -> None:
        is_kept = self.committer is not None and (is_kept or self._is_kept or forwarded.publication.qos == 2)
        for piece in pieces(forwarded, CREDIT, STEP):
            if not peer.forward(piece, is_kept=is_kept):
                continue
            wait: Wait = peer.until_safe
            if is_kept and self.committer:  # a retained message is to be everywhere, and leaves when it is stored
                stored = self.committer.after_commit
                wait = one_after_other(stored, peer.until_safe) if forwarded.version else stored
            self._sending.append(wait)
            if is_kept and peer.has_too_much:
                self._sending.append(peer.until_there)

    def _spread(self, topic: str, version: int) -> None:
        """A retained message is on its way to all others."""
        if self.outbox is not None and self.committer is not None and self.peers:
            self.outbox.spread(topic, version)
            if not any(topic in peer.missed for peer in self.peers.values()):
                there = all_of([peer.until_there for peer in self.peers.values()])
                # one that is kept leaves behind the commit: until then nothing is on its way
                one_after_other(self.committer.after_commit, there)(partial(self._has_spread, topic, version))

    def _has_spread(self, topic: str, version: int) -> None:
        assert self.outbox is not None
        if self.outbox.has_spread(topic, version):
            message, newest = self._versions.newest(topic)
            if newest > version and not message.payload:  # whoever begins anew has forgotten that it was deleted
                self._send_silently(message, newest)

    def begin(self, unsent: Unsent) -> None:
        """What is stored is restored. Tell the others what sessions here want, and send what this shard had not sent
        when it ended."""
        self.wants.begin()
        self._versions.restored()
        if not self.peers:
            self.are_known.set()
        for each in self.peers.values():  # until it has told what it wants
            self._away.subscribe(each, ALL, _ALL)
        for shard, number, burst in unsent.bursts:
            peer = self.peers.get(shard)
            if peer is not None:
                peer.resend(number, burst)
        for topic, version in unsent.versions.items():
            kept = self.retained.kept(topic)
            if kept is None or kept.version == version:
                message = Message(topic, b"", retain=True) if kept is None else kept.message
                self._send_silently(message, version)

    def _send_silently(self, message: Message, version: int) -> None:
        self._versions.is_newest(message, version)
        for peer in self.peers.values():
            peer.forward(Forwarded(message, version=version, is_silent=True))
        self._spread(message.topic, version)

    def waits(self, publication: Publication, wait: Wait | None) -> Wait | None:
        """What calls back when other shards have stored a publication, too, that was just published."""
        forwarded, safe = self._forwarded
        if forwarded is not publication or not safe:
            return wait
        if not (publication.qos or publication.retain):
            return wait
        waits = [*dict.fromkeys(safe)]
        return all_of(waits if wait is None else [*waits, wait])

    def publish_will(self, will: Message, now: float, origin: Subscriber, own: Own) -> int:
        self._is_kept = will.qos > 0
        try:
            return super().publish_will(will, now, origin, own)
        finally:
            self._is_kept = False

    def is_wanted(self, topic: str, *, by_streams: bool = True) -> bool:
        return super().is_wanted(topic, by_streams=by_streams) or bool(self._away.match(topic))

    # Shared groups

    def shares(self, group: Group[Subscriber], publication: Publication) -> Shares:
        filter = group.shared_filter
        if not any(filter in peer.routes for peer in self.peers.values()):
            return super().shares(group, publication)
        return self._share_out(filter, publication)

    def _share_out(
        self, filter: str, publication: Publication, tried: tuple[int, ...] = (), *, is_kept: bool = False
    ) -> Shares:
        """Send what other shards get, and return what members here do. Shards where a member was looked for in vain are
        tried again only if there is no other."""
        members = {
            peer.number: route if peer.is_up else all_offline(route)
            for peer in self.peers.values()
            if (route := peer.routes.get(filter)) is not None
        }
        group, here = self.router.group(filter), self.wants.of(filter)
        if here is not None:
            members[self.number] = here
        members = {number: route for number, route in members.items() if number not in tried} or members
        if here is None or not here.online:
            tried = (*tried, self.number)
        picker = self._picker(filter)
        topics, numbers = publication.topics, dict[int, list[int]]()
        for number, topic in enumerate(topics if len(topics) > 1 else repeat(topics[0], publication.count)):
            numbers.setdefault(picker.pick(members, publication.publisher, topic), []).append(number)
        some = numbers.pop(self.number, None)
        numbers.pop(NOBODY, None)
        for number, others in numbers.items():
            for part in _runs(publication, others):
                self._send(self.peers[number], Forwarded(part, filter, tried), is_kept=is_kept)
        return NO_SHARES if some is None or group is None else super().shares(group, publication.select(some))

    def hand_on(self, message: Message, group: Group[Subscriber], member: Subscriber) -> bool:
        filter = group.shared_filter
        others = [route for peer in self.peers.values() if (route := peer.routes.get(filter)) is not None]
        is_here = any(each.subscriber.online for each in group if each.subscriber is not member)
        if (is_here or not any(route.online for route in others)) and super().hand_on(message, group, member):
            return True
        if others:
            outer, self._sending = self._sending, []
            self._share_out(filter, message, (self.number,), is_kept=member.durable)
            self._sending = outer
        return bool(others)

    def _picker(self, filter: str) -> SharePicker:
        picker = self._pickers.get(filter)
        if picker is None:
            name, _ = parse_shared(filter) or ("", "")
            strategy = self.router.strategies.get(name, self.router.strategy)
            picker = self._pickers[filter] = SharePicker(strategy, self._random)
            if len(self._pickers) > MAX_PICKERS:
                del self._pickers[next(iter(self._pickers))]
        return picker

    # What comes from another shard

    def take(self, peer: Peer, forwarded: Forwarded) -> list[Wait]:
        publication, share, tried, version, number, is_silent, shared, feed = forwarded
        if feed is not None:
            self.on_fed(feed, publication.messages[0])
            return []
        if number and not peer.is_new(number):
            return []
        if share:
            return self._take_share(publication, share, tried)
        if is_silent:
            (message,) = publication.messages
            is_new = version > self._versions.of(message.topic)
            self._version = version
            self.retain(message, trio.current_time())
            if is_new and version % STEP == self.number:  # this shard has forgotten it, and told not all others perhaps
                self._send_silently(message, version)
            return self._until_stored(is_stored=True)
        is_stored, waits = version > 0, self._until_stored(is_stored=False)
        for part, route in self.routed(publication):  # it was one there, and its topics may have other routes here
            groups = route.groups
            if groups:  # the other shard has picked their members
                route = _without_groups(route)
            # before backlogs have it: a record of its own would be made for the members, which theirs does not name
            for group in groups if shared is not None else ():
                if (filter := group.shared_filter) not in (shared or ()):  # it did not know of them
                    waits += self._take_share(part, filter, ())
            self._version, version = version, version + part.count * STEP
            self._publish_here(peer, part, route)
            is_stored = is_stored or part.stored is not None
        return [*self._until_stored(is_stored), *waits]

    def _publish_here(self, peer: Peer, part: Publication, route: Route[Subscriber]) -> None:
        """What a stream refuses, subscribers get all the same: others have it already."""
        now = trio.current_time()
        if super().publish(part, now, route=route) or not (why := self.refused(part)):
            return
        if part.count > 1:  # perhaps not all of it
            for message in part.messages:
                self._publish_here(peer, message, route)
            return
        super().publish(part, now, route=route.beside_receivers())
        (message,) = part.messages
        self._late.tell(peer, message, why)
        self.on_refused(message, why)

    def _take_share(self, publication: Publication, filter: str, tried: tuple[int, ...]) -> list[Wait]:
        """Its members here may all have gone meanwhile."""
        group, here = self.router.group(filter), self.wants.of(filter)
        outer, self._sending = self._sending, []
        is_durable = self.committer is not None and group is not None and group.durable > 0
        if is_durable and self.committer is not None and (publication.qos or self._upgrade_qos):
            self.committer.publications.routed(publication)  # for all members
        if group is not None and here is not None and here.online:
            shares = super().shares(group, publication)
        else:
            before = tuple([number for number in tried if number != self.number])
            shares = self._share_out(filter, publication, before, is_kept=publication.qos > 0)
        sending, self._sending = self._sending, outer
        is_stored = bool(sending)
        for part, member in shares:
            is_stored = is_stored or part.stored is not None
            member.subscriber.cast((part, member))
        return self._until_stored(is_stored)

    def _until_stored(self, is_stored: bool) -> list[Wait]:
        return [self.committer.after_commit] if is_stored and self.committer is not None else []

    def routes_changed(self, peer: Peer, changes: Mapping[str, LinkRoute | None], *, is_whole: bool) -> None:
        if is_whole and peer.number not in self._known:
            self._known.add(peer.number)
            if ALL not in peer.routes:
                self._away.unsubscribe(peer, ALL)
            if len(self._known) == len(self.peers):
                self.are_known.set()
        for filter, route in changes.items():
            if route is None:
                self._away.unsubscribe(peer, filter)
            else:
                self._away.subscribe(peer, filter, _ALL)
            self._late.route(peer, filter, in_stream=route is not None and route.in_stream)
            self.notify_watchers(filter)

    def begins_anew(self, peer: Peer) -> None:
        """It may have ended before it had stored what it retained last."""
        for message, version in self._versions.recent_of(peer.number):
            peer.forward(Forwarded(message, version=version, is_silent=True))

    def send_newest(self, peer: Peer, topics: Mapping[str, bool]) -> None:
        for topic, is_silent in topics.items():
            message, version = self._versions.newest(topic)
            if version and not message.payload:  # an older message may be on its way to others that have forgotten it
                self._send_silently(message, version)
            elif version:
                is_silent = is_silent or version % STEP != self.number  # another shard has sent it there itself
                peer.forward(Forwarded(message, version=version, is_silent=is_silent))
                self._spread(topic, version)

    # Subscriptions

    def when_routed(self, action: Callable[[], None]) -> None:
        self.wants.when_told(action)

    def make_routes(
        self,
        subscriber: Subscriber,
        wanted: list[tuple[str, Options]],
        done: Callable[[list[Grant | Reason]], None],
    ) -> None:
        super().make_routes(subscriber, wanted, lambda granted: self.wants.when_told(partial(done, granted)))

    def _count_subscriptions(self, _: str) -> None:
        self.use.has(SUBSCRIPTIONS, self.router.subscriptions, self.max_subscriptions)

    def presence_changed(self, filters: Iterable[str]) -> None:
        for filter in filters:
            if filter.startswith(SHARE_PREFIX):
                self.wants.change(filter)

    # Retained messages

    def retained_version(self, topic: str) -> int:
        return self._versions.of(topic)

    def delete_retained(self, topics: Iterable[str]) -> None:
        topics = list(topics)
        super().delete_retained(topics)
        for topic in topics:
            if not is_own(topic):
                version = self._versions.next(trio.current_time() + self._clock.calendar, 1)
                self._send_silently(Message(topic, b"", retain=True), version)

    def retain(self, message: Message, now: float, version: int = 0) -> None:
        version, self._version = self._version, self._version + STEP
        if is_own(message.topic):
            super().retain(message, now)
        elif self._versions.is_newest(message, version):
            super().retain(message, now, version)


def _nobody(*what: object) -> None:
    """Is told."""


def _runs(publication: Publication, numbers: Sequence[int]) -> Iterator[Publication]:
    """The messages with these numbers, those in a row together: where it is stored, they are found by their place."""
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        some = [number for _, number in run]
        yield publication.part(some[0], some[-1] + 1)


def _without_groups(route: Route[Subscriber]) -> Route[Subscriber]:
    return Route(Receivers((*route.targets, *route.behind)), (), route.sinks)
