"""A broker of its own, until a signal stops it."""

import ctypes
import logging
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import inf

import trio

from trunkline import __version__, garbage
from trunkline.actors.exits import innermost
from trunkline.broker.net.listeners import ListenError
from trunkline.broker.node.admin import Admin
from trunkline.broker.node.opening import NodeFailed, open_node
from trunkline.config.config import Config
from trunkline.config.errors import Unusable
from trunkline.config.store_place import store_path
from trunkline.config.units import NEVER
from trunkline.management import logs, service_manager
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.control import ControlSocketError, open_control
from trunkline.management.reloading import ReloadError, reload
from trunkline.store import StoreError, StoreInUse, StoreUnavailable

logger = logging.getLogger("trunkline")

#: Ctrl-C, what service managers send, and on Windows Ctrl-Break. The second one ends the process at once.
STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
RELOAD = getattr(signal, "SIGHUP", None)

#: Seconds that a broker has to end, besides those of each plugin.
MAX_END = 30.0
MAX_END_EACH = 10.0

#: The way out where a broker cannot have the store that it should.
OTHER_STORE = (
    "a broker has a store of its own with --store FILE (store.path) or another node.name, and none with "
    'store.durability = "memory"'
)

#: Seconds after which a thread that waits for the interpreter gets it: the one that writes the store. With Python's own
#: 5 ms a commit of 1,000 rows beside a busy broker took 8.5 ms more than the disk, with this 4.9.
SWITCH_INTERVAL = 0.001

#: Bytes of freed memory that glibc keeps for the next turn, and of the smallest block that it maps by itself. With its
#: own figures it gives back what a turn has read and faults it in again for the next one, a tenth of a stream's time.
KEPT_MEMORY = 32 << 20
MAPPED_BLOCK = 4 << 20


def run(read: Callable[[], Config], source: str) -> int:
    """Serve until a signal comes, and return the exit code. `read` reads the configuration, now and at each reload;
    `source` says where from."""
    config = read()
    try:
        logs.configure(config.log)
        python = platform.python_version()
        logger.info("trunkline %s, Python %s, process %d, %s", __version__, python, os.getpid(), source)
        logger.info(_about_store(config))
        logger.info(_about_expiry(config))
        _keep_freed_memory()
        garbage.set_up()
        sys.setswitchinterval(SWITCH_INTERVAL)
        trio.run(serve, config, read)
    except Unusable as error:  # files of the configuration, and streams that it declares
        fail(error.problems, BAD_USAGE)
    except (StoreInUse, StoreUnavailable) as error:
        fail([f"{error}; {OTHER_STORE}"], FAILED)
    except (ListenError, ControlSocketError, NodeFailed, StoreError, OSError) as error:
        fail([error], FAILED)
    return 0


def _about_store(config: Config) -> str:
    durability = config.durability(standalone=True)
    if durability == "memory":
        unused = "" if config.store.path is None else f"; the store {config.store.path} is not used"
        return f"sessions and retained messages are kept in memory only: they end with this process{unused}"
    return f"store {store_path(config.store, config.node).absolute()}, durability {durability}"


def _about_expiry(config: Config) -> str:
    """Said aloud, as other brokers keep them for ever."""
    seconds = config.session.expiry_interval
    if seconds == NEVER:
        return "sessions of MQTT 3.1 and 3.1.1 outlive their connections for ever (session.expiry_interval)"
    ends = f"end {timedelta(seconds=seconds)} after their connections" if seconds else "end with their connections"
    return f'sessions of MQTT 3.1 and 3.1.1 {ends}: session.expiry_interval, which may be "never"'


def _keep_freed_memory() -> None:
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-1, KEPT_MEMORY)  # M_TRIM_THRESHOLD
        mallopt(-3, MAPPED_BLOCK)  # M_MMAP_THRESHOLD


async def serve(config: Config, read: Callable[[], Config]) -> None:
    """Run a node until a signal stops it."""
    serving: list[Admin] = []
    lost = ""
    stopping = trio.Event()

    async def handle(signals: trio.MemoryReceiveChannel[int]) -> None:
        async for signum in signals:
            if signum == RELOAD:
                with suppress(ReloadError):  # it is in the log
                    for node in serving:
                        service_manager.reloading()
                        await reload(node)
                service_manager.notify(*[service_manager.READY] * len(serving))
            else:
                service_manager.notify(service_manager.STOPPING)
                logger.info("stopping on %s", signal.Signals(signum).name)
                stopping.set()
                if not serving:  # a plugin may take long to start
                    nursery.cancel_scope.cancel()

    try:
        # from the beginning: a plugin may take its time to start
        with _signals(MAX_END + MAX_END_EACH * len(config.plugins)) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(handle, signals)
                nursery.start_soon(garbage.collect)
                nursery.start_soon(service_manager.show_life)
                async with open_node(config, read=read, open_control=open_control) as node:
                    serving.append(node)
                    if not stopping.is_set():
                        logger.info("serving")
                        service_manager.notify(service_manager.READY)
                    await stopping.wait()
                    lost = await _at_stake(node)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None
    logger.info("stopped%s", lost)


@contextmanager
def _signals(time_to_end: float) -> Generator[trio.MemoryReceiveChannel[int]]:
    """The signals that come. After one of STOP the process ends, at the latest when this time is over, and at the next
    one at once: what the handler does it does even when something blocks the event loop."""
    sender, receiver = trio.open_memory_channel[int](inf)
    token = trio.lowlevel.current_trio_token()

    def pass_on(signum: int, frame: object) -> None:
        if signum in STOP:
            for each in STOP:
                signal.signal(each, signal.SIG_DFL)
            if RELOAD is not None:
                signal.signal(RELOAD, signal.SIG_IGN)
            _end_within(time_to_end)
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(sender.send_nowait, signum)

    former = {each: signal.signal(each, pass_on) for each in [*STOP, *([] if RELOAD is None else [RELOAD])]}
    try:
        yield receiver
    finally:
        for each, handler in former.items():
            if signal.getsignal(each) is pass_on:
                signal.signal(each, handler)


async def _at_stake(node: Admin) -> str:
    """The state that clients rely on and that ends with the process, if there is any."""
    if node.has_store:
        return ""
    figures = await node.figures()
    sessions, retained = node.clients.lasting, figures["retained.count"]
    waiting = figures["queue.count"] + figures["inflight.count"]
    if not sessions and not retained and not waiting:
        return ""
    lost = f"sessions {sessions:,}, retained messages {retained:,}, messages not delivered {waiting:,}"
    return f"; gone, as they were kept in memory only: {lost}"


def _end_within(seconds: float) -> None:
    """A plugin that blocks, or that does not let itself be cancelled, must not keep the process alive for ever."""

    def end() -> None:
        logger.critical("not stopped after %g s; the process ends all the same", seconds)
        os._exit(FAILED)

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()
