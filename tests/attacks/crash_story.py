"""Clients of a broker that is killed again and again, and what they were promised.

Each client goes on with its half of its session, whatever becomes of the broker. What was acknowledged must be there in
the end: no message lost, none of QoS 2 doubled, each publisher's in order.
"""

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count, repeat
from random import Random
from typing import Final

import trio
from paho.mqtt.client import Client, ConnectFlags, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from tests.attacks.killed import Broker
from tests.conformance import raw
from tests.keeper import Keeper
from tests.wire import Wire

PUBLISH: Final = 0x30
TOPICS: Final = 3
#: Seconds that a client waits at most before it does something else.
PAUSE: Final = 0.05
#: Seconds that a broker has to deliver what is left.
PATIENCE: Final = 300.0
#: Seconds that a retained message may take.
LOOK: Final = 20.0
#: What a client that loses its broker sees.
GONE: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, AssertionError)


@contextmanager
def until_it_is_gone() -> Generator[None]:
    """What goes on until the broker has ended."""
    try:
        yield
    except* GONE:
        pass


class Sent:
    """A message as it was sent."""

    __slots__ = ("order", "publisher", "qos", "topic")

    def __init__(self, publisher: str, topic: str, qos: int, order: int) -> None:
        self.publisher, self.topic, self.qos, self.order = publisher, topic, qos, order


class Story:
    """Over many lives of one broker."""

    def __init__(self, chance: Random, workers: int = 1) -> None:
        self.chance = chance
        self._workers = workers
        self.sent: dict[bytes, Sent] = {}
        #: What may come or not: it was never acknowledged.
        self.doubtful: set[bytes] = set()
        #: What must not come any more: wills of clients that have left.
        self.taken_back: set[bytes] = set()
        #: Nothing comes after what was sent so far, but for what paho sends again.
        self.all_is_sent = False
        #: A clean start was accepted.
        self.began_anew = trio.Event()
        #: What the broker is told.
        self.settings = '[[streams]]\nname = "s"\nfilters = ["t/#"]\n'
        self.settings += chance.choice(
            (
                "",
                "",
                '[session.priorities]\n"t/0" = 1\n"t/m" = 2\n',
                '[session]\noverflow = "drop_new"\nmax_queue_length = 0\n',
            )
        )
        self.subscribers = [
            Subscriber(self, "online", "t/#", stays=0.95),
            Subscriber(self, "offline", "t/#", stays=0.02),
            Subscriber(self, "overlapping", "t/#", "t/+", "t/0", stays=0.5),
            *[Subscriber(self, f"same-{number}", "t/+", stays=0.3 * number) for number in range(3)],
            Subscriber(self, "at-least-once", "t/#", stays=0.5, qos=1),
            Subscriber(self, "alone-in-its-group", "$share/g/t/#", stays=0.5),
            # the home of each is another one of three workers
            *[Subscriber(self, f"of-the-stream-{number}", "$stream/s/#", stays=0.5) for number in range(workers)],
        ]
        self.publishers = [*[Publisher(self, f"publisher-{number}") for number in range(2)], Mixing(self)]
        self.paho = Paho(self)
        self.dying: list[Dying | Device] = [Dying(self), Device(self, 4), Device(self, 5)]
        self.retaining = Retaining(self)
        self.starting_anew = StartingAnew(self)
        self.everybody: list[Subscriber | Publisher | Retaining] = [*self.subscribers, *self.publishers, self.retaining]

    async def live(self, broker: Broker) -> None:
        """Until the broker ends. Raises what a client finds to be wrong."""
        clients: list[Connected | Paho | Device | StartingAnew] = [*self.everybody, *self.dying, self.paho]
        clients.append(self.starting_anew)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def end() -> None:
                await broker.cut_off.wait()
                nursery.cancel_scope.cancel()

            await broker.serving.wait()
            with until_it_is_gone():
                await self.retaining.look(broker)
            for client in clients:
                nursery.start_soon(self._live, client, broker)

    async def _live(self, client: "Connected | Paho | Device | StartingAnew", broker: Broker) -> None:
        """Where there are several workers, one that is killed is there again after a while."""
        await client.live(broker)
        while self._workers > 1 and not broker.cut_off.is_set():
            await trio.sleep(PAUSE)
            await client.live(broker)

    async def begin(self, broker: Broker) -> None:
        """Everybody subscribes: what is sent from now on is theirs."""
        for subscriber in self.subscribers:
            await subscriber.subscribe(broker)
        await self.paho.subscribe(broker)

    async def finish(self, broker: Broker) -> None:
        """What a broker that is well makes of all that was left; and the check of everything."""
        await broker.serving.wait()
        await self.retaining.look(broker)
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(PATIENCE) as patience:
                for dying in self.dying:
                    await dying.settle(broker)
                async with trio.open_nursery() as settling:
                    settling.start_soon(self.paho.settle, broker)
                    async with trio.open_nursery() as sending:
                        for publisher in (*self.publishers, self.retaining):
                            sending.start_soon(publisher.settle, broker, nursery)
                    self.all_is_sent = True
                    for subscriber in self.subscribers:
                        settling.start_soon(subscriber.settle, broker, nursery)
            nursery.cancel_scope.cancel()
        await self.retaining.look(broker)
        problems = [f"not everything had come after {PATIENCE} s"] if patience.cancelled_caught else []
        problems += [
            f"{client.name} has no answer for {len(client.keeper.unanswered)} messages"
            for client in (*self.publishers, self.retaining)
            if client.keeper.unanswered
        ]
        problems += [problem for receiver in self.receivers for problem in self.problems(receiver)]
        assert not problems, "\n".join(problems)

    @property
    def receivers(self) -> "list[Subscriber | Paho]":
        return [*self.subscribers, self.paho]

    @property
    def required(self) -> set[bytes]:
        return self.sent.keys() - self.doubtful

    def problems(self, receiver: "Subscriber | Paho") -> list[str]:
        order, name = receiver.order, receiver.name
        found = []
        if lost := self.required - set(order):
            listed = [f"{payload.decode()} at QoS {self.sent[payload].qos}" for payload in sorted(lost)[:10]]
            found.append(f"{name} never got {len(lost)}: {', '.join(listed)}")
        if strange := set(order) - self.sent.keys():
            found.append(f"{name} got what nobody sent: {sorted(strange)[:10]}")
        if late := self.taken_back & set(order):
            found.append(f"{name} got wills of clients that had left: {sorted(late)[:10]}")
        times: dict[bytes, int] = defaultdict(int)
        last: dict[tuple[str, str, int], int] = {}
        for payload in order:
            sent = self.sent.get(payload)
            if sent is None:
                continue
            times[payload] += 1
            if times[payload] > 1:
                if receiver.qos == 2 and sent.qos == 2:
                    found.append(f"{name} got {payload!r} {times[payload]} times")
                continue
            # with its PUBREL a message of QoS 2 is published, and paho hands it out: others overtake it until then
            is_mixed = sent.publisher == Mixing.name and receiver is not self.paho
            of = (sent.publisher, sent.topic, 0 if is_mixed else sent.qos)
            if sent.order < last.get(of, 0):
                found.append(f"{name} got {payload!r} behind number {last[of]}")
            last[of] = max(sent.order, last.get(of, 0))
        return found


class Connected:
    """A keeper whose connections come and go."""

    def __init__(self, story: Story, name: str) -> None:
        self.story, self.chance, self.name = story, story.chance, name
        self.keeper = Keeper(name)
        self.was_there = False

    async def connect(self, broker: Broker, nursery: trio.Nursery, will: raw.Will | None = None) -> trio.CancelScope:
        """Returns what ends the connection."""
        scope, wire = trio.CancelScope(), await broker.wire()

        async def listen() -> None:
            try:
                with scope, until_it_is_gone():
                    await self.keeper.listen(wire)
            finally:
                await wire.abort()

        try:
            present = await self.keeper.connect(wire, will)
        except BaseException:
            await wire.abort()
            raise
        nursery.start_soon(listen)
        if self.was_there and not present:
            raise SessionLost(self.name)
        self.was_there = True
        return scope

    async def live(self, broker: Broker) -> None:
        """Until it is gone."""
        raise NotImplementedError

    async def pause(self) -> None:
        await trio.sleep(self.chance.random() * PAUSE)


class SessionLost(Exception):
    """The broker has forgotten a session that it had confirmed."""


class Subscriber(Connected):
    def __init__(self, story: Story, name: str, *filters: str, stays: float, qos: int = 2) -> None:
        """`stays` is how much of the time it is connected."""
        super().__init__(story, name)
        self.filters, self.stays, self.qos = filters, stays, qos

    @property
    def order(self) -> list[bytes]:
        return self.keeper.order

    async def subscribe(self, broker: Broker) -> None:
        async with trio.open_nursery() as nursery:
            await self.connect(broker, nursery)
            for each in self.filters:
                await self.keeper.subscribe(each, self.qos)
            nursery.cancel_scope.cancel()

    async def live(self, broker: Broker) -> None:
        with until_it_is_gone():
            while True:
                if self.chance.random() < self.stays:
                    async with trio.open_nursery() as nursery:
                        self.keeper.mute = self.chance.random() < 0.1
                        first = await self.connect(broker, nursery)
                        await self.pause()
                        if self.chance.random() < 0.3:  # it takes its own session over
                            await self.connect(broker, nursery)
                            first.cancel()
                            await self.pause()
                        nursery.cancel_scope.cancel()
                else:
                    await self.pause()

    async def settle(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.keeper.mute = False
        await self.connect(broker, nursery)
        await self.keeper.received_all(lambda: self.story.required)
        await self.keeper.released()


class Publisher(Connected):
    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self._numbers = count(1)

    async def live(self, broker: Broker) -> None:
        with until_it_is_gone():
            while True:
                async with trio.open_nursery() as nursery:
                    await self.connect(broker, nursery)
                    for _ in range(self.chance.randrange(1, 20)):
                        await self.burst()
                        if self.chance.random() < 0.2:
                            await self.pause()
                        await self.keeper.answered(self.chance.choice((0, 10, 30)))
                    nursery.cancel_scope.cancel()

    async def burst(self) -> None:
        chance, story = self.chance, self.story
        topic, qos = f"t/{chance.randrange(TOPICS)}", chance.randrange(1, 3)
        payloads = []
        for _ in range(chance.choice((1, 1, 2, 30))):
            number = next(self._numbers)
            payloads.append(b"%s %06d" % (self.name.encode(), number))
            story.sent[payloads[-1]] = Sent(self.name, topic, qos, number)
        await self.keeper.publish(topic, qos, *payloads)

    async def settle(self, broker: Broker, nursery: trio.Nursery) -> None:
        await self.connect(broker, nursery)
        await self.burst()
        await self.keeper.answered()


class Mixing(Publisher):
    """Its messages come in the order in which it has sent them, whatever their QoS: a message of QoS 2 is published
    before the next is sent."""

    name: str = "mixing"

    def __init__(self, story: Story) -> None:
        super().__init__(story, Mixing.name)

    async def burst(self) -> None:
        await self.keeper.answered()  # what is sent again comes first
        for _ in range(self.chance.choice((1, 5, 20))):
            number, qos = next(self._numbers), self.chance.randrange(3)
            payload = b"mixing %06d" % number
            self.story.sent[payload] = Sent(self.name, "t/m", qos, number)
            if not qos:
                self.story.doubtful.add(payload)
            await self.keeper.publish("t/m", qos, payload)
            if qos == 2:
                await self.keeper.answered()


class StartingAnew:
    """A client whose clean start discards a session with half of an exchange of QoS 2, and uses its packet id anew."""

    name = "starting-anew"

    def __init__(self, story: Story) -> None:
        self.story = story
        self._numbers = count(1)
        #: The session of the last clean start has had no packet.
        self._is_new = False

    async def live(self, broker: Broker) -> None:
        """What is sent before the clean start is never released, so it never comes."""
        with until_it_is_gone():
            while True:
                await self._use(broker)
                await self._begin(broker)
                await trio.sleep(self.story.chance.random() * PAUSE)

    async def _begin(self, broker: Broker) -> None:
        async with await broker.wire() as wire:
            await self._connect(wire, clean=False)
            await wire.send(raw.publish("t/h", b"half", qos=2, packet_id=1))
            await wire.expect_type(raw.PUBREC)
        async with await broker.wire() as wire:
            await self._connect(wire, clean=True)
            self._is_new = True
            self.story.began_anew.set()
            await trio.sleep(PAUSE)

    async def _use(self, broker: Broker) -> None:
        if not self._is_new:
            return
        number, story = next(self._numbers), self.story
        payload = b"new %06d" % number
        story.sent[payload] = Sent(self.name, "t/h", 2, number)
        story.doubtful.add(payload)
        async with await broker.wire() as wire:
            await self._connect(wire, clean=False)
            self._is_new = False
            await wire.publish("t/h", payload, qos=2, packet_id=1)
            story.doubtful.discard(payload)

    async def _connect(self, wire: Wire, *, clean: bool) -> None:
        await wire.connect(self.name, clean=clean, properties=raw.session_expiry(1000))


class Device:
    """A client with a will whose session ends with its connection. It dies, or it leaves with DISCONNECT."""

    def __init__(self, story: Story, version: int) -> None:
        self.story, self.chance, self.version = story, story.chance, version
        self.name = f"device-{version}"
        self._numbers = count(1)

    async def live(self, broker: Broker) -> None:
        with until_it_is_gone():
            while True:
                await self.come(broker, leaves=self.chance.random() < 0.5)
                await trio.sleep(self.chance.random() * PAUSE)

    async def come(self, broker: Broker, *, leaves: bool) -> None:
        number = next(self._numbers)
        payload = b"%s %06d" % (self.name.encode(), number)
        self.story.sent[payload] = Sent(self.name, "t/w", 2, number)
        self.story.doubtful.add(payload)
        async with await Wire.open(*broker.address, version=self.version) as wire:
            await wire.connect(self.name, will=raw.Will("t/w", payload, qos=2))
            if not leaves:
                self.story.doubtful.discard(payload)
            await trio.sleep(self.chance.random() * PAUSE)
            if leaves:
                kills = broker.kills
                await wire.disconnect()
                async with await broker.wire() as other:
                    await other.connect("asking")
                if broker.kills == kills:  # it was the broker that closed, and not its end
                    self.story.taken_back.add(payload)

    async def settle(self, broker: Broker) -> None:
        await self.come(broker, leaves=False)


class Dying(Connected):
    """A client with a will, of which each of its connections ends without a word."""

    def __init__(self, story: Story) -> None:
        super().__init__(story, "dying")
        self._numbers = count(1)

    async def live(self, broker: Broker) -> None:
        with until_it_is_gone():
            while True:
                async with trio.open_nursery() as nursery:
                    await self.come(broker, nursery)
                    await trio.sleep(self.chance.random() * 4 * PAUSE)
                    nursery.cancel_scope.cancel()

    async def come(self, broker: Broker, nursery: trio.Nursery) -> None:
        number = next(self._numbers)
        payload = b"will %06d" % number
        self.story.sent[payload] = Sent(self.name, "t/w", 2, number)
        self.story.doubtful.add(payload)
        await self.connect(broker, nursery, will=raw.Will("t/w", payload, qos=2))
        self.story.doubtful.discard(payload)

    async def settle(self, broker: Broker) -> None:
        async with trio.open_nursery() as nursery:
            await self.come(broker, nursery)
            nursery.cancel_scope.cancel()


class Retaining(Connected):
    """A client that sets and deletes retained messages, each time with a higher number."""

    def __init__(self, story: Story) -> None:
        super().__init__(story, "retaining")
        #: By topic: the numbers that were sent, and which of them deleted it.
        self._sent: dict[str, list[int]] = {}
        self._deletes: set[int] = set()
        self._numbers = count(1)
        self._packets: dict[int, tuple[str, int]] = {}

    async def live(self, broker: Broker) -> None:
        with until_it_is_gone():
            async with trio.open_nursery() as nursery:
                await self.connect(broker, nursery)
                while True:
                    await self.set()
                    await self.keeper.answered(self.chance.randrange(3))
                    await self.pause()

    async def set(self) -> None:
        place, number = self.chance.randrange(5), next(self._numbers)
        topic, qos = f"r/{place}", 1 + place % 2  # with both, those of QoS 2 would be later than some that follow
        self._sent.setdefault(topic, []).append(number)
        payload = b"%06d" % number
        if self.chance.random() < 0.2:
            self._deletes.add(number)
            payload = b""
        self._packets[self.keeper.next_id] = topic, number
        await self.keeper.publish(topic, qos, payload, retain=True)

    def _allowed(self) -> dict[str, list[int]]:
        """What may be there now: what was acknowledged last, and what was sent since."""
        open_numbers = {self._packets[packet_id] for packet_id in self.keeper.unanswered}
        found = {}
        for topic, numbers in self._sent.items():
            # the first that is not acknowledged, as answers may come in any order
            waiting = [at for at, number in enumerate(numbers) if (topic, number) in open_numbers]
            first = waiting[0] if waiting else len(numbers)
            found[topic] = numbers[max(0, first - 1) :] if first else [0, *numbers]
        return found

    async def look(self, broker: Broker) -> None:
        """As a new client."""
        allowed = self._allowed()
        sure = {
            topic
            for topic, numbers in allowed.items()
            if not any(each in self._deletes or not each for each in numbers)
        }
        wire = await broker.wire()
        try:
            await wire.connect("looking")
            await wire.send(raw.subscribe(1, ("r/#", 0)), raw.PINGREQ)
            pinged = False
            while sure or not pinged:
                try:
                    with trio.fail_after(LOOK):
                        packet = await wire.receive()
                except trio.TooSlowError:
                    raise WrongRetained(f"{sure} are missing, and may be {allowed}") from None
                if packet.type == PUBLISH:
                    sure.discard(packet.topic)
                    if int(packet.payload) not in allowed[packet.topic]:
                        raise WrongRetained(f"{packet.topic} is {packet.payload!r}, and may be {allowed[packet.topic]}")
                elif packet.data == raw.PINGRESP:
                    pinged = True
        finally:
            await wire.abort()

    async def settle(self, broker: Broker, nursery: trio.Nursery) -> None:
        await self.connect(broker, nursery)
        await self.keeper.answered()


class WrongRetained(Exception):
    """A retained message is not the one that was acknowledged."""


class Paho:
    """A subscriber and a publisher of paho-mqtt, with MQTT 3.1.1."""

    name, qos = "paho", 2

    def __init__(self, story: Story) -> None:
        self.story, self.chance = story, story.chance
        self.order: list[bytes] = []
        #: Packet ids that are not acknowledged.
        self._open: set[int] = set()
        self._numbers = count(1)
        self._subscribed = False
        self._clients = [
            Client(
                CallbackAPIVersion.VERSION2, name, clean_session=False, protocol=MQTTv311, reconnect_on_failure=False
            )
            for name in ("paho-subscriber", "paho-publisher")
        ]
        self._subscriber, self._publisher = self._clients
        self._publisher.on_publish = lambda _client, _data, packet_id, *_: self._open.discard(packet_id)
        self._subscriber.on_message = lambda _client, _data, message: self.order.append(bytes(message.payload))
        self._subscriber.on_subscribe = self._on_subscribe
        self._subscriber.on_connect = self._on_connect

    def _on_subscribe(self, *_: object) -> None:
        self._subscribed = True

    def _on_connect(
        self, _client: Client, _data: object, flags: ConnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        if reason.is_failure:  # its worker is not there again
            return
        if not self._subscribed:
            self._subscriber.subscribe("t/#", 2)
        elif not flags.session_present:
            raise SessionLost(self.name)

    def _stay(self, broker: Broker, turn: Callable[[], bool]) -> None:
        """Be connected until `turn`, which is called again and again, says no, or the broker is gone. In a thread."""
        with suppress(OSError):
            for client in self._clients:
                # when it connects in vain, it forgets at the next attempt that a PUBREC has come
                for message in client._out_messages.values():
                    if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
                        message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
                client.connect(*broker.address)
            while not broker.cut_off.is_set():
                if any(client.loop(0.005) != MQTTErrorCode.MQTT_ERR_SUCCESS for client in self._clients):
                    break
                if all(client.is_connected() for client in self._clients) and not turn():
                    break
        for client in self._clients:
            if isinstance(sock := client.socket(), socket.socket):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                while client.socket() is not None:
                    client.loop()  # it notices

    async def subscribe(self, broker: Broker) -> None:
        await trio.to_thread.run_sync(self._stay, broker, lambda: not self._subscribed)

    async def live(self, broker: Broker) -> None:
        while not broker.cut_off.is_set():
            turns = repeat(None, self.chance.randrange(1, 50))
            await trio.to_thread.run_sync(self._stay, broker, lambda turns=turns: self._publish(turns))

    def _publish(self, turns: "repeat[None]") -> bool:
        for _ in range(self.chance.randrange(10) if len(self._open) < 50 else 0):
            number, topic, qos = next(self._numbers), f"t/{self.chance.randrange(TOPICS)}", self.chance.randrange(1, 3)
            payload = b"paho %06d" % number
            self.story.sent[payload] = Sent(self.name, topic, qos, number)
            self._open.add(self._publisher.publish(topic, payload, qos).mid)
        return next(turns, ...) is None

    async def settle(self, broker: Broker) -> None:
        deadline = time.monotonic() + PATIENCE

        def is_missing() -> bool:
            done = self.story.all_is_sent and not self._open and self.story.required <= set(self.order)
            return not done and time.monotonic() < deadline

        await trio.to_thread.run_sync(self._stay, broker, is_missing)
