"""The broker's log: standard `logging`, one line a record, as text or as JSON.

The subject of a record is in its fields: `logger.info("...", extra=client.log_fields)`. JSON has all of them, text
those that its messages do not name. Clients choose much of what is logged about them, so no part of a record can end
its line or control a terminal: unprintable characters are escaped.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from trunkline.mqtt.explanations import shortened, worth_logging
from trunkline.mqtt.plain import in_words

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path
    from typing import TextIO

    from trunkline.config.node_settings import LogSettings

    _Stream = logging.StreamHandler[TextIO]
else:
    _Stream = logging.StreamHandler

# C0, DEL and C1 controls, the line and paragraph separators, changes of the writing direction, lone surrogates
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")

#: The attributes of every record; all others are its fields.
_STANDARD: Final = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}
#: Fields that text shows behind the message.
_SHOWN: Final = ("client", "username")
#: Characters of a message, or of a field, that are written at most: topics and client ids may have 65,535.
_MAX_TEXT: Final = 2000
#: Lines of a traceback that are written at most: a group of errors, or a deep recursion, may have thousands.
_MAX_TRACEBACK: Final = 60

_own = logging.getLogger("trunkline")

#: Which of several workers this process is.
_worker: int | None = None


def set_worker(number: int) -> None:
    """Each record of this process says from now on that it is of this worker."""
    global _worker
    _worker = number


def _source(record: logging.LogRecord) -> str:
    return record.name if _worker is None else f"{record.name}[{_worker}]"


def printable(text: str) -> str:
    """`text` on one line, with every unprintable character as its escape."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _moment(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.created * 1000) % 1000:03d}Z"


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:
        """The beginning and end of a long traceback: its origin and its error."""
        lines = super().formatException(ei).split("\n")
        if len(lines) > _MAX_TRACEBACK:
            half = _MAX_TRACEBACK // 2
            lines[half:-half] = [f"  … {len(lines) - 2 * half} lines left out …"]
        return "\n".join(lines)


class TextFormatter(_Formatter):
    """`time LEVEL logger: message client="id" username="name"`, with `logger[1]` in the worker 1; a traceback follows
    on indented lines, which no record starts with."""

    def format(self, record: logging.LogRecord) -> str:
        text = printable(shortened(record.getMessage(), _MAX_TEXT))
        line = f"{self.begin(record)}: {text}"
        for name in _SHOWN:
            value = getattr(record, name, None)
            if value is not None:
                line += f' {name}="{printable(shortened(str(value), _MAX_TEXT))}"'
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {printable(part)}" for part in trace.split("\n"))
        return line

    def begin(self, record: logging.LogRecord) -> str:
        return f"{_moment(record)} {record.levelname} {_source(record)}"


class TerminalFormatter(TextFormatter):
    """The same for people at a terminal: levels are aligned, and have colours."""

    _COLOURS: Final = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}

    def begin(self, record: logging.LogRecord) -> str:
        level = f"\x1b[{self._COLOURS.get(record.levelname, '0')}m{record.levelname:<8}\x1b[0m"
        return f"\x1b[2m{_moment(record)}\x1b[0m {level} {_source(record)}"


class JsonFormatter(_Formatter):
    """One JSON object a line, with every field of the record."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(record.getMessage(), _MAX_TEXT),
        }
        if _worker is not None:
            entry["worker"] = _worker
        for name, value in vars(record).items():
            if value is not None and name not in _STANDARD and name not in entry:
                entry[name] = shortened(value, _MAX_TEXT) if isinstance(value, str) else in_words(value)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)  # pure ASCII: escapes all that could end a line


class UnfailingHandler(logging.Handler):
    """Reports a log that cannot be written, as on a full disk, in a line from time to time instead of a traceback for
    each record."""

    #: The file of the log, and how often it could not be written.
    file: Path | None = None
    failures = 0

    def succeed(self, former: logging.Handler) -> None:
        """Continue the count of the former handler if it wrote to the same file: however often the log is reopened,
        failures are only reported from time to time."""
        if isinstance(former, UnfailingHandler) and former.file == self.file:
            self.failures = former.failures

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # a file that was moved away cannot be opened anew
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        del record
        self.failures += 1
        if worth_logging(self.failures):
            with suppress(OSError, ValueError, AttributeError):  # closed, or none at all
                sys.stderr.write(
                    f"trunkline: the log cannot be written: {sys.exc_info()[1]} ({self.failures} so far)\n"
                )


class _ToStderr(UnfailingHandler, _Stream):
    pass


def _formatter(settings: LogSettings, handler: logging.Handler) -> logging.Formatter:
    if settings.format == "json":
        return JsonFormatter()
    return TerminalFormatter() if isinstance(handler, _ToStderr) and _has_colours(handler.stream) else TextFormatter()


def _has_colours(stream: TextIO) -> bool:
    """As https://no-color.org has it: whoever sets NO_COLOR to anything wants none."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # none at all, or closed
        return False


def configure(settings: LogSettings) -> None:
    """Send all log records of this process to the configured destination. A further call replaces the former one.

    Raises:
        OSError: the file cannot be opened; nothing has changed.
    """
    with switching(settings):
        pass


@contextmanager
def switching(settings: LogSettings) -> Generator[None]:
    """The same at the end of the block. If the block raises, nothing changes.

    Raises:
        OSError: as `configure` does.
    """
    if settings.file is None:
        handler: UnfailingHandler = _ToStderr(
            sys.stderr
        )  # a service may be started without it: writing fails at each record
    else:
        from trunkline.management.log_file import to_file  # the file handler imports much

        handler = to_file(settings.file)
    handler.file = settings.file
    handler.setFormatter(_formatter(settings, handler))
    try:
        yield
    except BaseException:
        handler.close()
        raise
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
        handler.succeed(former)
        former.close()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    _own.setLevel(logging.NOTSET)
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """Set the lowest level of the broker's own records that are written, until `configure` is called again."""
    _own.setLevel(level.upper())


def level() -> str:
    return logging.getLevelName(_own.getEffectiveLevel()).lower()
