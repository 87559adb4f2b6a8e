"""What a QoS 1 message costs until its publisher has PUBACK: `python -m bench.until_puback [--modules]`.

The calls of Python functions and the operations of its virtual machine, in the broker's thread, for one message at a
time to one client that is there: once in memory, and once where PUBACK waits until the client's session is stored. The
connections are those of `bench.anatomy`: no system call is counted, nor what the thread that writes does.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio
import trio.testing

from bench import wire
from bench.anatomy import PACKAGE, Bench, Line, counting, publish
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

#: Messages before, in which routes get known, and those that are counted, of which the cheapest is told.
BEFORE, COUNTED = 10, 20
PUBACK: Final = b"\x40\2"
#: The flag of a session that goes with its connection, and where it stands in the CONNECT of `bench.wire`.
CLEAN, FLAGS = 2, 9


class Cost(NamedTuple):
    """Of one message, by module."""

    calls: Counter[str]
    operations: Counter[str]

    def __str__(self) -> str:
        return f"{self.calls.total()} calls, {self.operations.total()} operations"


def module(file: str) -> str | None:
    return file.removeprefix(PACKAGE) if file.startswith(PACKAGE) else None


async def until(happened: Callable[[], bool]) -> None:
    """A thread has to do something."""
    with trio.fail_after(60):
        while not happened():
            await trio.lowlevel.checkpoint()


async def stay(bench: Bench, name: str, topic: str) -> Line:
    """A client whose session outlives its connection."""
    line = Line()
    bench.node.listeners[0].acceptor.accept(line)
    connect = bytearray(wire.connect(name, wire.V311))
    connect[FLAGS] &= ~CLEAN
    for data in (bytes(connect), wire.subscribe(topic, 1, wire.V311)):
        with bench.node.scheduler.turn:
            line.feed(data)
        await until(lambda: bool(line.sent))
        line.sent.clear()
    return line


async def one(bench: Bench, publisher: Line, subscriber: Line, number: int) -> bytes:
    """Send a message. Returns the acknowledgement that the subscriber owes."""
    turn = bench.node.scheduler.turn
    with turn:
        publisher.feed(publish("t", 1, number))
    await until(lambda: any(PUBACK in data for data in publisher.sent))
    sent = b"".join(subscriber.sent)
    place = sent.index(b"\0\1t") + 3
    publisher.sent.clear()
    subscriber.sent.clear()
    return PUBACK + sent[place : place + 2]


async def cost(*, stored: bool) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        store = {"durability": "os", "path": str(Path(folder) / "s.db")} if stored else {"durability": "memory"}
        settings: dict[str, Any] = {"listeners": [{"url": "tcp://127.0.0.1:0"}], "control": {"enabled": False}}
        async with open_node(from_mapping({**settings, "store": store})) as admin:
            bench = Bench(admin)
            subscriber, publisher = await stay(bench, "subscriber", "t"), await bench.line("publisher")
            costs: list[Cost] = []
            gc.disable()
            try:
                for number in range(1, BEFORE + COUNTED + 1):
                    if number <= BEFORE:
                        answer = await one(bench, publisher, subscriber, number)
                    else:
                        operations, calls = Counter[str](), Counter[str]()
                        with counting(module, operations, calls):
                            answer = await one(bench, publisher, subscriber, number)
                        costs.append(Cost(calls, operations))
                    with bench.node.scheduler.turn:
                        subscriber.feed(answer)
                    await trio.testing.wait_all_tasks_blocked(0.001)
            finally:
                gc.enable()
    return min(costs, key=lambda each: each.calls.total())  # others meet a timer, or another commit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.until_puback", description=__doc__)
    parser.add_argument("--modules", action="store_true", help="what each module does")
    options = parser.parse_args()
    for text, stored in (("in memory", False), ("stored", True)):
        found = trio.run(lambda stored=stored: cost(stored=stored))
        print(f"{text}: {found}")
        for name, number in found.operations.most_common() if options.modules else ():
            print(f"  {found.calls[name]:6} {number:8}  {name}")


if __name__ == "__main__":
    main()
