"""What this process uses, and how much of it there is, as reported by the system."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STATM: Final = Path("/proc/self/statm")
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: Where Linux has one entry for each open file, and where other systems have.
_OPEN_FILES: Final = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def memory() -> tuple[int, int]:
    """Resident bytes now, and their maximum so far; 0 if the system does not report them."""
    now = most = 0
    if resource is not None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        with suppress(OSError):  # only Linux has it
            now = int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    return now, max(now, most)


def memory_limit(cgroups: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory that the process may take: those of the machine, or fewer by its control group; 0 if the system
    does not report them."""
    limits: list[int] = []
    with suppress(AttributeError, ValueError, OSError):  # Windows has none of this
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = cgroups / controllers  # version 2 has one tree for all controllers
            path = top / group.lstrip("/")
            for folder in (path, *path.parents):  # a container may see its own group as the top
                limits += _limits_in(folder)
                if folder == top:
                    break
    return min(filter(None, limits), default=0)


def _limits_in(folder: Path) -> list[int]:
    limits: list[int] = []
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no limit
            limits.append(int((folder / name).read_text()))
    return limits


def open_files() -> tuple[int, int]:
    """Descriptors in use, and how many there may be; 0 if the system does not report them."""
    if resource is None:
        return 0, 0
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 0 if limit == resource.RLIM_INFINITY else limit
    try:
        # since Linux 6.2 the size of the folder is their number: with thousands of clients, listing it takes long
        size = os.stat(_OPEN_FILES).st_size if sys.platform == "linux" else 0
        return size or len(os.listdir(_OPEN_FILES)) - 1, limit
    except OSError:
        return limit, limit  # there is none left to list them with
