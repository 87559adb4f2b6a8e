"""A job: a function from events to results, and what its users must know about it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Final, Generic, TypeVar

from pydantic import ConfigDict, Field

from trunkline.analytics.options import DAY, OptionModel, Seconds, read
from trunkline.events.columns import Column
from trunkline.events.columns import columns as parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: This kind of event lets the time of a stream go on where nothing else happens.
CLOCK: Final = "node.tick"


class Options(OptionModel):
    """The options of every job. The text below an option is what users read about it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    lateness: Annotated[Seconds, Field(le=7 * DAY)] = 10.0
    """Seconds that an event may come later than the newest one and still count. A stream waits that long before it
    emits a result; of recorded events, all count."""


#: Columns of each result of a window.
_BOUNDS: Final = parsed(
    """
    window_start timestamp Begin of the window.
    window_end timestamp End of the window, exclusive.
    """
)

O = TypeVar("O", bound=Options)


@dataclass(frozen=True, repr=False, kw_only=True)
class Job(Generic[O]):
    """See `job`."""

    function: "Callable[[DataFrame, O], DataFrame]"
    options: type[O]
    reads: "tuple[str, ...] | Callable[[O], tuple[str, ...]]"
    columns: tuple[Column, ...]
    #: Columns that together identify a row of the result.
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        if unknown := [column for column in self.key if column not in names]:
            raise ValueError(f"job {self.name}: no such columns: {', '.join(unknown)}")

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", "-")

    @property
    def description(self) -> list[str]:
        """What it answers, how it works and what is exact: paragraphs of one line each, the first for lists."""
        paragraphs = cleandoc(self.function.__doc__ or "").partition("\n\nRaises:")[0].split("\n\n")
        return [paragraph.replace("\n", " ") for paragraph in paragraphs]

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that say when."""
        return tuple(column.name for column in self.columns if column.type == "timestamp")

    def __call__(self, events: "DataFrame", options: O | None = None) -> "DataFrame":
        """Raises TypeError: the options are another job's."""
        if options is None:
            options = self.options()
        elif type(options) is not self.options:
            raise TypeError(f"job {self.name} takes {self.options.__name__}, not {type(options).__name__}")
        return _in_columns(self.function(events, options), self.columns)

    def kinds(self, options: O | None = None) -> tuple[str, ...]:
        """The kinds of events that it reads; and `node.tick`, without which the windows of a stream would stay open."""
        kinds = self.reads(options or self.options()) if callable(self.reads) else self.reads
        return tuple(dict.fromkeys((*kinds, CLOCK)))

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def read_options(self, given: Mapping[str, object]) -> O:
        """The options of the job, from texts or values.

        Raises:
            OptionError: naming each one that is wrong.
        """
        return read(self.options, given, name=str, owner=f"job {self.name}: ")


def _in_columns(results: "DataFrame", columns: tuple[Column, ...]) -> "DataFrame":
    """With these columns in order: null where the job has none of a name; the bounds of a `window` by their names."""
    from pyspark.sql import Column as Expression
    from pyspark.sql import functions as F

    there = dict.fromkeys(results.columns)

    def values() -> Iterator[Expression]:
        for name, type, _ in columns:
            if name in there:
                yield F.col(name)
            elif "window" in there and name in ("window_start", "window_end"):
                yield F.col(f"window.{name.removeprefix('window_')}").alias(name)
            else:
                yield F.lit(None).cast(type).alias(name)

    return results.select(*values())


def job(
    *,
    options: type[O],
    kinds: "tuple[str, ...] | Callable[[O], tuple[str, ...]]",
    columns: str,
    key: tuple[str, ...],
) -> "Callable[[Callable[[DataFrame, O], DataFrame]], Job[O]]":
    """Declare a function `(events, options) -> results` to be the job of its name. Its docstring is what `explain`
    prints, and its first line what lists show. `kinds` may depend on the options. `columns` has a line for each: name,
    type, meaning; those of a window are added where `window_start` is in the key. The function may give them in any
    order, and those that it does not give are null."""
    all_columns = (*(_BOUNDS if "window_start" in key else ()), *parsed(columns))

    def declare(function: "Callable[[DataFrame, O], DataFrame]") -> Job[O]:
        return Job(function=function, options=options, reads=kinds, columns=all_columns, key=key)

    return declare
