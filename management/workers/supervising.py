"""The supervisor's process: `trunkline serve` with several workers. For users, and for the service manager, it is the
broker."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trunkline.actors.exits import innermost
from trunkline.management import logs
from trunkline.management.command_line import BAD_USAGE, FAILED, fail
from trunkline.management.control_place import PlaceError
from trunkline.management.process_start import log_start, time_to_end
from trunkline.management.reloading import ReloadError, refusing
from trunkline.management.service_manager import ServiceManager, watchdog_time
from trunkline.management.stop_signals import RELOAD, STOP, signals
from trunkline.management.workers.fleet import Fleet, FleetSettings
from trunkline.management.workers.runtime_folder import RuntimeFolder
from trunkline.management.workers.shared_sockets import SharedSockets
from trunkline.management.workers.terms import StartTerms
from trunkline.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trunkline.config.config import Config
    from trunkline.management.stop_signals import Signals

_logger = logging.getLogger("trunkline")

#: Seconds without a sign of life after which a worker is killed, unless the settings or the service manager say others.
WORKER_TIMEOUT: Final = 30.0
#: Seconds that the supervisor gives its workers besides the time that they give themselves, and that it has itself
#: besides that.
GRACE: Final = 5.0


def supervise(config: Config, read: Callable[[], Config], source: str) -> int:
    """Run the workers until a signal comes, and return the exit code. `read` reads the configuration anew."""
    if os.name == "nt":
        fail(["node.workers: this system has one process for all"], BAD_USAGE)
    count = config.node.worker_count
    try:
        logs.configure(config.log)
        log_start(config, source)
        _logger.info("%d workers", count)
        folder = RuntimeFolder.claim(config, time_to_end(config), _say_waiting)
        try:
            terms = StartTerms(config, count)
            try:
                fleet, sockets = _fleet(config, folder, terms)
                trio.run(_serve, config, read, fleet, sockets)
            finally:
                terms.close()
        finally:
            folder.release()
    except PlaceError as error:
        fail([f"no place for the sockets of the workers: {error}"], FAILED)
    except (StoreError, OSError) as error:
        fail([error], FAILED)
    if fleet.failure is not None:
        fail(fleet.failure.problems, fleet.failure.code)
    return fleet.code


def _say_waiting(folder: Path) -> None:
    _logger.warning("waiting for the workers of a supervisor that has ended: they still have %s", folder)


def _fleet(config: Config, folder: RuntimeFolder, terms: StartTerms) -> tuple[Fleet, SharedSockets]:
    sockets = SharedSockets()
    count, within = config.node.worker_count, sign_of_life(config)
    settings = FleetSettings(count, folder.path, sys.argv[1:], [folder.descriptor], within)
    return Fleet(settings, terms, sockets), sockets


def sign_of_life(config: Config) -> float:
    """Seconds within which a worker has to show that it lives; 0: it need not."""
    timeout = config.node.worker_timeout
    return watchdog_time() or WORKER_TIMEOUT if timeout is None else timeout


async def _serve(config: Config, read: Callable[[], Config], fleet: Fleet, sockets: SharedSockets) -> None:
    patience = time_to_end(config) + GRACE
    manager = ServiceManager()
    stopping, one_at_a_time = trio.Event(), trio.Lock()

    async def reload() -> None:
        async with one_at_a_time:
            manager.reloading()
            await _reload(fleet, read)
            if not stopping.is_set():
                manager.reloaded()

    async def handle(coming: Signals) -> None:
        async for signum in coming.received:
            if signum == RELOAD:
                nursery.start_soon(reload)  # which may take its time, and must not keep it from ending
            else:
                manager.stopping()
                _logger.info("stopping on %s", signal.Signals(signum).name)
                stopping.set()

    try:
        for listener in config.listeners:
            try:
                await sockets.reserve(listener)
            except OSError as error:
                raise OSError(f"cannot listen on {listener.url}: {error.strerror or error}") from error
        with signals(patience + GRACE, partial(_end_at_once, fleet)) as coming:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(handle, coming)
                nursery.start_soon(manager.show_life)
                async with trio.open_nursery() as running:
                    running.start_soon(fleet.run)
                    running.start_soon(_end_if_failed, fleet, stopping)
                    running.start_soon(_say_serving, fleet, manager, stopping)
                    await stopping.wait()
                    await fleet.stop(patience)
                    running.cancel_scope.cancel()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise innermost(group) from None
    finally:
        sockets.close()
    _logger.info("stopped")


async def _end_if_failed(fleet: Fleet, stopping: trio.Event) -> None:
    await fleet.failed.wait()
    stopping.set()


async def _say_serving(fleet: Fleet, manager: ServiceManager, stopping: trio.Event) -> None:
    await fleet.serving.wait()
    if not stopping.is_set():
        _logger.info("serving")
        manager.ready()


async def _reload(fleet: Fleet, read: Callable[[], Config]) -> None:
    """What is wrong with the configuration is found here, once; the workers log all else."""
    try:
        with refusing():
            new = await trio.to_thread.run_sync(read)
            logs.configure(new.log)
    except ReloadError:
        return
    await fleet.reload()


def _end_at_once(fleet: Fleet, signum: int, frame: object) -> None:
    """On the second signal."""
    fleet.kill()
    for each in STOP:
        signal.signal(each, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
