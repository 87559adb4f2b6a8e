"""The memory that this process takes, as reported by the system."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STATM: Final = Path("/proc/self/statm")


def memory() -> tuple[int, int]:
    """Resident bytes now, and their maximum so far; 0 if the system does not report them."""
    now = most = 0
    if resource is not None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        with suppress(OSError):  # only Linux has it
            now = int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    return now, max(now, most)
