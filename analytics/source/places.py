"""From the option `path` to the log there: a directory, or a place in an object store."""

import os
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


def check_place(settings: "SourceSettings") -> None:
    """Refuses what cannot be a log, without a connection to an object store.

    Raises: OptionError.
    """
    root = local_root(settings.path)
    if root is not None:
        if settings.storage:
            option = STORAGE + min(settings.storage)
            raise OptionError(f"option {option}: it is for object stores, and path={settings.path!r} is a directory")
        places = matching(str(root))
        if not places or not os.path.isdir(places[0]):
            raise OptionError(f"option path={settings.path!r}: there is no such directory")
        if settings.consumer is not None and places != [str(root)]:
            raise OptionError(f"option consumer={settings.consumer!r}: each log keeps positions of its own; name one")
    elif settings.consumer is not None:
        raise OptionError(f"option consumer={settings.consumer!r}: only a log in a directory keeps positions")
    elif settings.storage and _scheme(settings.path) not in _SYSTEMS:
        raise OptionError(
            f"option path={settings.path!r}: options {STORAGE}* go with {', '.join(f'{name}://' for name in _SYSTEMS)}"
        )


def open_log(settings: "SourceSettings") -> "EventLog":
    """The log, looked at for the first time.

    Raises: OptionError, LogError, OSError.
    """
    from trunkline.events.reader import EventLog

    system, root = place(settings)
    log = EventLog(root, system)
    log.refresh()
    return log


def place(settings: "SourceSettings") -> tuple["pyarrow.fs.FileSystem | None", str]:
    """A file system, and the log's root in it. Without one, the root says all.

    Raises: OptionError.
    """
    check_place(settings)
    if not settings.storage:
        return None, settings.path
    import pyarrow.fs

    name = _SYSTEMS[_scheme(settings.path)]
    made: Any = getattr(pyarrow.fs, name, None)
    if made is None:
        raise OptionError(f"option path={settings.path!r}: this pyarrow comes without {name}")
    try:
        system = made(**{key: _value(key, text) for key, text in settings.storage.items()})
    except (TypeError, ValueError, OSError) as error:
        raise OptionError(f"options {STORAGE}{{{','.join(sorted(settings.storage))}}}: {name}: {error}") from None
    return system, settings.path.partition("://")[2]


def _scheme(path: str) -> str:
    return path.partition("://")[0].lower()


def _value(key: str, text: str) -> str | bool | float:
    if key in _NUMBERS:
        return float(text)
    return text.lower() == "true" if text.lower() in ("true", "false") else text
