"""Operations: functions on a running broker, with a name and typed arguments.

The control socket runs operations by name, `trunkline ctl` makes its commands of them. An operation's arguments and
description are in its signature and docstring, nowhere else.
"""

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast, get_origin, get_type_hints

from annotated_types import Interval
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from trunkline.broker.node.admin import Admin
from trunkline.broker.shards.homes import FIRST
from trunkline.config.key_path import nearest
from trunkline.config.units import accepted
from trunkline.management.control_place import SOCKET
from trunkline.mqtt.errors import ProtocolError
from trunkline.plugins.errors import PluginError

#: Rows of a page, and of one step of a listing before other work gets its turn.
AT_ONCE: Final = 500

_STRICT: Final = ConfigDict(strict=True, extra="forbid", defer_build=True)

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: Where the next page begins: the key of the last row that was read.
Cursor: TypeAlias = str | int | list[str]


class OperationError(Exception):
    """The operation cannot be done. The text is for the caller."""

    code: ClassVar[str]


class NotFound(OperationError):
    """The operation, or the object that it names, does not exist."""

    code = "not_found"


class Refused(OperationError):
    """The object exists, but the operation cannot be done."""

    code = "refused"


class Elsewhere(Refused):
    """It is another worker's."""

    code = "elsewhere"


class BadRequest(OperationError):
    """The operation does not take these arguments."""

    code = "bad_request"


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Some rows of a listing, and where the next page begins; None at the end. A page may be short without being the
    last."""

    rows: list[R]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class Operation:
    """A function with its name. `cursor` returns the cursor of the page that follows a row."""

    name: str
    doc: str
    #: Has a field for each argument.
    model: type[BaseModel]
    function: Callable[..., Any]
    #: Whether it returns a `Page`.
    listing: bool
    #: None for a listing whose cursor is a number of rows.
    cursor: Callable[[Any], Cursor] | None

    def first_of(self, page: Page[Any], count: int, arguments: Mapping[str, object]) -> Page[Any]:
        """A shorter page with the same beginning."""
        if count >= len(page.rows):
            return page
        rows = page.rows[:count]
        if self.cursor is not None:
            return Page(rows, self.cursor(rows[-1]))
        return Page(rows, cast("int", arguments.get("after", 0)) + count)

    @property
    def arguments(self) -> dict[str, FieldInfo]:
        return self.model.model_fields

    async def run(self, broker: Admin, arguments: Mapping[str, object]) -> object:
        """Raises OperationError if it cannot be done."""
        if is_of_streams(self.name) and not broker.is_first:
            raise at_first(broker, "the streams of this node are")
        try:
            checked = self.model.model_validate(arguments)
        except ValidationError as error:
            raise BadRequest("; ".join(self._problems(error, arguments))) from None
        values = {name: getattr(checked, name) for name in checked.model_fields_set}
        if "limit" in values:
            values["limit"] = min(cast("int", values["limit"]), AT_ONCE)
        try:
            result = self.function(broker, **values)
            return await cast("Awaitable[object]", result) if inspect.isawaitable(result) else result
        except ProtocolError as error:
            raise BadRequest(str(error)) from error
        except PluginError as error:
            raise Refused("; ".join(error.problems)) from error

    def _problems(self, error: ValidationError, arguments: Mapping[str, object]) -> Iterator[str]:
        known, details = self.arguments, error.errors()
        for detail in details:
            name = str(detail["loc"][0])
            if detail["type"] == "extra_forbidden":
                hint = nearest(name, known) or (f"; it takes {', '.join(known)}" if known else "; it takes none")
                yield f"{self.name} takes no argument {name!r}{hint}"
            elif detail["type"] != "missing":
                yield f"{name}: {arguments[name]!r:.80}: accepted is {accepted(known[name])}"
        if missing := [str(detail["loc"][0]) for detail in details if detail["type"] == "missing"]:
            yield f"{self.name} needs {', '.join(missing)}"


def is_of_streams(operation: str) -> bool:
    """Whether it is for the worker with the streams."""
    return operation.startswith("streams.")


def at_first(broker: Admin, what: str) -> Elsewhere:
    """Of a worker that was asked for what the first one has: where to ask."""
    assert broker.control is not None
    path = broker.control.path.with_name(f"{FIRST}{SOCKET}")
    return Elsewhere(f"{what} at worker {FIRST}: ask it with --socket {path}")


OPERATIONS: Final[dict[str, Operation]] = {}


def operation(name: str, cursor: Callable[[Any], Cursor] | None = None) -> Callable[[F], F]:
    """Register a function, plain or async. Its first argument is the broker; each further one is
    `Annotated[type, "its meaning"]`."""

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        listing = get_origin(hints["return"]) is Page
        doc = inspect.getdoc(function) or ""
        parameters = list(inspect.signature(function).parameters.values())[1:]
        fields: dict[str, Any] = {
            each.name: (hints[each.name], ... if each.default is each.empty else each.default) for each in parameters
        }
        OPERATIONS[name] = Operation(
            name, doc, create_model(name, __config__=_STRICT, **fields), function, listing, cursor
        )
        return function

    return register


def find(name: str) -> Operation:
    """Raises NotFound if there is none with this name."""
    found = OPERATIONS.get(name)
    if found is None:
        raise NotFound(f"no operation {name!r:.80}{nearest(name[:80], OPERATIONS)}")
    return found


@contextmanager
def answering() -> Generator[None]:
    """Turns an exception of the broker about a request into the answer."""
    try:
        yield
    except ValueError as error:
        raise BadRequest(str(error)) from error
    except LookupError as error:
        raise NotFound(str(error.args[0] if error.args else error)) from error


#: Arguments that several operations have.
After = Annotated[str, "Start after this key."]
Position = Annotated[int, "Skip this many rows.", Interval(ge=0)]
Limit = Annotated[int, "The most rows of a page.", Interval(ge=1)]


def page_at(rows: Sequence[R], after: int, limit: int) -> Page[R]:
    """The page of a list that is short enough to be built as a whole."""
    page = list(rows[after : after + limit])
    return Page(page, after + limit if after + limit < len(rows) else None)
