"""From the option `path` to the log there: a directory, or a place in an object store."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.options import OptionError
from trunkline.analytics.source.options import STORAGE
from trunkline.events.layout import local_root, matching

if TYPE_CHECKING:
    import pyarrow.fs

    from trunkline.analytics.source.options import SourceSettings
    from trunkline.events.reader import EventLog

#: Which file system of pyarrow is meant.
_SYSTEMS: Final = {
    "s3": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
}
#: Its parameters that are numbers; access keys of digits alone stay text.
_NUMBERS: Final = frozenset({"connect_timeout", "request_timeout"})
_OF_ONE: Final = "option consumer={!r}: each log keeps positions of its own; name one"


def check_place(settings: "SourceSettings") -> None:
    """Refuses what cannot be a log, without a connection to an object store.

    Raises: OptionError.
    """
    option = "path" if settings.paths == () else "paths"
    for path in settings.roots:
        _check(path, f"option {option}={path!r}", settings)
    if settings.consumer is not None and len(settings.roots) > 1:
        raise OptionError(_OF_ONE.format(settings.consumer))


def _check(path: str, named: str, settings: "SourceSettings") -> None:
    root = local_root(path)
    if root is not None:
        if settings.storage:
            option = STORAGE + min(settings.storage)
            raise OptionError(
                f"option {option}: it is for object stores, and {named.removeprefix('option ')} is a directory"
            )
        places = matching(str(root))
        if not places or not os.path.isdir(places[0]):
            raise OptionError(f"{named}: there is no such directory")
        if settings.consumer is not None and places != [str(root)]:
            raise OptionError(_OF_ONE.format(settings.consumer))
    elif settings.consumer is not None:
        raise OptionError(f"option consumer={settings.consumer!r}: only a log in a directory keeps positions")
    elif settings.storage and _scheme(path) not in _SYSTEMS:
        raise OptionError(f"{named}: options {STORAGE}* go with {', '.join(f'{name}://' for name in _SYSTEMS)}")


def open_log(settings: "SourceSettings") -> "EventLog":
    """The log, looked at for the first time.

    Raises: OptionError, LogError, OSError.
    """
    from trunkline.events.reader import EventLog

    system, roots = place(settings)
    log = EventLog(*roots, filesystem=system)
    log.refresh()
    return log


def place(settings: "SourceSettings") -> tuple["pyarrow.fs.FileSystem | None", Sequence[str]]:
    """A file system, and the log's roots in it. Without one, the roots say all.

    Raises: OptionError.
    """
    check_place(settings)
    if not settings.storage:
        return None, settings.roots
    import pyarrow.fs

    scheme, *others = {_scheme(root) for root in settings.roots}
    if others:
        raise OptionError(f"options {STORAGE}*: they are for one kind of storage, and the logs are in {settings.place}")
    name = _SYSTEMS[scheme]
    made: Any = getattr(pyarrow.fs, name, None)
    if made is None:
        raise OptionError(f"option path={settings.place!r}: this pyarrow comes without {name}")
    try:
        system = made(**{key: _value(key, text) for key, text in settings.storage.items()})
    except (TypeError, ValueError, OSError) as error:
        raise OptionError(f"options {STORAGE}{{{','.join(sorted(settings.storage))}}}: {name}: {error}") from None
    return system, [root.partition("://")[2] for root in settings.roots]


def _scheme(path: str) -> str:
    return path.partition("://")[0].lower()


def _value(key: str, text: str) -> str | bool | float:
    if key in _NUMBERS:
        return float(text)
    return text.lower() == "true" if text.lower() in ("true", "false") else text
