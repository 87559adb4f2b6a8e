"""Where a broker's store lies when its configuration does not say: in the system's folder for state, under the name of
the node.

Not under its port: a broker that listens elsewhere has the same sessions. Two brokers of one user differ by
`node.name` or by `store.path`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from trunkline.config.node_settings import NodeSettings, StoreSettings

SUFFIX: Final = ".db"


class NoStateFolder(OSError):
    """There is no folder for the store, and none can be made."""


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """
    Raises:
        NoStateFolder: the user has no home.
    """
    if service := environ.get("STATE_DIRECTORY", ""):  # systemd's, of `StateDirectory=`
        return Path(service.partition(":")[0])
    if os.name == "nt":
        return Path(environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "trunkline"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "trunkline"
    user = Path(environ.get("XDG_STATE_HOME", ""))
    if user.is_absolute():  # the specification has others ignored
        return user / "trunkline"
    return Path("/var/lib/trunkline") if os.geteuid() == 0 else _home() / ".local" / "state" / "trunkline"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise NoStateFolder(f"there is no folder for the store: {error}") from error


def store_path(store: StoreSettings, node: NodeSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """
    Raises:
        NoStateFolder: none is configured, and the user has no home.
    """
    return store.path or state_folder(environ) / (quote(node.name, safe=" ") + SUFFIX)


def shard_path(path: Path, number: int) -> Path:
    """Where one of several workers has its part of the store that would lie at this path."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def whole_path(part: Path) -> Path | None:
    """The store that this would be a part of; None if it has no name of one."""
    stem, dot, number = part.stem.rpartition(".")
    return part.with_name(f"{stem}{part.suffix}") if dot and stem and number.isdecimal() else None


def workers_path(path: Path) -> Path:
    """The file that says how many workers the store that would lie at this path is divided among."""
    return path.with_name(f"{path.name}-workers")


def make_store_folder(store: StoreSettings, path: Path) -> None:
    """The default one is made, for its user alone; one that the configuration names is there.

    Raises:
        NoStateFolder: it cannot be made.
    """
    if store.path is None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise NoStateFolder(f"{path.parent} cannot be made: {error.strerror or error}") from error
