"""Which run of how many it is, and how long the rest will take; on standard error."""

import sys
import time
from typing import TextIO


class Progress:
    def __init__(self, runs: int, stream: TextIO = sys.stderr) -> None:
        self.runs, self.stream = runs, stream
        self.done = 0
        self.started = time.monotonic()

    def begin(self, what: str) -> None:
        width = len(str(self.runs))
        self.say(f"[{self.done + 1:{width}}/{self.runs}] {what}{self.left()}")

    def end(self) -> None:
        self.done += 1

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def left(self) -> str:
        """By what a run took so far."""
        if not self.done:
            return ""
        seconds = (time.monotonic() - self.started) / self.done * (self.runs - self.done)
        return f"; {duration(seconds)} left"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
