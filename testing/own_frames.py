"""What a test does wrong shows the test's line. The lines of this package below it say nothing to its author, unless
they are what is wrong."""

from __future__ import annotations

import sysconfig
from linecache import getline
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_PACKAGE: Final = __name__.partition(".")[0]
_LIBRARY: Final = sysconfig.get_path("stdlib")
_PACKAGES: Final = sysconfig.get_path("purelib")


def leave_out_own(error: BaseException) -> None:
    """Cut the tracebacks of errors that this package has raised by intent behind the last line of somebody else."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            leave_out_own(each)
    elif is_raised_here(error):
        others = [entry for entry in _entries(error) if not (_is_own(entry) or _is_library(entry))]
        if others:
            others[-1].tb_next = None


def is_raised_here(error: BaseException) -> bool:
    """Whether a `raise` of this package is where it comes from. A fault of the package comes from other lines."""
    entries = list(_entries(error))
    if not entries or not _is_own(entries[-1]):
        return False
    return getline(entries[-1].tb_frame.f_code.co_filename, entries[-1].tb_lineno).lstrip().startswith("raise ")


def _entries(error: BaseException) -> Iterator[TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _is_own(entry: TracebackType) -> bool:
    name: object = entry.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == _PACKAGE


def _is_library(entry: TracebackType) -> bool:
    """Such as contextlib, through which the package calls itself."""
    file = entry.tb_frame.f_code.co_filename
    return file.startswith(_LIBRARY) and not file.startswith(_PACKAGES)
