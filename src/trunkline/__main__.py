"""The command `trunkline`. What a command needs is imported when it is called."""

import gc
import os
import signal
import sys
from errno import ENOSPC

TYPE_CHECKING = False  # as of `typing`, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.config.config import Config


def main() -> None:
    # Ctrl-C in the middle of an import would show a traceback, or would be lost
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # a broker has yet to read what SIGHUP asks to read again; other commands end with their terminal
    if hasattr(signal, "SIGHUP") and all(word == "serve" or word.startswith("-") for word in sys.argv[1:2]):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the time
    from trunkline.management.cli import cli

    gc.enable()
    signal.signal(signal.SIGINT, former)
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:  # what is printed there would go to standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        cli.main(prog_name="trunkline", obj=run)
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        sys.exit(f"trunkline: the output cannot be written: {error.strerror}")


def run(read: "Callable[[], Config]", source: str, worker: int | None) -> int:
    # until the broker handles signals
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    from trunkline import serving

    gc.enable()
    return serving.run(read, source, worker)


if __name__ == "__main__":
    main()
