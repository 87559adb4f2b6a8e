"""The parts of a node, put together: each gets what it needs when it is made."""

from __future__ import annotations

import os
import random
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import trio

from trunkline.actors import Scheduler
from trunkline.broker.alarms import Alarms
from trunkline.broker.connection.mqtt import Mqtt
from trunkline.broker.drop_log import say_dropped, say_refused
from trunkline.broker.guid import Guids, node_number
from trunkline.broker.limit_report import LimitReport
from trunkline.broker.log_throttle import LogThrottle
from trunkline.broker.metrics import Metrics
from trunkline.broker.net import poller as polling
from trunkline.broker.net.failure_log import FailureLog
from trunkline.broker.net.listeners import Listeners
from trunkline.broker.net.listening_sockets import open_sockets
from trunkline.broker.net.services import NetServices
from trunkline.broker.node.clients import Clients
from trunkline.broker.node.messages import OwnMessages
from trunkline.broker.node.periodic_tasks import PeriodicTasks, or_default
from trunkline.broker.node.statistics import Statistics
from trunkline.broker.node.supervisors import Supervisors
from trunkline.broker.node.system_clock import EmbeddedClock, MachineClock
from trunkline.broker.password_check import GuessReport
from trunkline.broker.pubsub import PubSub
from trunkline.broker.security import Security
from trunkline.broker.session.access import Access
from trunkline.broker.session.directory import Directory
from trunkline.broker.session.services import Services
from trunkline.config.addresses import NATS, PORTS
from trunkline.hooks.chain import Hooks
from trunkline.plugins.manager import Plugins
from trunkline.plugins.store import PluginStores
from trunkline.router import RetainedStore, Router
from trunkline.store.clock import StoreClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.broker.committer import Committer
    from trunkline.broker.connection.hand_over import Sharing
    from trunkline.broker.message_trace import MessageTrace
    from trunkline.broker.nats.protocol import Nats
    from trunkline.broker.net.protocol import LayerFactory, ProtocolFactory
    from trunkline.broker.node.storing import OpenedStore, Storing
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.security import SecurityFiles
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.feeds import FeedHost
    from trunkline.broker.session.state import Session
    from trunkline.broker.shards.figures import CommonFigures
    from trunkline.broker.shards.place import ShardPlace
    from trunkline.broker.shards.shards import Shards
    from trunkline.broker.stream_keeper import StreamKeeper
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo
    from trunkline.streams.interface import Streams


class Node:
    """One broker in this process. Only modules beside this one know it."""

    def __init__(
        self,
        config: Config,
        hooks: Hooks | None,
        files: SecurityFiles,
        opened: OpenedStore | None,
        layers: Sequence[LayerFactory],
        *,
        standalone: bool,
        place: ShardPlace | None = None,
    ) -> None:
        """`opened` is the store, if there is one; a `standalone` broker has a process of its own. `place` is that of
        this broker among those that are one node together."""
        self.standalone = standalone
        self.place = place
        self.started_at = trio.current_time()
        self.hooks = hooks if hooks is not None else Hooks()
        self.metrics = Metrics()
        self.scheduler = Scheduler(now=trio.current_time())
        self.clock = StoreClock(MachineClock() if standalone else EmbeddedClock(), trio.current_time())
        self.alarms = Alarms(self.hooks, self.wall)
        self.router: Router[Subscriber] = Router()
        self.retained = RetainedStore()
        #: None where everything ends with the process.
        self.storing = None if opened is None else self._storing(config, opened)
        self.plugin_stores = self._plugin_stores(config)
        self.supervisors = Supervisors(
            self.alarms, lambda: self.services.pubsub.new_writer(), lambda: self.plugins.supervisor
        )
        self.services = self._services(config)
        report, use = GuessReport(self.alarms, self.scheduler.call_at), self.services.pubsub.use
        self.security = Security(config, self.hooks, report, use)
        self.security.apply(config, files)
        self.sessions = Directory(self.services, self.supervisors.sessions)
        #: Connections that their layers ended.
        self.failures = FailureLog(self.metrics, self.scheduler.call_at)
        busy = self.busy_poll
        self.poller = polling.Poller(self.scheduler, self.metrics, busy_poll=busy) if polling.available() else None
        self.net = self._net(layers)
        self.listeners = self._listeners()
        self.shards = None if place is None else self._shards(place, opened)
        #: What is said to other shards.
        self.words = None if self.shards is None else self.shards.words
        #: There is a keeper of streams.
        self.has_streams = trio.Event()
        self.clients = Clients(self.services, self.sessions)
        self.messages = OwnMessages(self.services)
        self.plugins = Plugins(self.hooks, self)
        self.statistics = self._statistics()
        self.periodic = self._periodic()

    # Steps

    def _storing(self, config: Config, opened: OpenedStore) -> Storing:
        from trunkline.broker.node.storing import Storing

        return Storing(opened, config, self.metrics, self.scheduler, self.alarms, self.clock, self.router)

    def _plugin_stores(self, config: Config) -> PluginStores:
        committer = None if self.storing is None else self.storing.committer
        return PluginStores(config.store.max_plugin_bytes, self._stored_now, committer)

    def _services(self, config: Config) -> Services:
        committer = None if self.storing is None else self.storing.committer
        call_at = self.scheduler.call_at
        return Services(
            config=config,
            hooks=self.hooks,
            metrics=self.metrics,
            drops=LogThrottle(call_at, say_dropped),
            refusals=LogThrottle(call_at, say_refused),
            limit_report=LimitReport(self.metrics, call_at),
            alarms=self.alarms,
            access=Access(self.hooks, self.metrics, config),
            pubsub=self._pubsub(config, committer),
            guids=Guids(node_number(config.node.name), random.getrandbits(32)),
            clock=self.clock,
            open_session=lambda channel: self.sessions.open(channel),
            hold_publisher=self._hold_publisher,
            release_publisher=self._release_publisher,
            start_task=self.supervisors.start_task,
            client_of=self._client_of,
            committer=committer,
            backlogs=None if self.storing is None else self.storing.backlogs,
            streams=lambda: self.stream_keeper,
            find_feeds=lambda: self.feeds,
        )

    def _pubsub(self, config: Config, committer: Committer | None) -> PubSub:
        given = self.router, self.retained, self.metrics, self.alarms, self.hooks, config, committer
        if self.place is None:
            return PubSub(*given)
        # imported here: most nodes are one shard
        from trunkline.broker.shards.routing import ShardPubSub

        return ShardPubSub(*given, place=self.place, scheduler=self.scheduler, clock=self.clock)

    def _shards(self, place: ShardPlace, opened: OpenedStore | None) -> Shards:
        from trunkline.broker.shards.routing import ShardPubSub
        from trunkline.broker.shards.shards import Shards
        from trunkline.broker.shards.stored_links import NO_LINKS

        pubsub, services = self.services.pubsub, self.services
        assert isinstance(pubsub, ShardPubSub)
        stored = NO_LINKS if opened is None or opened.links is None else opened.links
        pubsub.on_refused = services.refused_by_stream
        committer, take = services.committer, self.listeners.take
        return Shards(place, pubsub, services, committer, stored, self.net, take, services.streams, self._session_of)

    def _session_of(self, client_id: str) -> Session | None:
        actor = self.sessions.get(client_id)
        return None if actor is None else actor.session

    def _net(self, layers: Sequence[LayerFactory]) -> NetServices:
        supervisors = self.supervisors
        return NetServices(
            self.scheduler,
            self.poller,
            supervisors.connections,
            self.metrics,
            self.alarms,
            self.services.limit_report,
            supervisors.start_background,
            supervisors.start_task,
            self.wall,
            layers,
            open_sockets if self.place is None else self.place.open_sockets,
            self.services.pubsub.use,
        )

    def _listeners(self) -> Listeners:
        mqtt = Mqtt(self.services, self.sessions, self.failures, self._sharing())
        spoken = dict.fromkeys(PORTS, mqtt.at) | dict.fromkeys(NATS, self._nats(mqtt))
        return Listeners(self.net, self.config, spoken, mqtt.at)

    def _sharing(self) -> Sharing | None:
        """Of connections with other shards."""
        if self.place is None or self.place.hand_over is None or self.poller is None:
            return None
        from trunkline.broker.connection.hand_over import Sharing

        return Sharing(self.place.hand_over, self.poller)

    def _nats(self, mqtt: Mqtt) -> ProtocolFactory:
        """Imported and made for the first listener that speaks it."""
        hand_over = None if self.place is None else self.place.hand_over
        draw = None if hand_over is None else hand_over.draw

        @cache
        def nats() -> Nats:
            from trunkline.broker.nats.protocol import Nats

            return Nats(self.services, self.sessions, self.failures, mqtt.limits_of, self.scheduler, draw)

        return lambda config, settings: nats().at(config, settings)

    def _statistics(self) -> Statistics:
        common: CommonFigures | None = None
        if self.place is not None and self.words is not None:
            from trunkline.broker.shards.figures import CommonFigures

            common = CommonFigures(self.words, self.place.number, self.place.term, self.place.epoch)
        return Statistics(
            self.services,
            self.sessions,
            self.scheduler,
            lambda: self.listeners.connections,
            self.plugins.figures,
            self.plugins.gauges,
            lambda: 0 if self.storing is None else self.storing.size,
            common,
        )

    def _periodic(self) -> PeriodicTasks:
        return PeriodicTasks(
            self.supervisors.root,
            self.services,
            self.sessions,
            self.scheduler,
            self.statistics,
            lambda: self.listeners.connections,
            self.plugins.plugin_of,
            partial(self.messages.publish, retain=True),
            self.supervisors.start_background,
            standalone=self.standalone,
        )

    # What the parts ask of the whole

    @property
    def config(self) -> Config:
        """As it is now."""
        return self.services.config

    @property
    def busy_poll(self) -> float:
        processes = 1 if self.place is None else self.place.count
        is_useful = self.standalone and (os.cpu_count() or 1) > processes
        return or_default(self.config.node.busy_poll, polling.BUSY_POLL, is_useful)

    @property
    def process_name(self) -> str:
        """The node's, and that of this process if it has several."""
        name = self.config.node.name
        return name if self.place is None else self.place.named(name)

    @property
    def is_first(self) -> bool:
        """Whether the streams and the plugins of the node are here."""
        return self.place is None or self.place.is_first

    def wall(self) -> float:
        """The time in seconds since the epoch."""
        return trio.current_time() + self.clock.calendar

    def _stored_now(self) -> float:
        return trio.current_time() + self.clock.kept_epoch

    def _hold_publisher(self, client_id: str, holder: object, trusted: bool) -> bool:
        return self.sessions.hold_publisher(client_id, holder, trusted) or (
            self.shards is not None and self.shards.hold_publisher(client_id, holder, trusted)
        )

    def _release_publisher(self, client_id: str, holder: object, in_vain: float) -> None:
        self.sessions.release_publisher(client_id, holder, in_vain)
        if self.shards is not None:
            self.shards.release_publisher(client_id, holder, in_vain)

    def _client_of(self, client_id: str) -> ClientInfo | None:
        session = self.sessions.get(client_id)
        return None if session is None else session.client

    @cached_property
    def trace(self) -> MessageTrace:
        """Made when it is started, or asked for."""
        from trunkline.broker.message_trace import MessageTrace

        return MessageTrace(self.hooks, self.wall, self.config.trace)

    @property
    def has_trace(self) -> bool:
        return "trace" in vars(self)

    @cached_property
    def stream_keeper(self) -> StreamKeeper:
        """Made for the first stream, where no store holds some: few brokers in tests have streams."""
        from trunkline.broker.stream_keeper import StreamKeeper

        self.has_streams.set()
        keeper = StreamKeeper(self.services, _subject_of)
        if not self.is_first:
            keeper.registry.refusal = "the streams of this node are at worker 0"
        return keeper

    @cached_property
    def feeds(self) -> FeedHost[SessionContext]:
        """Where sessions get what streams have for them."""
        if self.shards is not None and self.shards.away_streams is not None:
            return self.shards.away_streams
        # imported here: few clients subscribe to streams
        from trunkline.broker.session.stream_feed import OwnStreams

        return OwnStreams(lambda: self.stream_keeper)

    @property
    def streams(self) -> Streams:
        return self.stream_keeper.streams

    async def figures(self) -> dict[str, int]:
        """All counters and gauges of this shard."""
        return await self.statistics.take()

    async def node_figures(self) -> dict[str, int]:
        """Those of the node."""
        return await self.statistics.of_node()


def _subject_of(topic: str) -> str:
    # imported here: few streams publish once more
    from trunkline.broker.nats.mapping import subject_of

    return subject_of(topic)
