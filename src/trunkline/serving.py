"""A broker of its own, until a signal stops it."""

from __future__ import annotations

import ctypes
import logging
import platform
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from trunkline import garbage
from trunkline.actors.exits import innermost
from trunkline.broker.net.listeners import ListenError
from trunkline.broker.node.opening import NodeFailed, open_node
from trunkline.config.errors import Unusable
from trunkline.config.store_place import store_path
from trunkline.management import logs, service_manager
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.control import ControlSocketError, open_control
from trunkline.management.process_start import check_alone, log_start, time_to_end
from trunkline.management.reloading import ReloadError, reload
from trunkline.management.stop_signals import RELOAD, Signals, signals
from trunkline.store import StoreError, StoreInUse, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.node.admin import Admin
    from trunkline.config.config import Config
    from trunkline.management.service_manager import Overseer
    from trunkline.management.workers.enrolment import Enrolment

logger = logging.getLogger("trunkline")

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


def run(read: Callable[[], Config], source: str, worker: int | None = None) -> int:
    """Serve until a signal comes, and return the exit code. `read` reads the configuration, now and at each reload;
    `source` says where from. `worker` is the descriptor that leads to a supervisor: this is one of its workers."""
    config = read()
    if worker is None:
        if config.node.worker_count > 1:
            from trunkline.management.workers.supervising import supervise

            return supervise(config, read, source)
        return _run(config, read, source)
    from trunkline.management.workers.enrolment import Enrolment

    try:
        enrolment = Enrolment.join(worker)
    except OSError as error:
        fail([f"--worker is for a supervisor: {error}"], BAD_USAGE)
    logs.set_worker(enrolment.number)
    return _run(enrolment.configured(config), lambda: enrolment.configured(read()), source, enrolment)


def _run(config: Config, read: Callable[[], Config], source: str, enrolment: Enrolment | None = None) -> int:
    refuse = fail if enrolment is None else enrolment.cannot_start
    try:
        logs.configure(config.log)
        if enrolment is None:
            log_start(config, source)
            check_alone(config)
        logger.info(_about_store(config))
        _keep_freed_memory()
        garbage.set_up()
        sys.setswitchinterval(SWITCH_INTERVAL)
        trio.run(serve, config, read, enrolment)
    except Unusable as error:  # files of the configuration, and streams that it declares
        refuse(error.problems, BAD_USAGE)
    except (StoreInUse, StoreUnavailable) as error:
        refuse([f"{error}; {OTHER_STORE}"], FAILED)
    except (ListenError, ControlSocketError, NodeFailed, StoreError, OSError) as error:
        refuse([error], FAILED)
    return 0


def _about_store(config: Config) -> str:
    durability = config.durability(standalone=True)
    if durability == "memory":
        unused = "" if config.store.path is None else f"; the store {config.store.path} is not used"
        return f"sessions and retained messages are kept in memory only: they end with this process{unused}"
    return f"store {store_path(config.store, config.node).absolute()}, durability {durability}"


def _keep_freed_memory() -> None:
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-1, KEPT_MEMORY)  # M_TRIM_THRESHOLD
        mallopt(-3, MAPPED_BLOCK)  # M_MMAP_THRESHOLD


async def serve(config: Config, read: Callable[[], Config], enrolment: Enrolment | None = None) -> None:
    """Run a node until a signal stops it, or one of its workers."""
    overseer: Overseer = service_manager.ServiceManager() if enrolment is None else enrolment
    serving: list[Admin] = []
    lost = ""
    stopping = trio.Event()

    async def handle(signals: Signals) -> None:
        async for signum in signals.received:
            if signum == RELOAD:
                with suppress(ReloadError):  # it is in the log
                    for node in serving:
                        overseer.reloading()
                        await reload(node)
                if serving:
                    overseer.reloaded()
            else:
                overseer.stopping()
                logger.info("stopping on %s", signal.Signals(signum).name)
                stopping.set()
                if not serving:  # a plugin may take long to start
                    nursery.cancel_scope.cancel()

    try:
        # from the beginning: a plugin may take its time to start
        # a worker may be sent several, and its supervisor ends it if need be
        again = signal.SIG_DFL if enrolment is None else signal.SIG_IGN
        with signals(time_to_end(config), again) as coming:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(handle, coming)
                nursery.start_soon(garbage.collect)
                nursery.start_soon(overseer.show_life)
                if enrolment is not None:
                    nursery.start_soon(enrolment.run, coming.reload, coming.stop)
                place = None if enrolment is None else enrolment.place
                async with open_node(config, read=read, open_control=open_control, place=place) as node:
                    serving.append(node)
                    if enrolment is not None:
                        enrolment.follow_alarms(node.alarms)
                    if not stopping.is_set():
                        logger.info("serving" if enrolment is None else "ready")
                        overseer.ready()
                    await stopping.wait()
                    lost = await _at_stake(node)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None
    logger.info("stopped%s", lost)


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
