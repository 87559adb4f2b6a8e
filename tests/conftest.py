"""How the tests are dealt out to several workers, and what of the machine they see: nothing of its user's."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import several_workers, timeouts

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

# A test does not fail because the machine is busy, nor because an earlier run of it failed on one that was: there is no
# database of such examples. What is found becomes a test of its own. The checks are of how examples come about.
HOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("tests", deadline=None, max_examples=50, database=None, suppress_health_check=HOW)
settings.load_profile("tests")

#: One session of Spark costs half a gigabyte and more seconds than any test: one worker takes all that may need it.
TOGETHER = "tests/analytics/"


def part(nodeid: str) -> str:
    """What stays in one worker together with this test: as a rule only itself."""
    return TOGETHER if nodeid.startswith(TOGETHER) else nodeid


#: Seconds of a processor that a test takes, on average: those with Spark, and the others.
SPARK, OTHERS = 0.25, 0.04


def estimate(ids: Sequence[str], workers: int) -> str:
    spark = SPARK * sum(part(each) == TOGETHER for each in ids)
    others = OTHERS * sum(part(each) != TOGETHER for each in ids)
    processors = min(workers, os.cpu_count() or 1)
    minutes = max(spark, (spark + others) / processors) / 60
    return f"{len(ids)} tests, about {max(1, round(minutes))} min where nothing else runs"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=int,
        default=1,
        help="how many workers brokers have where a test does not say: for conformance, interop and attacks",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """The garbage collector need not look at half a million objects of what was collected again and again."""
    if moving := [item.nodeid for item in session.items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"name these with ids=, their names differ from worker to worker: {moving}")
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: "WorkerController", ids: Sequence[str]) -> None:
    if node.gateway.id != "gw0":
        return
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(estimate(ids, len(node.config.getvalue("tx"))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling | None":
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return part(nodeid)

        def _reschedule(self, node: "WorkerController") -> None:
            # what is done would be counted again with each test that follows
            given = self.assigned_work[node]
            for scope in [scope for scope, tests in given.items() if all(tests.values())]:
                del given[scope]
            super()._reschedule(node)

    return Scheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(autouse=True, scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that no broker and no file of this user is in, and none of the user's settings. Processes that tests
    start have them too."""
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where people look for it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells do for what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="tl"))  # short: the path of a Unix socket may have a hundred bytes
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TRUNKLINE_")]:
            patch.delenv(name)
        # what is cached tells nothing, and takes Spark half a minute to make anew
        patch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
        for variable in ("XDG_RUNTIME_DIR", "TMPDIR", "HOME"):
            own = folder / variable[0].lower()
            own.mkdir(mode=0o700)
            patch.setenv(variable, str(own))
        patch.setattr(tempfile, "tempdir", str(folder / "t"))
        patch.delenv("STATE_DIRECTORY", raising=False)
        no_folder = folder / "s"
        no_folder.touch()
        patch.setenv("XDG_STATE_HOME", str(no_folder))  # each test and each fixture has one of its own
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def state(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stores of brokers that a test starts: what one test leaves there no other one finds."""
    del machine  # it is there
    return _own_state(monkeypatch)


class SharedFixtures:
    """The same for a broker that many tests share, which is started outside of them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope == "function" or fixturedef.argname == "machine":
            return (yield)
        with pytest.MonkeyPatch.context() as patch:
            fixturedef.addfinalizer(partial(shutil.rmtree, _own_state(patch), ignore_errors=True))
            return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(several_workers)
    config.pluginmanager.register(timeouts)
    config.pluginmanager.register(SharedFixtures())  # this module itself is not asked for fixtures of the session


def _own_state(patch: pytest.MonkeyPatch) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="state"))
    patch.setenv("XDG_STATE_HOME", str(folder))
    return folder
