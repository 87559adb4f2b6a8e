"""Clients of MQTT and of NATS that publish to each other: `python -m bench.nats_soak --help`.

They are pairs, of one client of each protocol. That of MQTT publishes at QoS 1, and its peer takes the messages from a
stream by a durable consumer, with acknowledgements. That of NATS publishes into another stream, and its peer's session
gets the messages at QoS 1. At the end nothing that was acknowledged may be missing, memory must not have grown after
the first quarter, and nothing of the clients may be left, as in `bench.soak`.
"""

import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from bench.peers import Running, free_port, running, watched
from bench.soak import Outcome, Watch, allow_files, listens, options, tell
from trunkline import nats
from trunkline.client import ConnectionSettings, SessionClient, Subscription
from trunkline.nats.client.jetstream import JetStream
from trunkline.nats.client.jetstream.pull import PullSubscription
from trunkline.nats.jetstream.configs import Retention, StreamConfig

CONFIG: Final = """\
[store]
path = "{folder}/store"

[control]
path = "{folder}/control"

[log]
level = "warning"
"""
#: What devices publish, which goes when it is acknowledged, and what is published for them.
READINGS: Final = StreamConfig(name="readings", subjects=("reading.*",), retention=Retention.WORK_QUEUE)
COMMANDS: Final = StreamConfig(name="commands", subjects=("command.*",), max_messages=10_000)


class Pair:
    def __init__(self, number: int) -> None:
        self.number = number
        #: By the protocol of the publisher: the last message that was acknowledged, and those that came.
        self.acknowledged = {"mqtt": 0, "nats": 0}
        self.got: dict[str, set[int]] = {"mqtt": set(), "nats": set()}

    @property
    def lost(self) -> int:
        return sum(
            last - len(self.got[way].intersection(range(1, last + 1))) for way, last in self.acknowledged.items()
        )


class NatsSoak(Watch):
    def __init__(self, broker: Running, port: int, pairs: int, seconds: float, interval: float) -> None:
        super().__init__(broker)
        self.port, self.url = port, f"nats://127.0.0.1:{port}"
        self.seconds, self.interval = seconds, interval
        self.pairs = [Pair(number) for number in range(pairs)]
        self.stopped = trio.Event()

    async def run(self) -> Outcome:
        await self.until(partial(listens, self.port))
        async with nats.connect(self.url) as maker:
            for config in (READINGS, COMMANDS):
                await JetStream(maker).create_stream(config)
        await trio.sleep(1)  # the maker has gone
        before = self.files(), self.tasks()
        async with trio.open_nursery() as nursery:
            for pair in self.pairs:
                await nursery.start(self._live, pair)
            for second in range(round(self.seconds)):
                self.memory.append(self.broker.memory())
                if second % 10 == 0:
                    print(f"{second:>6} s {self.memory[-1] / 1e6:>8.1f} MB {self.sent:>9,}", file=sys.stderr)
                await trio.sleep(1)
            self.stopped.set()
            await self.until(lambda: not self.lost)
            nursery.cancel_scope.cancel()
        await self.until(lambda: self.files() <= before[0] and not self.actors("connections"))
        return self.outcome(before, self.sent, self.lost, 0, len(self.pairs), {"acknowledged": self.sent})

    @property
    def sent(self) -> int:
        return sum(sum(pair.acknowledged.values()) for pair in self.pairs)

    @property
    def lost(self) -> int:
        return sum(pair.lost for pair in self.pairs)

    async def _live(self, pair: Pair, task_status: trio.TaskStatus[None]) -> None:
        host, port = self.broker.address
        settings = ConnectionSettings(host=host, port=port, client_id=f"device-{pair.number}")
        async with (
            SessionClient(settings, keep_session=True) as device,
            await device.subscribe(f"command/{pair.number}", qos=1) as commands,
            nats.connect(self.url) as service,
            JetStream(service).subscribe_pull(f"reading.{pair.number}", durable=f"service-{pair.number}") as readings,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_listen, commands, pair.got["nats"])
            nursery.start_soon(_work_off, readings, pair.got["mqtt"])
            publishing: dict[str, Callable[[str], Awaitable[object]]] = {
                "mqtt": partial(device.publish, f"reading/{pair.number}", qos=1),
                "nats": lambda text: JetStream(service).publish(f"command.{pair.number}", text.encode()),
            }
            for way, publish in publishing.items():
                nursery.start_soon(self._publish, pair, way, publish)
            task_status.started()
            await trio.sleep_forever()

    async def _publish(self, pair: Pair, way: str, publish: Callable[[str], Awaitable[object]]) -> None:
        await trio.sleep(random.uniform(0, self.interval))
        while not self.stopped.is_set():
            number = pair.acknowledged[way] + 1
            await publish(str(number))
            pair.acknowledged[way] = number
            with trio.move_on_after(self.interval):
                await self.stopped.wait()


async def _work_off(readings: PullSubscription, got: set[int]) -> None:
    async for reading in readings:
        got.add(int(reading.payload))
        await reading.ack_sync()


async def _listen(commands: Subscription, got: set[int]) -> None:
    async for command in commands:
        got.add(int(command.payload))


def main() -> int:
    given = options("nats_soak", __doc__, interval=5.0).parse_args()
    allow_files(given.connections)
    port, peer = free_port(), watched()
    command = [*peer.command, "--listen", f"nats://127.0.0.1:{port}"]
    with running(replace(peer, command=command, config=CONFIG), None) as broker:
        outcome = trio.run(NatsSoak(broker, port, given.connections // 2, given.minutes * 60, given.interval).run)
    return tell(given, outcome)


if __name__ == "__main__":
    sys.exit(main())
