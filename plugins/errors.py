"""What can be wrong with a plugin."""

from trunkline.config.errors import Unusable
from trunkline.hooks.chain import CRASHES


class PluginError(Unusable):
    """A plugin cannot be used as it is. `problems` says all that is wrong with it, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems


def is_crash(error: BaseException) -> bool:
    """Is it a crash of the plugin, or a group of nothing else? The rest is for trio, or for who pressed Ctrl-C."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(CRASHES)[1] is None  # pyright: ignore[reportUnknownMemberType]
    return isinstance(error, CRASHES)
