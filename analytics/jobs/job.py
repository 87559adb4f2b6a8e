"""What a job is: a function from events to results, with what a reader of either must know of it."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trunkline.analytics.jobs.catalogue import entry
from trunkline.config.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Lets the time of a stream go on where nothing else happens.
CLOCK: Final = "node.tick"


def _names(value: object) -> object:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


#: An option that is a time in seconds; as text also `500ms`, `90s`, `5m`, `2h`, `7d`, as everywhere in Trunkline.
Seconds = Annotated[float, BeforeValidator(parse_duration)]
#: An option that is several words; as text with commas between them.
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class Options(BaseModel):
    """What every job lets one choose. Each option says its unit in its description."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    lateness: Seconds = Field(
        default=10.0,
        ge=0,
        le=7 * 86400,
        description="Seconds that an event may come later than the newest one and still count. In a stream a result "
        "waits for that long; of recorded events all count.",
    )


class OptionError(ValueError):
    """Options that a job does not take."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        #: A line each.
        self.problems = problems


class Column(NamedTuple):
    """A column of a job's result."""

    name: str
    #: As Spark writes it: `DataFrame.schema` of the result says the same.
    type: str
    #: With its unit.
    meaning: str


O = TypeVar("O", bound=Options)


class Job(Generic[O]):
    """A function `(events, options) -> results` over the table of events, recorded or streamed, as `job` declares it."""

    def __init__(
        self,
        name: str,
        function: "Callable[[DataFrame, O], DataFrame]",
        options: type[O],
        kinds: "tuple[str, ...] | Callable[[O], tuple[str, ...]]",
        columns: tuple[Column, ...],
        key: tuple[str, ...],
        times: tuple[str, ...],
        mode: Literal["append", "update"],
    ) -> None:
        self.name = name
        self.title, self.summary = entry(name)[1:]
        #: How it works and what is exact, in paragraphs of one line.
        paragraphs = cleandoc(function.__doc__ or "").partition("\n\nRaises:")[0].split("\n\n")
        self.description = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
        self.function = function
        self.options = options
        self._kinds = kinds
        self.columns = columns
        #: Columns that together name a row of the result: one row for each, or the latest row for each with "update".
        self.key = key
        #: Columns that say when.
        self.times = times
        #: In a stream: "append" when a row is final once it is out, "update" when later ones replace it.
        self.mode = mode
        names = {column.name for column in columns}
        if unknown := [column for column in (*key, *times) if column not in names]:
            raise ValueError(f"job {name}: no such columns: {', '.join(unknown)}")

    def __call__(self, events: "DataFrame", options: O | None = None) -> "DataFrame":
        """
        Raises:
            TypeError: when the options are another job's.
        """
        if options is None:
            options = self.options()
        elif type(options) is not self.options:
            raise TypeError(f"job {self.name} takes {self.options.__name__}, not {type(options).__name__}")
        return self.function(events, options)

    def kinds(self, options: O | None = None) -> tuple[str, ...]:
        """The kinds of events that it reads; and `node.tick`, without which the windows of a stream would stay open."""
        kinds = self._kinds(options or self.options()) if callable(self._kinds) else self._kinds
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


def job(
    name: str,
    *,
    options: type[O],
    kinds: "tuple[str, ...] | Callable[[O], tuple[str, ...]]",
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    times: tuple[str, ...] = ("window_start", "window_end"),
    mode: Literal["append", "update"] = "append",
) -> "Callable[[Callable[[DataFrame, O], DataFrame]], Job[O]]":
    """Declare a function to be the job of this name in the catalogue. Its docstring is what `explain` prints. `kinds` may
    depend on the options."""

    def declare(function: "Callable[[DataFrame, O], DataFrame]") -> Job[O]:
        return Job(name, function, options, kinds, columns, key, times, mode)

    return declare
