"""Where the time of one message goes, inside the broker: `python -m bench.anatomy [--quick] [--markdown]`.

The real broker runs in this process, with connections whose bytes come from memory, so no system call is in it. Each
case is one turn of the poller, played again and again. Three things are found out about a message:

- how long it takes: the best of many turns;
- what it is made of: the operations of the Python virtual machine and the calls of Python functions, counted exactly.
  They are the same on every machine that has the same version of Python;
- which share of its time each layer has, by cProfile, which makes calls dearer than they are: read it as a rough guide.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import trio
import trio.testing

import trunkline
from bench import wire
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import CodeType, FrameType

    from trunkline.broker.node.admin import Admin

PACKAGE: Final = str(Path(trunkline.__file__).parent) + "/"
READ: Final = 65_536
WINDOW: Final = 100
PAYLOAD: Final = bytes(64)

#: By the beginning of a module's path within the package; the first that fits.
LAYERS: Final = {
    "actors/": "actors",
    "mqtt/": "codec",
    "broker/connection/": "connection",
    "broker/net/": "connection",
    "broker/session/": "session",
    "broker/pubsub": "pubsub and router",
    "router/": "pubsub and router",
    "broker/guid": "pubsub and router",
    "broker/access": "hooks and access",
    "hooks/": "hooks and access",
}
ORDER: Final = list(dict.fromkeys(LAYERS.values()))


class Line:
    """A connection without a socket: what it is fed is there at once, and what is sent is kept."""

    pending = 0

    def __init__(self) -> None:
        self.peer = ("127.0.0.1", 1)
        self.identity = None
        self.sent: list[bytes] = []
        self.feed: Callable[[bytes], object] = lambda _data: None

    def start(self, receiver: Callable[[Any], object], _start_task: object) -> None:
        self.feed = receiver

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class Case:
    """`turns` are what is fed in each turn: lines and their bytes, or a function that makes those of what the line was
    sent. `messages` are the deliveries of all turns together."""

    text: str
    turns: list[list[tuple[Line, bytes | Callable[[bytes], bytes]]]]
    messages: int
    seconds: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    shares: Counter[str] = field(default_factory=Counter)


def layer_of(file: str) -> str | None:
    if not file.startswith(PACKAGE):
        return None
    path = file.removeprefix(PACKAGE)
    return next((layer for beginning, layer in LAYERS.items() if path.startswith(beginning)), None)


@contextmanager
def counting(place: Callable[[str], str | None], operations: Counter[str], calls: Counter[str]) -> Generator[None]:
    """Count what this thread does in the block, by what `place` makes of a file; None: it does not count."""
    places: dict[CodeType, str | None] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if code not in places:
            places[code] = place(code.co_filename)
        where = places[code]
        if where is None:
            return None
        if event == "call":
            calls[where] += 1
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode":
            operations[where] += 1
        return trace

    others = sys.gettrace()  # a debugger's, or that of a test of coverage
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(others)


class Bench:
    def __init__(self, admin: Admin) -> None:
        self.node = admin._node  # pyright: ignore[reportPrivateUsage] - what it measures
        self.lines: list[Line] = []
        #: Bytes that clients were sent and have answered since they were last asked for.
        self.fed = 0

    async def line(self, name: str, filters: Sequence[str] = (), qos: int = 0) -> Line:
        """A client that is connected and subscribed."""
        line = Line()
        self.node.listeners[0].acceptor.accept(line)
        turn = self.node.scheduler.turn
        with turn:
            line.feed(wire.connect(name, wire.V311))
        await trio.testing.wait_all_tasks_blocked()
        for topic_filter in filters:
            with turn:
                line.feed(wire.subscribe(topic_filter, qos, wire.V311))
            await trio.testing.wait_all_tasks_blocked()
        self.lines.append(line)
        return line

    def play(self, case: Case) -> float:
        """All turns of the case; the seconds that the broker took for them."""
        seconds = 0.0
        for turn in case.turns:
            ready = [(line, data if isinstance(data, bytes) else data(b"".join(line.sent))) for line, data in turn]
            for line, _ in ready:
                self.fed += sum(map(len, line.sent))
                line.sent.clear()
            started = perf_counter()
            scheduler = self.node.scheduler
            with scheduler.turn:
                for line, data in ready:
                    line.feed(data)
            while scheduler.step():  # a turn under a tracer is longer than a turn may be
                pass
            seconds += perf_counter() - started
        return seconds

    async def settle(self) -> int:
        """Bytes that were sent since the last time."""
        await trio.testing.wait_all_tasks_blocked()
        size = self.fed + sum(len(data) for line in self.lines for data in line.sent)
        self.fed = 0
        for line in self.lines:
            line.sent.clear()
        return size

    async def examine(self, case: Case, rounds: int) -> Case:
        for _ in range(3):  # topics and routes get known
            self.play(case)
        await self.settle()
        self.play(case)
        expected = await self.settle()
        assert expected >= case.messages * len(PAYLOAD), "not everything came"
        best = []
        for _ in range(rounds):
            gc.disable()
            best.append(self.play(case))
            gc.enable()
            assert await self.settle() == expected
        case.seconds = min(best) / case.messages
        with counting(layer_of, case.operations, case.calls):
            self.play(case)
        await self.settle()
        self._profile(case)
        await self.settle()
        return case

    def _profile(self, case: Case) -> None:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(5):
            self.play(case)
        profile.disable()
        stats: Any = pstats.Stats(profile)
        for (file, _, _), (_, _, own, _, callers) in stats.stats.items():
            layer = layer_of(file)
            if layer is not None:
                case.shares[layer] += own
                continue
            for (caller, _, _), (_, _, part, _) in callers.items():  # built-in functions count for who calls them
                layer = layer_of(caller)
                if layer is not None:
                    case.shares[layer] += part


def publish(topic: str, qos: int = 0, packet_id: int = 0) -> bytes:
    return wire.publish(topic, PAYLOAD, qos, wire.V311, packet_id)


def acknowledge(first: int, packet_ids: Sequence[int]) -> bytes:
    return b"".join([bytes([first, 2]) + packet_id.to_bytes(2, "big") for packet_id in packet_ids])


async def single(bench: Bench, text: str, qos: int) -> Case:
    """Each of a hundred clients sends one message to itself in the turn."""
    name = f"echo{qos}"
    lines = [await bench.line(f"{name}-{number}", [f"{name}/{number:02}"], qos) for number in range(100)]
    turn = [(line, publish(f"{name}/{number:02}", qos, 1)) for number, line in enumerate(lines)]
    return Case(text, [turn], 100)


async def stream(bench: Bench, text: str, *, subscribers: int = 1, topics: int = 1) -> Case:
    """One publisher, one read of 64 KiB."""
    name = f"stream{subscribers}-{topics}"
    for number in range(subscribers):
        await bench.line(f"{name}-{number}", [f"{name}/+"])
    frames = [publish(f"{name}/{number:04}") for number in range(topics)]
    count = READ // len(frames[0])
    publisher = await bench.line(name)
    turns = []
    for start in range(0, max(topics, count), count):  # all topics in turn
        chosen = [frames[(start + number) % topics] for number in range(count)]
        turns.append([(publisher, b"".join(chosen))])
    return Case(text, turns, count * subscribers * len(turns))


async def window(bench: Bench, text: str, qos: int) -> Case:
    """One publisher and one subscriber with QoS 1 or 2: a hundred messages, and every acknowledgement of them."""
    name = f"window{qos}"
    subscriber = await bench.line(f"{name}-s", [name], qos)
    publisher = await bench.line(f"{name}-p")
    ids = range(1, WINDOW + 1)
    frame = len(publish(name, qos, 1))
    place = frame - len(PAYLOAD) - 2  # of the packet identifier

    def received(sent: bytes) -> bytes:
        taken = [sent[start + place : start + place + 2] for start in range(0, len(sent), frame)]
        return b"".join([(b"\x40\2" if qos == 1 else b"\x50\2") + packet_id for packet_id in taken])

    def completed(sent: bytes) -> bytes:
        return b"".join([b"\x70\2" + sent[start + 2 : start + 4] for start in range(0, len(sent), 4)])

    case = Case(text, [[(publisher, b"".join([publish(name, qos, number) for number in ids]))]], WINDOW)
    if qos == 2:
        case.turns.append([(publisher, acknowledge(0x62, ids))])
    case.turns.append([(subscriber, received)])
    if qos == 2:
        case.turns.append([(subscriber, completed)])
    return case


async def echo_qos1(bench: Bench, text: str) -> Case:
    """Each of a hundred clients sends one message to itself, and acknowledges it in the next turn."""
    case = await single(bench, text, 1)
    frame = len(case.turns[0][0][1])

    def received(sent: bytes) -> bytes:
        start = sent.index(b"\x32")  # the PUBACK of its own message stands before or behind
        place = start + frame - len(PAYLOAD) - 2
        return b"\x40\2" + sent[place : place + 2]

    case.turns.append([(line, received) for line, _ in case.turns[0]])
    return case


def opened() -> AbstractAsyncContextManager[Admin]:
    settings = {
        "listeners": [{"url": "tcp://127.0.0.1:0"}],
        "session": {"max_inflight": 1000},
        "control": {"enabled": False},
    }
    return open_node(from_mapping(settings))


def passes(_client: object, message: object) -> object:
    """The cheapest hook that there is."""
    return message


async def examine_all(rounds: int) -> list[Case]:
    cases: list[Case] = []
    async with opened() as node:
        bench = Bench(node)
        for made in (
            await single(bench, "QoS 0, one packet a read", 0),
            await stream(bench, "QoS 0, a read full of packets"),
            await stream(bench, "QoS 0, a read full of packets, 50 subscribers", subscribers=50),
            await stream(bench, "QoS 0, a read full of packets, 1,000 topics", topics=1000),
            await echo_qos1(bench, "QoS 1, one packet a read, and its acknowledgement"),
            await window(bench, "QoS 1, 100 packets a read, and their acknowledgements", 1),
            await window(bench, "QoS 2, 100 packets a read, and their acknowledgements", 2),
        ):
            cases.append(await bench.examine(made, rounds))
        node.hooks.add("message.publish", passes)
        hooked = await stream(bench, "QoS 0, a read full of packets, a hook at message.publish", topics=2)
        cases.append(await bench.examine(hooked, rounds))
    return cases


def table(cases: Sequence[Case]) -> list[list[str]]:
    rows = [["a delivery", "µs", "operations", "calls", *ORDER]]
    for case in cases:
        total = sum(case.shares.values())
        rows.append(
            [
                case.text,
                f"{case.seconds * 1e6:.2f}",
                f"{sum(case.operations.values()) / case.messages:.1f}",
                f"{sum(case.calls.values()) / case.messages:.2f}",
                *[
                    f"{case.operations[layer] / case.messages:.1f} ({case.shares[layer] / total:.0%})"
                    for layer in ORDER
                ],
            ]
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.anatomy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: whether it runs")
    parser.add_argument("--markdown", action="store_true", help="a table for the docs")
    options = parser.parse_args()
    rows = table(trio.run(examine_all, 3 if options.quick else 200))
    print(f"Python {sys.version.split()[0]}. A layer: operations a delivery (share of the time, by cProfile).\n")
    if options.markdown:
        rows.insert(1, ["---", *["---:"] * (len(rows[0]) - 1)])
        for row in rows:
            print(f"| {' | '.join(row)} |")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *rest = [
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join([first, *rest]))


if __name__ == "__main__":
    main()
