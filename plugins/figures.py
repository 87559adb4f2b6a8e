"""A plugin's metrics and kept state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.hooks.chain import is_crash
from trunkline.mqtt.explanations import worth_logging

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator

#: The largest value of a metric: 64 bits, signed.
MAX_FIGURE: Final = 2**63 - 1


@dataclass(slots=True, eq=False)
class Counter:
    """A number that only grows; in the metrics as `plugins.PLUGIN.NAME`."""

    name: str
    text: str
    value: int = 0

    def add(self, count: int = 1) -> None:
        self.value += count


class Gauge(NamedTuple):
    """A gauge: a value that is read on request."""

    name: str
    text: str
    read: Callable[[], int]


class PluginFigures:
    """The metrics of one plugin. They outlive a restart."""

    __slots__ = ("counters", "errors", "gauges", "kept")

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}
        #: Those of the current run.
        self.gauges: dict[str, Gauge] = {}
        self.kept: dict[str, Any] = {}
        #: Calls of its callbacks that raised, except at the hooks that are registered now.
        self.errors = 0

    def failed(self) -> bool:
        """Count a call that raised. Returns whether to log it."""
        self.errors += 1
        return worth_logging(self.errors)

    def read(self, logger: logging.Logger) -> dict[str, int]:
        """All metrics that can be read and are numbers."""
        figures = {name: counter.value for name, counter in self.counters.items()}
        for name, gauge in self.gauges.items():
            try:
                value = gauge.read()
                if not isinstance(value, int) or abs(value) > MAX_FIGURE:  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError(f"returned {value!r:.80}, which is not a whole number of 64 bits")
            except BaseException as error:
                if not is_crash(error):
                    raise
                if self.failed():
                    logger.exception("the gauge %s cannot be read (%d crashes so far)", name, self.errors)
            else:
                figures[name] = value
        return figures

    def meanings(self) -> Iterator[tuple[str, str]]:
        """The description of each metric."""
        yield from ((counter.name, counter.text) for counter in self.counters.values())
        yield from ((gauge.name, gauge.text) for gauge in self.gauges.values())
