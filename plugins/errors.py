"""What can be wrong with a plugin."""

from collections.abc import Generator
from contextlib import contextmanager

from trunkline.config.errors import Unusable
from trunkline.hooks.chain import is_crash


class PluginError(Unusable[str]):
    """A plugin cannot be used as it is."""


def ends_process(error: BaseException) -> bool:
    """Whether the plugin raised what would end the process: `sys.exit()`, or another error that is no `Exception`."""
    return not isinstance(error, Exception) and is_crash(error)


@contextmanager
def contained(what: str) -> Generator[None]:
    """What would end the process is an error of the plugin's instead."""
    try:
        yield
    except BaseException as error:
        if not ends_process(error):
            raise
        raise PluginError([f"{what} wanted to end the process: {error!r}"]) from error
