"""How many processors this process may use."""

import os
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Those of the machine, or fewer: by the process's affinity, or by the quota of its control group, of which a part
    of a processor counts as a whole one."""
    found = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:  # version 2
                path = cgroups / group.lstrip("/")
                for folder in (path, *path.parents):  # a container may see its own group as the top
                    found += _quota_in(folder)
                    if folder == cgroups:
                        break
    return max(1, min(found))


def _quota_in(folder: Path) -> list[int]:
    with suppress(OSError, ValueError):  # "max" is no limit
        quota, period = (folder / "cpu.max").read_text().split()
        return [ceil(int(quota) / int(period))]
    return []
