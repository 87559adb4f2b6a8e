"""Trunkline as it is, and what its event loop does: FILE, and what `trunkline` takes.

At SIGUSR1 it writes to the file how many tasks there are, and the processor time of its longest turn since the last
signal, as JSON. A turn is what a task does between two moments at which another one may run: for so long everything
waits. Other processes do not lengthen its processor time.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from time import thread_time

import trio

from trunkline.__main__ import main


class Watch(trio.abc.Instrument):
    def __init__(self, file: Path) -> None:
        self.file = file
        self.tasks = 0
        self.longest = self.began = 0.0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.tasks += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.tasks -= 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.began = thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.longest = max(self.longest, thread_time() - self.began)

    def write(self, *_: object) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"tasks": self.tasks, "longest_turn": self.longest}))
        os.replace(new, self.file)
        self.longest = 0.0


def run() -> None:
    watch = Watch(Path(sys.argv.pop(1)))
    signal.signal(signal.SIGUSR1, watch.write)
    trio.run = partial(trio.run, instruments=[watch])
    main()


if __name__ == "__main__":
    run()
