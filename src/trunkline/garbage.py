"""The garbage collector of a broker's own process, in short pauses.

Everything waits while the collector walks through objects, and the walk takes as long as there are objects.
Connections, sessions and messages are freed by their reference counts. The collector only has to find cycles, which are
rare and mostly young. So it looks at young objects often, while they are few, and at all of them when the broker has
nothing else to do.
"""

import gc
import logging
from collections.abc import Callable
from time import process_time
from typing import Final

import trio

#: Python's own threshold of 700 has the collector walk through messages on their way again and again: a fan-out of
#: single messages ran 1.6 times as fast with this.
YOUNG_OBJECTS: Final = 10_000
#: The second generation is looked at every other time. Python's own 10 made pauses of 80 ms while 2,000 clients came.
SECOND: Final = 0
NEVER: Final = 1_000_000_000

#: Seconds between two looks at young objects. Python counts what was made less what was freed: while clients come as
#: fast as others go, that is nothing, and there is no end to the young objects.
YOUNG_INTERVAL: Final = 0.1
#: The same while the broker is idle. Ten looks a second took half a percent of a core.
IDLE_INTERVAL: Final = 1.0
#: Seconds between two looks at all objects, and the longest wait for a moment in which the broker is idle.
FULL_INTERVAL: Final = 600.0
MAX_WAIT: Final = 3600.0
#: The share of a processor's time below which the broker is idle.
IDLE: Final = 0.1

logger = logging.getLogger("trunkline")


def set_up() -> None:
    """To be called once, when everything is imported: that stays."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, SECOND, NEVER)


async def collect(used: Callable[[], float] = process_time) -> None:
    """Until cancelled. `used` is the processor time that the process has used."""
    last, before, interval = trio.current_time(), used(), YOUNG_INTERVAL
    while True:
        await trio.sleep(interval)
        gc.collect(1)
        now, after = trio.current_time(), used()
        idle = after - before < IDLE * interval
        interval = IDLE_INTERVAL if idle else YOUNG_INTERVAL
        if now >= last + (FULL_INTERVAL if idle else MAX_WAIT):
            gc.collect()
            logger.debug("looked for garbage in all objects: %.0f ms", 1000 * (used() - after))
            last = now
        before = used()
