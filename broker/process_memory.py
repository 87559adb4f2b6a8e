"""How much memory this process takes, as the system tells."""

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
    """Bytes that are resident now, and the most that ever were; 0 where the system does not say."""
    now = most = 0
    if resource is not None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        with suppress(OSError):  # Linux alone has it
            now = int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    return now, max(now, most)
