"""nats-py's own tests at the broker, which they take for a NATS server: `python -m bench.nats_py_suite FOLDER`, where
FOLDER is an unpacked source archive of nats-py that has `tests/test_js.py`. Needs nats-py and pytest.

Nothing of the suite is changed: it imports its servers from a module `tests.utils`, and this is another one. Its cases
connect to port 4222 of this machine, where nothing else may listen. Cases that want a server with settings of its own,
such as a cluster or TLS, are skipped. Prints what failed, and why; then a line for each
case, and how many passed. Ends with 1 if one failed.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest.mock  # the suite uses it without an import of its own
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
#: Where the broker begins, and the cases do not.
HERE: Final = Path.cwd()
PORT: Final = 4222
#: Seconds until a server must listen.
PATIENCE: Final = 30.0
BROKER: Final = (sys.executable, "-m", "trunkline", "serve", "--no-config", "--listen", f"nats://127.0.0.1:{PORT}")
#: Of the account that a few cases want. The broker has no such limits.
LIMITS: Final = """
jetstream: {domain: "test-domain"}
no_auth_user: test
accounts: {
  A: {
    users: [{user: test, password: test}]
    jetstream: {
      max_mem: 64MB, max_file: 32MB, max_streams: 10, max_consumers: 20, max_ack_pending: 100
      memory_max_stream_bytes: 2048, store_max_stream_bytes: 4096, max_stream_bytes: true
    }
  }
}
"""


class Server:
    """With a store of its own; `program` is a nats-server, or empty for the broker."""

    def __init__(self, program: str, config: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nats-py-suite-"))
        self._environment = dict(os.environ)
        if program:
            (self._folder / "conf").write_text(config)
            self._command = [program, "-a", "127.0.0.1", "-p", str(PORT), "-js", "-sd", str(self._folder / "js")]
            self._command += ["-c", str(self._folder / "conf")]
        else:
            self._command = list(BROKER)
            self._environment |= {
                "TRUNKLINE_STORE__PATH": str(self._folder / "store"),
                "TRUNKLINE_CONTROL__ENABLED": "false",
            }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log = self._folder / "log"
        with log.open("wb") as file:
            self._process = subprocess.Popen(self._command, stdout=file, stderr=file, env=self._environment, cwd=HERE)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", PORT)).close()
                return
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"it does not begin: {log.read_text(errors='replace')}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def case_with(program: str, config: str) -> type[unittest.TestCase]:
    class WithServer(unittest.TestCase):
        def setUp(self) -> None:
            server = Server(program, config)
            self.server_pool = [server]
            self.addCleanup(server.remove)
            server.start()

    return WithServer


def on_asyncio(scene: Callable[..., Coroutine[Any, Any, None]], seconds: float) -> Callable[..., None]:
    @wraps(scene)
    def run(*args: Any) -> None:
        asyncio.run(asyncio.wait_for(scene(*args), seconds))

    return run


class NotOffered(unittest.TestCase):
    """In place of the servers of other cases."""

    def setUp(self) -> None:
        self.skipTest("it wants a server with other settings")


def tests_in(folder: Path, program: str) -> dict[str, ModuleType]:
    """The suite's package, with other servers in the module from which its cases have theirs."""
    package, servers = ModuleType("tests"), ModuleType("tests.utils")
    package.__path__ = [str(folder / "tests")]
    vars(servers).update(
        __getattr__=lambda name: NotOffered if name.endswith("TestCase") else getattr(ModuleType, name),
        asyncio=asyncio,
        SingleServerTestCase=case_with(program, ""),
        SingleJetStreamServerTestCase=case_with(program, ""),
        SingleJetStreamServerLimitsTestCase=case_with(program, LIMITS),
        async_test=partial(on_asyncio, seconds=5),
        async_long_test=partial(on_asyncio, seconds=20),
        async_debug_test=partial(on_asyncio, seconds=3600),
    )
    return {"tests": package, "tests.utils": servers}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.nats_py_suite", description="nats-py's own tests")
    parser.add_argument("folder", type=Path, help="an unpacked source archive of nats-py")
    parser.add_argument("--file", default="test_js.py", metavar="NAME", help="of its tests (default: %(default)s)")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only the cases that pytest chooses by this")
    parser.add_argument("--server", default="", metavar="PROGRAM", help="a nats-server in place of the broker")
    given = parser.parse_args()
    # the folder `nats` of this project has the name of that package
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != ROOT]
    sys.modules.update(tests_in(given.folder, given.server))
    os.chdir(given.folder)
    return pytest.main(
        [f"tests/{given.file}", "-k", given.k, "-c", os.devnull, "-p", "no:cacheprovider", "--tb=short", "-q", "-rA"]
    )


if __name__ == "__main__":
    sys.exit(main())
