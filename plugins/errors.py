"""Errors of plugins."""

from collections.abc import Generator
from contextlib import contextmanager

from trunkline.config.errors import Unusable
from trunkline.hooks.chain import is_crash


class PluginError(Unusable[str]):
    """A plugin cannot be used."""


def ends_process(error: BaseException) -> bool:
    """Whether the plugin raised an exception that would end the process: `sys.exit()`, or another one that is not an
    `Exception`."""
    return not isinstance(error, Exception) and is_crash(error)


@contextmanager
def contained(what: str) -> Generator[None]:
    """Turns an exception that would end the process into an error of the plugin."""
    try:
        yield
    except BaseException as error:
        if not ends_process(error):
            raise
        raise PluginError([f"{what} tried to end the process: {error!r}"]) from error
