"""The command `trunkline`. What a command needs is imported when it is called."""

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.config.config import Config


def main() -> None:
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the time
    from trunkline.management.cli import cli

    gc.enable()
    cli.main(prog_name="trunkline", obj=run)


def run(read: "Callable[[], Config]", source: str) -> int:
    gc.disable()
    from trunkline import serving

    gc.enable()
    return serving.run(read, source)


if __name__ == "__main__":
    main()
