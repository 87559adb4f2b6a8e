"""How the tests are dealt out to several workers."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

#: One session of Spark costs half a gigabyte and more seconds than any test: one worker takes all that may need it.
TOGETHER = "tests/analytics/"


def part(nodeid: str) -> str:
    """What stays in one worker together with this test: as a rule only itself."""
    return TOGETHER if nodeid.startswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling | None":
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "load" else None
