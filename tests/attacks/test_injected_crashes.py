"""A crash at every place that all clients share, and in every actor with mail pending: it ends what it belongs to,
whoever waits hears of it and is served again, and the others' messages flow on.

The places are found in the source, the actor classes among the imported ones, so a new one is covered by itself; one
that the scenario below does not reach fails, as does a class that it does not know how to judge.
"""

import errno
import importlib
import pkgutil
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from wsproto.utilities import ProtocolError

import trunkline
from tests.attacks.crash_sites import FOLDERS, Crash, Injected, Site, sites
from tests.attacks.passed_clients import BY_SOCKET, HERE, IN_MEMORY, Shards, run_out_of_descriptors
from tests.broker.inside import inside
from tests.broker.nats.jetstream.pulled import Puller
from tests.broker.nats.speaking import Speaker
from tests.broker.net import proxied
from tests.conformance import raw
from tests.frames import Frames
from tests.wire import Wire
from trunkline import testing
from trunkline.actors import Actor, Ref, TaskActor
from trunkline.actors.supervisor import Nested
from trunkline.broker.net import poller as polling
from trunkline.broker.net import tls_listeners
from trunkline.broker.node import clients
from trunkline.broker.node.life import NodeFailed
from trunkline.broker.node.parts import Node
from trunkline.broker.node.routing import Routes
from trunkline.broker.watchdog import Watchdog
from trunkline.management.operations.listeners import drain_listener, remove_listener
from trunkline.plugins import Context, PluginError, Settings
from trunkline.streams import StreamConfig

#: Seconds, of a clock that jumps, after which somebody waits in vain.
PATIENCE = 200
#: The layers that a connection can pass, and little time for each.
LISTENERS: list[Any] = [
    "tcp://127.0.0.1:0",
    {"url": "tls://127.0.0.1:0", "name": "tls", "tls": {"handshake_timeout": 3}},
    {
        "url": "ws://127.0.0.1:0",
        "name": "wrapped",
        "proxy_protocol": {"trusted": ["127.0.0.1"], "timeout": 3},
        "websocket": {"upgrade_timeout": 3},
        "rate": {"connection_messages": "10/s"},
    },
    {"url": "nats://127.0.0.1:0", "name": "nats"},
    {"url": "nats+tls://127.0.0.1:0", "name": "late", "tls": {"handshake_timeout": 3}},
    {"url": "tcp://127.0.0.1:0", "name": "shared"},
    {"url": "tcp://127.0.0.1:0", "name": "spare"},
]
#: What an earlier start has left in the store.
STREAM = StreamConfig(name="log", filters=("log/#",), metadata={"_nats": '{"allow_atomic": true}'})
STORED = 20


@pytest.fixture
def clock() -> MockClock:
    """It leaves real sockets a moment before it jumps."""
    return MockClock(autojump_threshold=0.005)


# The scenario


class Closed(Exception):
    """The broker has ended the connection."""


class Client:
    """Does what a client must, and hears what it waits for or that the connection is over."""

    def __init__(self, wire: Wire, acknowledges: bool = True) -> None:
        self.wire = wire
        self._acknowledges = acknowledges
        wire.patience = PATIENCE

    async def ask(self, packet: bytes, *kinds: int) -> raw.Received:
        """Send this and wait for a packet of one of these kinds."""
        await self.send(packet)
        return await self.wait(*kinds)

    async def send(self, packet: bytes) -> None:
        try:
            await self.wire.send(packet)
        except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            raise Closed from None

    async def wait(self, *kinds: int) -> raw.Received:
        while True:
            try:
                packet = await self.wire.receive()
            except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
                raise Closed from None
            if packet.type in kinds:
                return packet
            if packet.type == raw.DISCONNECT:
                raise Closed
            if packet.type == raw.PUBLISH and packet.qos and self._acknowledges:
                await self.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
            elif packet.type == raw.PUBREL & 0xF0:
                await self.send(raw.ack(raw.PUBCOMP, packet.packet_id))

    async def connect(self, client_id: str, **settings: Any) -> None:
        connack = await self.ask(raw.connect(client_id, version=self.wire.version, **settings), raw.CONNACK)
        if connack.reason:
            raise Closed

    async def subscribe(self, *filters: str) -> None:
        requests = [(filter, 2) for filter in filters]
        suback = await self.ask(raw.subscribe(1, *requests, version=self.wire.version), raw.SUBACK)
        assert len(suback.reasons) == len(filters)

    async def publish(self, topic: str, qos: int, payload: bytes = b"x", **more: Any) -> None:
        packet = raw.publish(topic, payload, qos=qos, packet_id=7 if qos else None, version=self.wire.version, **more)
        if qos == 0:
            await self.send(packet)
        else:
            answer = await self.ask(packet, raw.PUBACK, raw.PUBREC)
            if qos == 2 and answer.reason < 0x80:
                await self.ask(raw.ack(raw.PUBREL, 7), raw.PUBCOMP)

    async def ping(self) -> None:
        await self.ask(raw.PINGREQ, raw.PINGRESP[0])


class Plugin:
    """Decides by asking somebody, has a timer, a task and a subscription."""

    def __init__(self, context: Context[Settings]) -> None:
        self._context = context
        context.hooks.add("client.authenticate", self.authenticate)
        context.hooks.add("client.check_acl", self.check_acl)
        context.subscribe("busy/#", self.look)
        self.tick()

    def tick(self) -> None:
        self._context.after(20.0, self.tick)

    async def run(self) -> None:
        await trio.sleep_forever()

    async def authenticate(self, client: Any, password: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def check_acl(self, *_: Any) -> None:
        await trio.lowlevel.checkpoint()

    def look(self, message: Any) -> None: ...


class Scene:
    """A broker with everything in it that can be in one, and clients that come and go."""

    def __init__(self, broker: testing.Broker, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.broker = broker
        self._folder = folder
        self.node = inside(broker.node)
        self._patch = patch
        self._wires: list[Wire] = []

    async def tcp(self, version: int = 5, acknowledges: bool = True) -> Client:
        self._wires.append(await Wire.open(self.broker.host, self.broker.port, version=version))
        return Client(self._wires[-1], acknowledges)

    async def socket(self, name: str = "") -> trio.SocketStream:
        """Connected to the listener of this name, without a word."""
        return await trio.open_tcp_stream(self.broker.host, self.broker.listeners[name].port)

    def client(self, stream: trio.abc.Stream) -> Client:
        self._wires.append(Wire(stream))
        return Client(self._wires[-1])

    async def inside(self, version: int = 5, acknowledges: bool = True) -> Client:
        try:
            self._wires.append(Wire(self.broker.connect(), version=version))
        except RuntimeError:  # the supervisor of connections is being started again
            raise Closed from None
        return Client(self._wires[-1], acknowledges)

    async def bystanders(self) -> tuple[Client, Client]:
        one, two = await self.tcp(), await self.tcp()
        await one.connect("one")
        await two.connect("two")
        await two.subscribe("between/#")
        return one, two

    async def leave(self) -> None:
        for wire in self._wires:
            await wire.abort()

    async def busy(self) -> None:
        """Does all that a client can, and then falls silent."""
        client = await self.tcp()
        will = raw.Will("will/busy", b"gone", 1, properties=raw.will_delay(5))
        await client.connect("busy", keep_alive=10, clean=False, properties=raw.session_expiry(30), will=will)
        await client.subscribe("busy/#", "$share/group/busy/shared")
        for qos in (0, 1, 2):
            await client.publish("busy/own", qos)
            await client.publish("kept/1", qos, retain=True, properties=raw.message_expiry(3))
        await client.send(raw.publish("busy/burst", b"x") * 50)
        await client.send(raw.publish("busy/large", bytes(10_000)))
        await client.ping()
        await client.ask(raw.unsubscribe(2, "busy/#"), raw.UNSUBACK)
        await client.ping()
        with suppress(Closed):
            await client.wait()
        await client.wire.abort()

    async def old(self) -> None:
        """Speaks 3.1.1, through a stream in the process, does not acknowledge what it gets, and comes back for what
        came while it was away."""
        client = await self.inside(4, acknowledges=False)
        await client.connect("old", clean=False)
        await client.subscribe("old/#")
        await client.publish("old/1", 1)
        await trio.sleep(12)
        await client.ping()
        await client.send(raw.disconnect())
        await client.wire.abort()
        publisher, back = await self.tcp(), await self.inside(4)
        await publisher.connect("for old")
        await publisher.publish("old/2", 1)
        await back.connect("old", clean=False)
        await back.ping()
        await trio.sleep(1)
        await back.ping()
        for each in (publisher, back):
            await each.wire.abort()

    async def waited(self) -> None:
        """Comes back for what has been in its queue since before the start."""
        client = await self.tcp()
        await client.connect("waited", clean=False, properties=raw.session_expiry(60))
        await client.ping()
        await trio.sleep(1)
        await client.wire.abort()

    async def slow(self) -> None:
        """Reads, and acknowledges nothing, while another publishes more than it may have waiting."""
        client, publisher = await self.tcp(acknowledges=False), await self.tcp()
        await client.connect("slow", properties=raw.receive_maximum(1))
        await client.subscribe("slow/#")
        await publisher.connect("fast")
        for _ in range(30):
            await publisher.publish("slow/1", 1)
        await client.wire.abort()
        await publisher.wire.abort()

    async def crowd(self) -> None:
        """Several ask for routes at once, and leave."""
        async with trio.open_nursery() as nursery:

            async def come(number: int) -> None:
                client = await self.tcp()
                await client.connect(f"crowd {number}")
                await client.subscribe(f"crowd/{number}", "crowd/+")
                await client.publish("crowd/all", 1)
                await client.ping()
                await client.wire.abort()

            for number in range(4):
                nursery.start_soon(self.served, come, number)

    async def encrypted(self) -> None:
        """Speaks TLS."""
        context = self.broker.client_context()
        client = self.client(trio.SSLStream(await self.socket("tls"), context, server_hostname="localhost"))
        await client.connect("encrypted")
        await client.subscribe("encrypted/#")
        await client.publish("encrypted/1", 1)
        await client.ping()
        await client.wire.abort()

    async def wrapped(self) -> None:
        """Speaks WebSocket behind a load balancer, and publishes more than it may."""
        stream = await self.socket("wrapped")
        try:
            frames = await Frames.over(stream, proxied.v1(("192.0.2.7", 1)))
        except (AssertionError, trio.BrokenResourceError, ProtocolError):
            await trio.aclose_forcefully(stream)
            raise Closed from None
        client = self.client(frames)
        await client.connect("wrapped")
        await client.subscribe("wrapped/#")
        await client.send(raw.publish("wrapped/1", b"x") * 30)
        await client.ping()
        await client.wire.abort()

    async def service(self) -> None:
        """Speaks NATS, and falls silent."""
        publisher = await self.tcp()
        await publisher.connect("for service")
        stream = await self.socket("nats")
        try:
            speaker = await Speaker.over(stream, {})
            for number in range(30):
                await speaker.say(b"SUB service.%d.> %d" % (number, number), b"PUB service.%d.x 0" % number, b"")
                await speaker.said()
                await publisher.publish(f"service/{number}/y", 1)
                await speaker.said()
            await speaker.say(b"UNSUB 1")
            await speaker.rest()
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
            raise Closed from None
        finally:
            await trio.aclose_forcefully(stream)
            await publisher.wire.abort()

    async def worker(self) -> None:
        """Works a stream off by NATS: pulls what is in the store, waits for more, and has it pushed as well."""
        stream = await self.socket("nats")
        try:
            puller = Puller(await Speaker.over(stream, {}))
            await puller.say(b"SUB r.> 1")
            await puller.publish("log.x", b"", Nats_Batch_Id="never complete", Nats_Batch_Sequence="1")
            for name, more in (("pulled", {}), ("pushed", {"deliver_subject": "r.d", "ack_policy": "none"})):
                config = {"durable_name": name, "ack_policy": "explicit", **more}
                said = {"stream_name": "log", "config": config}
                await puller.api(f"CONSUMER.DURABLE.CREATE.log.{name}", said)
            await puller.publish("$JS.API.CONSUMER.MSG.NEXT.log.pulled", {"batch": STORED, "expires": 2 * 10**9}, "r.p")
            for _ in range(2 * STORED):
                if (await puller.got()).status:
                    break
            await puller.publish("$JS.API.CONSUMER.MSG.NEXT.log.pulled", {"batch": 1, "expires": 2 * 10**9}, "r.p")
            while not (await puller.got()).status:
                pass
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            raise Closed from None
        finally:
            await trio.aclose_forcefully(stream)

    async def reader(self) -> None:
        """Reads a stream from its beginning, which is in the store."""
        client = await self.tcp()
        await client.connect("reader")
        start = raw.user_property("from", "earliest")
        await client.ask(raw.subscribe(1, ("$stream/log/log/#", 0), properties=start), raw.SUBACK)
        for _ in range(STORED):
            await client.wait(raw.PUBLISH)
        await client.wire.abort()

    async def passed(self) -> None:
        """Comes by one shard of a node and is served by another, or by the same."""
        if self.node.poller is None:
            return
        path = self._folder / "passage"
        shards = Shards(self.node, "shared", "tcp://127.0.0.1:0", path)
        try:
            with self._patch.context() as patch:
                run_out_of_descriptors(patch, str(path))
                for _ in range(3):
                    for home in (BY_SOCKET, IN_MEMORY, *[HERE] * 10):
                        await self.served(self._one_passed, shards.id(home))
                    await trio.sleep(1)
                    async with trio.open_nursery() as nursery:
                        shards.end()
                        nursery.start_soon(self.served, self._one_passed, shards.id(BY_SOCKET))
                        await trio.sleep(1)
                        shards.begin()
        finally:
            shards.close()

    async def _one_passed(self, client_id: str) -> None:
        client = self.client(await self.socket("shared"))
        await client.connect(client_id)
        await client.publish("passed", 1)
        await client.wire.abort()

    async def silent(self) -> None:
        """Some that begin nothing, or not enough, and are disconnected in time."""
        for name, data in (
            ("tls", b"\x16"),
            ("late", b""),
            ("wrapped", b"PROXY"),
            ("wrapped", proxied.v1(("192.0.2.7", 1))),
        ):
            client = self.client(await self.socket(name))
            await client.send(data)
            with suppress(trio.BrokenResourceError), trio.fail_after(PATIENCE):
                while await client.wire.stream.receive_some():
                    pass
            await client.wire.abort()

    async def spare(self) -> None:
        """Has a listener that is drained and removed. If that fails, it is served as before."""
        for change in (drain_listener, remove_listener):
            client = self.client(await self.socket("spare"))
            await client.connect("spare")
            change(self.broker.node, "spare")
            with suppress(Closed):
                await trio.sleep(1)
                await client.ping()
            await client.wire.abort()
            if change is drain_listener:
                await self.node.listeners.listen(self.node.listeners[-1])

    async def _watch(self, dog: Watchdog, scope: trio.CancelScope) -> None:
        with scope:
            await dog.run()

    async def served(self, script: Callable[..., Awaitable[None]], *args: Any) -> None:
        """A client whose connection ends comes again, and is served then. That somebody waits in vain is no end."""
        for attempt in range(4):
            try:
                await script(*args)
                return
            except Closed:
                assert attempt < 3, f"{script.__name__} is closed again and again"
                await trio.sleep(1)

    async def play(self) -> None:
        node = self.node
        try:
            await node.plugins.enable("probe", factory=Plugin)
        except PluginError:
            await node.plugins.enable("probe", factory=Plugin)
        async with trio.open_nursery() as nursery:
            for script in (
                *(self.busy, self.old, self.slow, self.crowd, self.waited),
                *(
                    self.encrypted,
                    self.wrapped,
                    self.silent,
                    self.spare,
                    self.reader,
                    self.service,
                    self.worker,
                    self.passed,
                ),
            ):
                nursery.start_soon(self.served, script)
            dog = Watchdog(10_000.0, node.scheduler, node.alarms, node.metrics, lambda _: "")
            watching = trio.CancelScope()
            nursery.start_soon(self._watch, dog, watching)
            await trio.sleep(2)
            watching.cancel()
            node.clients.forget_decisions(None)  # the access rules have changed
            report: Any = node.security._report  # pyright: ignore[reportPrivateUsage]
            # passwords are checked in a thread, for which this clock does not wait
            report.refused(next(iter(node.sessions)).client)
            with self._patch.context() as patch:
                accept, errors = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

                def exhausted(sock: socket.socket) -> Any:
                    if errors:
                        raise errors.pop()
                    return accept(sock)

                patch.setattr(socket.socket, "accept", exhausted)
                late = await self.tcp()
                with suppress(Closed):
                    await late.connect("late")
                await late.wire.abort()
        dog._name("somebody", "a line")  # pyright: ignore[reportPrivateUsage]
        dog._answer()  # pyright: ignore[reportPrivateUsage]
        await trio.sleep(
            200
        )  # until the last session has expired, the last will is published, the last drop is told of


def everyone(node: Node) -> set[Ref[Any]]:
    """All clients' actors."""
    return {ref for child in ("sessions", "connections") for ref in below(node, child)}


def below(node: Node, child: str) -> list[Ref[Any]]:
    nested: Any = node.supervisors.root[child]._actor  # pyright: ignore[reportPrivateUsage]
    return list(nested.supervisor) if nested is not None else []


def check_tables(node: Node) -> None:
    """Nobody stands anywhere who is gone."""
    assert all(connection.ref.alive for connection in node.listeners.connections)
    clients = {actor.session.client_id for actor in node.sessions}
    assert all(actor.ref.alive for actor in node.sessions)
    for row in Routes(node.router).subscriptions():
        assert row.client_id in clients or row.client_id.startswith("$plugin/"), row
    poller = node.poller
    if poller is not None:
        watched = poller._polled.values()  # pyright: ignore[reportPrivateUsage]
        assert all(polled.owner is None or polled.owner.alive for polled in watched)


async def live_before(store: dict[str, Any]) -> None:
    """A broker with this store that leaves a stream in it, a session whose client does not come back, and one with a
    queue whose client does."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    threshold, clock.autojump_threshold = clock.autojump_threshold, 0.05  # a thread makes the store meanwhile
    async with testing.broker(history=0, store=store) as broker, Wire(broker.connect()) as wire:
        async with Wire(broker.connect()) as leaving:
            client = Client(leaving)
            await client.connect("waited", clean=False, properties=raw.session_expiry(60))
            await client.subscribe("$share/group/waited")
        await trio.sleep(1)
        broker.publish("waited", b"stored", qos=1)
        await broker.streams.create(STREAM)
        for number in range(STORED):
            broker.publish(f"log/{number}", b"stored", qos=1)
        client = Client(wire)
        await client.connect("dormant", clean=False, properties=raw.session_expiry(20))
        await client.ping()
    clock.autojump_threshold = threshold


@asynccontextmanager
async def scene(folder: Path, patch: pytest.MonkeyPatch, *, cuts: bool = False) -> AsyncGenerator[Scene]:
    """With two bystanders who have nothing to do with what happens, and for whom nothing may change; unless it `cuts`
    them off, and then they can come again."""
    patch.setattr(clients, "NOTIFIED_AT_ONCE", 1)
    patch.setattr(tls_listeners, "CHECKED_EVERY", 60.0)
    settings: dict[str, Any] = {
        "listeners": LISTENERS,
        "sys": {"interval": 10},
        "control": {"path": str(folder / "broker.sock")},
        "session": {
            "retry_interval": 5,
            "max_queue_length": 12,
            "backpressure": 2,
            "max_inflight": 5,
            "expiry_interval": 60,
        },
        "flapping": {"max_takeovers": 0},
        "nats": {"ping_interval": 10, "max_pings": 1},
        "store": {"path": str(folder / "store.db"), "durability": "os"},
    }
    await live_before(settings["store"])
    async with testing.broker(history=0, **settings) as broker:
        here = Scene(broker, patch, folder)
        try:
            one, two = await here.bystanders()
            yield here
            if cuts:
                for client in (one, two):
                    with pytest.raises(Closed):
                        await client.ping()
                one, two = await here.bystanders()
            await one.publish("between/us", 1, b"still here")
            packet = await two.wait(raw.PUBLISH)
            assert packet.payload == b"still here"
            await two.subscribe("between/others")
            await two.ping()
            newcomer = await here.tcp()
            await newcomer.connect("newcomer")
            await newcomer.subscribe("new/#")
        finally:
            with trio.CancelScope(shield=True):
                await here.leave()
        await trio.sleep(1)
        check_tables(here.node)


async def suffer(folder: Path, patch: pytest.MonkeyPatch, arm: Callable[[set[Ref[Any]]], None]) -> None:
    """The scenario, with a crash somewhere in it."""
    async with scene(folder, patch) as here:
        protected = everyone(here.node)
        lasting = {name: here.node.supervisors.root[name] for name in ("tasks", "sessions", "connections")}
        arm(protected)
        await here.play()
        assert all(ref.alive for ref in protected), "a bystander was ended"
        assert lasting == {name: here.node.supervisors.root[name] for name in lasting}, "a supervisor was ended"


# At the places where something is registered

#: What is registered here is the node's heart, or holds it: see "In the broker" in docs/actors.md.
VITAL = {
    Site("broker/node/opening.py", "open_node", "start"),
    Site("broker/node/life.py", "NodeLife.run", "start"),
    Site("broker/node/life.py", "NodeLife._serve", "start"),
}
#: The supervisor of several workers serves no client: it ends, and with it the node, which is started again.
OF_SUPERVISORS = ("management/workers/fleet.py", "management/workers/supervising.py")
#: See `test_crashes_between_shards.py`.
_BETWEEN = ("common_use", "feed_server", "link_sockets", "memory_links", "peer", "wants")
BETWEEN_SHARDS = tuple([f"broker/shards/{name}.py" for name in _BETWEEN])
ELSEWHERE = (*OF_SUPERVISORS, *BETWEEN_SHARDS)


@pytest.mark.parametrize(
    "site", [site for site in sites() if site not in VITAL and site.file not in ELSEWHERE], ids=str
)
async def test_what_is_registered_crashes(
    clock: MockClock, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for polls in (True, False):
        if polls or polling.available():
            with monkeypatch.context() as patch:
                crash = Crash(site)
                crash.install(patch)
                if not polls:
                    patch.setattr(polling, "available", lambda: False)
                await suffer(tmp_path, patch, crash.arm)
            if crash.owner is not None:
                assert not crash.owner.alive
                assert await crash.owner.join() is not None
            if crash.fired or crash.absent:
                return
    pytest.fail("the scenario does not get there: have it do what this is for")


@pytest.mark.parametrize("site", sorted(VITAL), ids=str)
async def test_what_is_vital_crashes(
    clock: MockClock, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site in sites()
    crash = Crash(site, armed=True)
    crash.install(monkeypatch)
    with pytest.raises((Injected, NodeFailed)):
        await suffer(tmp_path, monkeypatch, lambda _: None)
    assert crash.fired


# In the actors, with mail pending


def actor_classes() -> list[type[Actor[Any]]]:
    """All that the broker has."""
    for folder in (*FOLDERS, "actors"):
        package = importlib.import_module(f"trunkline.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("trunkline.plugins.shipped.") and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: list[type[Actor[Any]]] = []
    left: list[type[Actor[Any]]] = [Actor]
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            if kind.__module__.startswith(f"{trunkline.__name__}."):
                found.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


#: Which message of those that the actors of a class get after the bystanders have come.
NUMBERS = (1, 2, 3, 5, 8, 13, 21)
HANDLERS = ("handle_many", "handle", "handle_call")


class Handling:
    """A crash of an actor of this class at its n-th message, behind which others wait."""

    def __init__(self, kind: type[Actor[Any]], number: int) -> None:
        self.kind = kind
        self.number = number
        self.count = 0
        self.armed = False
        self.protected: set[Ref[Any]] = set()
        self.ended: Ref[Any] | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in HANDLERS:
            if getattr(self.kind, name) is not getattr(Actor, name):
                patch.setattr(self.kind, name, self._wrapped(name, getattr(self.kind, name)))

    def arm(self, protected: set[Ref[Any]]) -> None:
        self.armed, self.protected = True, protected

    def _wrapped(self, name: str, real: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def handle(actor: Any, message: Any) -> Any:
            if self.armed and self.ended is None and type(actor) is self.kind and actor.ref not in self.protected:
                self.count += 1
                if self.count == self.number:
                    self.ended = actor.ref
                    if name == "handle_many":
                        real(actor, message[: len(message) // 2])
                    raise Injected(f"{self.kind.__name__}.{name}")
            return real(actor, message)

        return handle


def takes_messages(kind: type[Actor[Any]]) -> bool:
    return any(getattr(kind, name) is not getattr(Actor, name) for name in HANDLERS)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "kind", [kind for kind in actor_classes() if takes_messages(kind)], ids=lambda kind: kind.__name__
)
async def test_an_actor_crashes_with_mail_pending(
    clock: MockClock, kind: type[Actor[Any]], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handling = Handling(kind, number)
    handling.install(monkeypatch)
    await suffer(tmp_path, monkeypatch, handling.arm)
    assert handling.ended is not None, f"the scenario has no {kind.__name__} that gets so many messages"
    assert isinstance(await handling.ended.join(), Injected)


#: Actors that are nothing but a task. What else has none must take messages.
TASKS = {Nested, TaskActor}


def test_every_class_of_actors_is_judged() -> None:
    assert {kind for kind in actor_classes() if not takes_messages(kind) and not kind.__subclasses__()} == TASKS


@pytest.mark.parametrize("child", ["tasks", "sessions", "connections", "control", "sys", "routes"])
async def test_a_child_of_the_node_crashes(
    clock: MockClock, child: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch, cuts=child in ("sessions", "connections")) as here:
        here.node.supervisors.root[child].crash(Injected(child))
        await here.play()
        if child in ("control", "sys"):
            assert child not in here.node.supervisors.root, (
                "what runs beside the heart is given up when its supervisor fails"
            )
        else:
            assert here.node.supervisors.root[child].alive
