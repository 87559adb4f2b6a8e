"""Options as Spark and command lines hand them over: text by name. A model declares each of them once, with its default
and what it takes."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trunkline.config.fields import is_secret
from trunkline.config.key_path import nearest
from trunkline.config.units import (
    Accepts,
    Duration,
    OptionalDuration,
    OptionalSize,
    Text,
    accepted,
    from_text,
    own_words,
)

DAY: Final = 86_400

#: Text that is not blank.
Word = Annotated[Text, Field(pattern=r"\S")]
OptionalWord = Annotated[str | None, Accepts("text"), Field(pattern=r"\S")]
#: Several words; as text with commas between them.
Names = tuple[Text, ...]
SomeNames = Annotated[Names, Field(min_length=1)]
Seconds = Duration
Positive = Annotated[Duration, Field(gt=0)]
OptionalPositive = Annotated[OptionalDuration, Field(gt=0)]
UpToADay = Annotated[Positive, Field(le=DAY)]
Calm = Annotated[Seconds, Field(le=DAY)]
Count = Annotated[int, Field(ge=1)]
OptionalCount = Annotated[int | None, Field(ge=1)]
OptionalBytes = Annotated[OptionalSize, Field(ge=1)]
Factor = Annotated[float, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
#: How many events may be remembered of each subject.
Limited = Annotated[int, Field(ge=1, le=1000)]


class OptionError(ValueError):
    """Options that are unknown or missing, or that have values which they cannot have."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        #: A line each.
        self.problems = list(problems)


class OptionModel(BaseModel):
    """A field is an option, unless it is excluded."""

    # not built in processes that are only sent such a model
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


M = TypeVar("M", bound=OptionModel)


def by_option(model: type[OptionModel], name: Callable[[str], str] = to_camel) -> dict[str, str]:
    """The names of fields by those of their options: `startingOffsets` is the field `starting_offsets`."""
    return {name(field): field for field, info in model.model_fields.items() if not info.exclude}


def read(
    model: type[M],
    given: Mapping[str, object],
    *,
    name: Callable[[str], str] = to_camel,
    owner: str = "",
    also: str = "",
    **more: object,
) -> M:
    """A model from texts or values by the names of options, which are taken in any case, as everywhere in Spark.

    `owner` stands before each problem, and `also` names options that are read elsewhere. `more` are fields that are
    not options.

    Raises:
        OptionError: with all that is wrong.
    """
    known = by_option(model, name)
    names = {option.lower(): option for option in known}
    values: dict[str, object] = dict(more)
    texts: dict[str, object] = {}
    problems: list[str] = []
    for option, value in given.items():
        field = known.get(names.get(option.lower(), ""))
        if field is None:
            hint = nearest(option, known) or f"; there are {', '.join(known)}{also}"
            problems.append(f"{owner}unknown option {option}{hint}")
        else:
            texts[field] = value
            values[field] = from_text(model.model_fields[field], value) if isinstance(value, str) else value
    try:
        found = model.model_validate(values)
    except ValidationError as error:
        problems += [f"{owner}{_problem(model, detail, texts, name)}" for detail in error.errors()]
    else:
        if not problems:
            return found
    raise OptionError(*problems)


def _problem(model: type[OptionModel], detail: Any, texts: Mapping[str, object], name: Callable[[str], str]) -> str:
    if not detail["loc"]:
        return own_words(detail) or str(detail["msg"])
    field = str(detail["loc"][0])
    info = model.model_fields[field]
    if detail["type"] == "missing":
        return f"option {name(field)} is missing"
    value = "" if is_secret(info.annotation) else f"={texts.get(field)!r}"
    return f"option {name(field)}{value}: {own_words(detail) or f'expected {accepted(info)}'}"
