"""Optional libraries that a plugin needs: those of an extra of the distribution."""

from importlib.util import find_spec
from typing import ClassVar, Self

from pydantic import model_validator

from trunkline.plugins import PluginError, Settings


class NeedsExtra(Settings):
    """Settings of a plugin that needs an extra. Without it, a configuration that enables the plugin is refused."""

    extra: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _installed(self) -> Self:
        if self.enabled and (words := self._missing()):
            raise ValueError(words)
        return self

    def _missing(self) -> str:
        missing = [library for library in self.libraries if find_spec(library) is None]
        return f"needs {' and '.join(missing)}: pip install 'trunkline[{self.extra}]'" if missing else ""

    def check_installed(self) -> None:
        """For the plugin's start: a plugin may also be started without the configuration.

        Raises:
            PluginError: a library is missing.
        """
        if words := self._missing():
            raise PluginError([words])
