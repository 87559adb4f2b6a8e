"""The command `trunkline`. What a command needs is imported when it is called."""

import gc
import os
import sys
from errno import ENOSPC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.config.config import Config


def main() -> None:
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the time
    from trunkline.management.cli import cli

    gc.enable()
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    try:
        cli.main(prog_name="trunkline", obj=run)
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        sys.exit(f"trunkline: the output cannot be written: {error.strerror}")


def run(read: "Callable[[], Config]", source: str) -> int:
    gc.disable()
    from trunkline import serving

    gc.enable()
    return serving.run(read, source)


if __name__ == "__main__":
    main()
