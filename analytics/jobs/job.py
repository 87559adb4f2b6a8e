"""A job: a function from events to results, and what its users must know about it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trunkline.analytics.jobs.catalogue import entry
from trunkline.config.units import parse_duration
from trunkline.events.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: This kind of event lets the time of a stream go on where nothing else happens.
CLOCK: Final = "node.tick"
DAY: Final = 86_400


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


#: A time in seconds; as text also `500ms`, `90s`, `5m`, `2h`, `7d`, as everywhere in Trunkline.
_Duration = Annotated[float, BeforeValidator(parse_duration)]
Seconds = Annotated[_Duration, Field(ge=0)]
Positive = Annotated[_Duration, Field(gt=0)]
UpToADay = Annotated[Positive, Field(le=DAY)]
Count = Annotated[int, Field(ge=1)]
Factor = Annotated[float, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
Calm = Annotated[Seconds, Field(le=DAY)]
#: How many events may be remembered of each subject.
Limited = Annotated[int, Field(ge=1, le=1000)]
#: Several words; as text with commas between them.
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]


class Options(BaseModel):
    """The options of every job. The text below an option is what users read about it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    lateness: Annotated[Seconds, Field(le=7 * DAY)] = 10.0
    """Seconds that an event may come later than the newest one and still count. A stream waits that long before it
    emits a result; of recorded events, all count."""


class OptionError(ValueError):
    """Options that a job does not take."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        #: A line each.
        self.problems = problems


O = TypeVar("O", bound=Options)


@dataclass(frozen=True, repr=False, kw_only=True)
class Job(Generic[O]):
    """See `job`."""

    name: str
    function: "Callable[[DataFrame, O], DataFrame]"
    options: type[O]
    reads: "tuple[str, ...] | Callable[[O], tuple[str, ...]]"
    columns: tuple[Column, ...]
    #: Columns that together identify a row of the result.
    key: tuple[str, ...]
    #: Columns that say when.
    times: tuple[str, ...]

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        if unknown := [column for column in (*self.key, *self.times) if column not in names]:
            raise ValueError(f"job {self.name}: no such columns: {', '.join(unknown)}")

    @property
    def title(self) -> str:
        return entry(self.name).title

    @property
    def summary(self) -> str:
        return entry(self.name).summary

    @property
    def description(self) -> str:
        """How it works and what is exact: paragraphs of one line each."""
        paragraphs = cleandoc(self.function.__doc__ or "").partition("\n\nRaises:")[0].split("\n\n")
        return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)

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
        try:
            return self.options.model_validate(dict(given))
        except ValidationError as error:
            raise OptionError([self._problem(**found) for found in error.errors(include_url=False)]) from None

    def _problem(self, **found: Any) -> str:
        option = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden":
            near = get_close_matches(option, self.options.model_fields, 1, 0.5)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.options.model_fields)}"
            return f"job {self.name} has no option {option!r}: {known}"
        message = found["msg"].removeprefix("Value error, ")
        if not option:
            return f"job {self.name}: {message}"
        return f"job {self.name}, option {option}: {message[0].lower()}{message[1:]} (given: {found['input']!r})"


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
    name: str,
    *,
    options: type[O],
    kinds: "tuple[str, ...] | Callable[[O], tuple[str, ...]]",
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    times: tuple[str, ...] = ("window_start", "window_end"),
) -> "Callable[[Callable[[DataFrame, O], DataFrame]], Job[O]]":
    """Declare a function `(events, options) -> results` to be the job of this name in the catalogue. Its docstring is
    what `explain` prints. `kinds` may depend on the options. Columns may come in any order, and those that are missing
    are null."""

    def declare(function: "Callable[[DataFrame, O], DataFrame]") -> Job[O]:
        return Job(name=name, function=function, options=options, reads=kinds, columns=columns, key=key, times=times)

    return declare
