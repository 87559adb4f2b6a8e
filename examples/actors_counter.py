"""An actor that counts words, and one that uses a timer. A caller sees the crash of an actor.

Run it with `python examples/actors_counter.py`.
"""

import trio

from trunkline import actors
from trunkline.actors import Actor, Down


class Counter(Actor[str]):
    """Counts the words of the lines that it gets. Nobody else touches `words`."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def handle(self, message: str) -> None:
        for word in message.split():
            self.words[word] = self.words.get(word, 0) + 1

    def handle_call(self, request: object) -> int:
        if not isinstance(request, str):
            raise TypeError(f"not a word: {request!r}")
        return self.words.get(request, 0)


class Reminder(Actor[str]):
    """Says something every half second, three times."""

    def init(self) -> None:
        self.left = 3
        self.timer = self.send_after(0.5, "half a second has passed")

    def handle(self, message: str) -> None:
        print(message)
        self.left -= 1
        if self.left:
            self.timer.restart(0.5)
        else:
            self.stop()


async def main() -> None:
    async with actors.system() as system:
        counter = system.start(Counter())
        counter.cast("the quick brown fox")  # never waits
        counter.cast("the lazy dog")
        print("the:", await counter.call("the"))

        reminder = system.start(Reminder())
        await reminder.join()

        try:
            await counter.call(42)  # a handler that raises ends its actor
        except Down as down:
            print(down)


if __name__ == "__main__":
    trio.run(main)
