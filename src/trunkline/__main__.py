"""The command `trunkline`: a broker until a signal stops it, and the commands around it."""

import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

import click
import trio

from trunkline.broker.config import Config
from trunkline.management import logs
from trunkline.management.cli import cli
from trunkline.management.command_line import BAD_USAGE, FAILED

logger = logging.getLogger("trunkline")

#: Ctrl-C, what service managers send, and on Windows Ctrl-Break. The second one ends the process at once.
STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
RELOAD = getattr(signal, "SIGHUP", None)

#: Messages on their way are many young objects without cycles. Python's own threshold of 700 has the collector walk
#: through them again and again: a fan-out of single messages ran 1.6 times as fast with this.
YOUNG_OBJECTS = 10_000


def main() -> None:
    cli.main(prog_name="trunkline", obj=run)


def run(read: Callable[[], Config]) -> int:
    """Serve until a signal comes, and return the exit code. `read` reads the configuration, now and at each reload."""
    from trunkline.broker.node import ListenError  # the other commands do without it
    from trunkline.broker.security import SecurityError
    from trunkline.management.control import ControlSocketError

    config = read()
    try:
        logs.configure(config.log)
        gc.freeze()  # what was imported stays
        gc.set_threshold(YOUNG_OBJECTS)
        trio.run(serve, config, read)
    except KeyboardInterrupt:
        pass  # so early that nothing had started
    except SecurityError as error:
        return _say(*error.problems, code=BAD_USAGE)
    except (ListenError, ControlSocketError, OSError) as error:
        return _say(str(error), code=FAILED)
    return 0


async def serve(config: Config, read: Callable[[], Config]) -> None:
    """Run a node until a signal stops it."""
    from trunkline.broker.node import open_node
    from trunkline.management.reloading import ReloadError, reload

    watched = STOP if RELOAD is None else [*STOP, RELOAD]
    with trio.open_signal_receiver(*watched) as signals:
        async with open_node(config, read=read) as node:
            logger.info("serving")
            async for signum in signals:
                if signum == RELOAD:
                    with suppress(ReloadError):  # it is in the log
                        reload(node)
                else:
                    logger.info("stopping on %s", signal.Signals(signum).name)
                    break
            for each in STOP:
                signal.signal(each, signal.SIG_DFL)
    logger.info("stopped")


def _say(*problems: str, code: int) -> int:
    for problem in problems:
        click.echo(f"trunkline: {problem}", err=True)
    return code


if __name__ == "__main__":
    main()
