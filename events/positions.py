"""The position of each reader of the log. Rows that all of them have read may be deleted."""

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from trunkline.events.layout import CONSUMERS, LogError, NodeKey, local_root

_SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Whether this is a valid name of a consumer."""
    return _NAME.fullmatch(text) is not None


def checked(value: Any) -> dict[str, int]:
    """Positions in the order of their node keys. Raises LogError for what cannot be positions."""
    if not isinstance(value, Mapping):
        raise LogError(f'expected an object such as {{"n1@1763739192123": 5000}}, not {json.dumps(value)}')
    for key, seq in value.items():
        NodeKey.parse(str(key))
        if type(seq) is not int or seq < 0:
            raise LogError(f"{key}: expected the number of a row, 0 or more, not {json.dumps(seq)}")
    return {str(key): value[key] for key in sorted(value)}


class _Content(NamedTuple):
    positions: dict[str, int]
    updated: datetime


class Positions:
    """Positions of one consumer, in a file below a log's directory.

    Raises LogError for a name that cannot be one, and for a log that is not in a directory of this machine.
    """

    def __init__(self, root: str | Path, consumer: str) -> None:
        if not is_name(consumer):
            raise LogError(
                f"{consumer!r} is not a valid name of a consumer: use letters, digits, . _ -, at "
                f"most 100, no dot in front"
            )
        self.consumer: Final = consumer
        self.path: Final = _directory(root) / f"{consumer}{_SUFFIX}"

    def read(self) -> dict[str, int]:
        """The next row to read of each node key; empty if nothing was noted yet.

        Raises LogError if the file is damaged, OSError if it cannot be read.
        """
        content = self._load()
        return content.positions if content else {}

    def updated(self) -> datetime | None:
        """When they were noted. None if never. Raises as `read` does."""
        content = self._load()
        return content.updated if content else None

    def write(self, positions: Mapping[str, int]) -> None:
        """Replaces the stored positions, atomically. Raises LogError for an invalid position, OSError if it cannot be
        written."""
        content = {"positions": checked(positions), "updated": datetime.now(UTC).isoformat()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            with half.open("w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            half.replace(self.path)
        except OSError:
            half.unlink(missing_ok=True)
            raise

    def _load(self) -> _Content | None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            content: Any = json.loads(data)
            found = _Content(checked(content["positions"]), datetime.fromisoformat(content["updated"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = error if isinstance(error, LogError) else "it is not a file of positions"
            raise LogError(f"{self.path} is damaged: {what}; delete it to remove the consumer") from None
        return found


def consumers(root: str | Path) -> list[str]:
    """The names of all consumers with a position in the log. Raises LogError if it is not in a directory, OSError."""
    try:
        names = os.listdir(_directory(root))
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(stem for stem in stems if is_name(stem))


def _directory(root: str | Path) -> Path:
    local = local_root(root)
    if local is None:
        raise LogError(f"{root}: only a log in a directory of this machine keeps positions")
    return local / CONSUMERS
