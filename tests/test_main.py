"""The command as a process: what it says, how it ends, what signals do. On Windows processes are ended differently."""

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trunkline.client import ConnectionSettings
from trunkline.client.sync import Client

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")

ADDRESS = re.compile(r"listening on 127\.0\.0\.1 port (\d+)")


class Process:
    def __init__(self, *arguments: str, **environ: str) -> None:
        own = {key: value for key, value in os.environ.items() if not key.startswith("TRUNKLINE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**own, **environ},
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """The first line of the log that has it. A process that ends instead fails the test."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without saying so: {self.lines}")

    def end(self, signum: signal.Signals | None = None) -> int:
        """Its exit code. What it had still to say goes to `lines`."""
        if signum is not None:
            self.process.send_signal(signum)
        _, rest = self.process.communicate(timeout=120)
        self.lines += rest.splitlines(keepends=True)
        return self.process.returncode


@contextmanager
def processes() -> Generator[Callable[..., Process]]:
    """Starts brokers, which are killed at the end."""
    started: list[Process] = []

    def start(*arguments: str, **environ: str) -> Process:
        started.append(Process(*arguments, **environ))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def client(port: int, **settings: Any) -> Client:
    return Client(ConnectionSettings(host="127.0.0.1", port=port, **settings))


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    with processes() as start:
        yield start


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal_and_ends_with_0(start: Callable[..., Process], signum: signal.Signals) -> None:
    broker = start("serve", "--listen", "tcp://127.0.0.1:0")
    port = int(broker.wait_for(ADDRESS)[1])
    broker.wait_for("serving")
    client(port).open()
    assert broker.end(signum) == 0
    assert any("stopped" in line for line in broker.lines)


def test_says_what_it_is_and_what_a_restart_loses(start: Callable[..., Process], tmp_path: Path) -> None:
    unused = ("--store", str(tmp_path / "a.db"))
    broker = start("serve", "--listen", "tcp://127.0.0.1:0", *unused, TRUNKLINE_STORE__DURABILITY="memory")
    broker.wait_for(rf"trunkline \S+, Python {platform.python_version()}, process \d+, ")
    broker.wait_for("kept in memory only.*; the store .*a.db is not used")
    port = int(broker.wait_for(ADDRESS)[1])
    broker.wait_for("serving")
    staying = client(port, client_id="a", clean_start=False, session_expiry=100).open()
    messages = staying.subscribe("t", qos=1, manual_ack=True)
    staying.publish("t", "x", qos=1, retain=True)
    messages.receive(timeout=120)
    assert broker.end(signal.SIGTERM) == 0
    assert broker.lines[-1].endswith(": sessions 1, retained messages 1, messages not delivered 1\n")


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_what_is_acknowledged_outlives_the_process(
    start: Callable[..., Process], tmp_path: Path, durability: str
) -> None:
    store = tmp_path / "a.db"
    arguments = ("--listen", "tcp://127.0.0.1:0", "--store", str(store))
    broker = start(*arguments, TRUNKLINE_STORE__DURABILITY=durability)
    broker.wait_for(f"store {re.escape(str(store))}, durability {durability}")
    port = int(broker.wait_for(ADDRESS)[1])
    with client(port) as publisher:
        publisher.publish("t", "x", qos=1, retain=True)
    broker.end(signal.SIGKILL)
    broker = start(*arguments, TRUNKLINE_STORE__DURABILITY=durability)
    broker.wait_for(r"restored in .* s: 1 retained message$")
    port = int(broker.wait_for(ADDRESS)[1])
    with client(port) as subscriber:
        message = subscriber.subscribe("t", qos=1).receive(timeout=120)
        assert (message.payload, message.qos, message.retain) == (b"x", 1, True)
    assert broker.end(signal.SIGTERM) == 0
    assert "memory" not in "".join(broker.lines)


def test_a_second_broker_leaves_the_store_alone_and_says_what_to_do(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    first = start("--listen", "tcp://127.0.0.1:0")
    first.wait_for("serving")
    second = start("--listen", "tcp://127.0.0.1:0")
    assert second.end() == 1
    (line,) = [line for line in second.lines if line.startswith("trunkline: ")]
    assert f"is in use by process {first.process.pid}; " in line
    assert "--store FILE" in line
    assert "Traceback" not in "".join(second.lines)
    for way_out in ({"TRUNKLINE_STORE__DURABILITY": "memory"}, {"TRUNKLINE_NODE__NAME": "other"}):
        other = start("--listen", "tcp://127.0.0.1:0", **way_out)
        other.wait_for("serving")
        assert other.end(signal.SIGTERM) == 0
    assert first.end(signal.SIGTERM) == 0


def test_a_store_that_cannot_be_used_is_one_line(start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"something else" * 1000)
    (tmp_path / "state").write_bytes(b"")
    for arguments, environ, words in [
        (("--store", str(tmp_path / "a.db")), {}, "a.db is not a store of Trunkline: give another path"),
        ((), {"STATE_DIRECTORY": str(tmp_path / "state")}, "state cannot be made: .*--store FILE"),
    ]:
        broker = start("--listen", "tcp://127.0.0.1:0", *arguments, **environ)
        assert broker.end() == 1
        (line,) = [line for line in broker.lines if line.startswith("trunkline: ")]
        assert re.search(words, line)
        assert "Traceback" not in "".join(broker.lines)


def test_streams_that_contradict_the_store_are_a_line_each(start: Callable[..., Process], tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    arguments = ("--config", str(config), "--listen", "tcp://127.0.0.1:0", "--store", str(tmp_path / "a.db"))
    config.write_text('[[streams]]\nname = "a"\nfilters = ["a/#"]\n[[streams]]\nname = "b"\nfilters = ["b/#"]\n')
    broker = start(*arguments)
    broker.wait_for("serving")
    assert "restored" not in "".join(broker.lines)
    assert broker.end(signal.SIGTERM) == 0
    config.write_text(
        '[[streams]]\nname = "a"\nfilters = ["a/#"]\nretention = "workqueue"\n'
        '[[streams]]\nname = "c"\nfilters = ["b/1"]\n'
    )
    broker = start(*arguments)
    assert broker.end() == 2
    expected = [
        (0, "a", "'a' has retention \"limits\", which cannot change"),
        (1, "b", "'b' takes messages that the stream 'c' would take: 'b/#' and 'b/1' overlap"),
    ]
    assert [line.rstrip() for line in broker.lines if line.startswith("trunkline: ")] == [
        f"trunkline: streams[{index}]: in the store the stream {what}: change the entry, or start without it and "
        f"delete the stream (trunkline streams delete {name})"
        for index, name, what in expected
    ]
    assert "Traceback" not in "".join(broker.lines)


def test_one_line_for_an_address_in_use(start: Callable[..., Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        broker = start("--listen", url)
        assert broker.end() == 1
    (line,) = [line for line in broker.lines if line.startswith("trunkline: ")]
    assert url in line
    assert "ddress already in use" in line
    assert "Traceback" not in "".join(broker.lines)


def test_a_bad_configuration_ends_with_2(start: Callable[..., Process]) -> None:
    broker = start(TRUNKLINE_MQTT__MAX_QOS="3", TRUNKLINE_LISTENERS="tcp://0.0.0.0:1883")
    assert broker.end() == 2
    assert len(broker.lines) == 2
    assert all(line.startswith("trunkline: variable ") for line in broker.lines)


def test_reload(start: Callable[..., Process], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('listeners = ["tcp://127.0.0.1:0"]\n')
    broker = start("--config", str(file))
    broker.wait_for("serving")
    file.write_text("[mqtt]\nmax_qos = 3\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("not reloaded: .*mqtt.max_qos: 3")
    file.write_text('listeners = ["tcp://127.0.0.1:0"]\n[log]\nformat = "json"\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for('"message": "reloaded"')
    assert broker.end(signal.SIGTERM) == 0
    assert [json.loads(line)["level"] for line in broker.lines if line.startswith("{")]


def test_password_files_are_read_again(start: Callable[..., Process], tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.touch()
    broker = start("--listen", "tcp://127.0.0.1:0", TRUNKLINE_AUTH__PASSWORD_FILE=str(file))
    broker.wait_for("serving")
    file.write_text("ann\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for(f"not reloaded: {file}:1: ")
    file.write_text("")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("reloaded$")
    assert broker.end(signal.SIGTERM) == 0


def test_what_only_a_restart_changes_is_named(start: Callable[..., Process], tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.touch()
    broker = start("--config", str(file), "--listen", "tcp://127.0.0.1:0")
    broker.wait_for("serving")
    file.write_text('[mqtt]\nmax_qos = 1\n[session]\nupgrade_qos = true\n[log]\nlevel = "debug"\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("WARNING trunkline: reloaded; a restart is needed for session.upgrade_qos$")
    assert broker.end(signal.SIGINT) == 0


def test_a_password_file_that_cannot_be_used(start: Callable[..., Process], tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("ann\nbob\n")
    broker = start("--listen", "tcp://127.0.0.1:0", TRUNKLINE_AUTH__PASSWORD_FILE=str(file))
    assert broker.end() == 2
    told = [line for line in broker.lines if line.startswith("trunkline: ")]
    assert [line[: line.index(": no")] for line in told] == [f"trunkline: {file}:{n}" for n in (1, 2)]


def test_a_log_file_that_cannot_be_written(start: Callable[..., Process], tmp_path: Path) -> None:
    broker = start("--listen", "tcp://127.0.0.1:0", TRUNKLINE_LOG__FILE=str(tmp_path))
    assert broker.end() == 1
    assert "".join(broker.lines).count("\n") == 1


def test_a_control_socket_that_a_killed_broker_left(start: Callable[..., Process], tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    killed = start("--no-config", "--listen", "tcp://127.0.0.1:0", **environ)
    killed.wait_for("serving")
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    asking = start("ctl", "--no-config", "status", **environ)
    assert asking.end() == 3
    left = tmp_path / "trunkline" / "trunkline.sock"
    assert asking.lines == [f"trunkline: no broker at {left}: the broker that made this file has ended\n"]
    broker = start("--no-config", "--listen", "tcp://127.0.0.1:0", **environ)
    broker.wait_for("serving")
    assert any(f"control socket {left}\n" in line for line in broker.lines)
    assert not any(level in line for line in broker.lines for level in (" WARNING ", " ERROR "))
    assert start("ctl", "--no-config", "status", **environ).end() == broker.end(signal.SIGTERM) == 0


#: Signals the process when it is about to import these modules.
SIGNALLED = """
import os, signal, sys
class Signalling:
    def find_spec(name, path=None, target=None):
        if name in signals:
            os.kill(os.getpid(), signals[name])
sys.meta_path.insert(0, Signalling)
from trunkline.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "signals",
    [
        {"trunkline.management.cli": signal.SIGINT},
        {"trunkline.broker.node.life": signal.SIGINT},
        {"trunkline.management.cli": signal.SIGHUP, "trunkline.broker.watchdog": signal.SIGINT},
        {"trunkline.broker.node.life": signal.SIGHUP, "trunkline.broker.watchdog": signal.SIGINT},
    ],
)
def test_a_signal_in_the_middle_of_an_import(signals: dict[str, signal.Signals]) -> None:
    code = f"signals = { {name: int(each) for name, each in signals.items()} }\n{SIGNALLED}"
    command = [sys.executable, "-c", code, "serve", "--no-config", "--listen", "tcp://127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_command_ends_with_its_terminal_and_a_broker_does_not() -> None:
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # whoever runs the tests may ignore it
    code = f"{heard}\nsignals = {{'trunkline.management.cli': {int(signal.SIGHUP)}}}\n{SIGNALLED}"
    for arguments, code_of in ((["config", "check", "--no-config"], -signal.SIGHUP), (["serve", "--help"], 0)):
        ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False, timeout=120)
        assert ended.returncode == code_of


def loaded(code: str) -> set[str]:
    """The modules that an interpreter has after this."""
    # measuring coverage would bring modules of its own
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", f"import sys\nfirst = set(sys.modules)\n{code}\nprint(*set(sys.modules) - first)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout.split())


def packages(modules: set[str]) -> set[str]:
    """Those of others."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"trunkline"}


START = """
import io, threading, trio
from trunkline.config.reader import from_mapping
from trunkline import serving
config = from_mapping({"listeners": ["tcp://127.0.0.1:0"], "sys": {"interval": 0}})
async def start():
    async with serving.open_node(config, read=lambda: config):
        pass
trio.run(start)
"""


def test_a_broker_starts_with_what_it_needs() -> None:
    """What is heavy and comes later: tables and colours, TOML that keeps comments, password hashing, other commands,
    what `ctl` asks, JSON Schema and HTTP of plugins, pytest, asyncio, log files, guesses at what a wrong name meant."""
    modules = loaded(f"import trunkline.__main__, trunkline.management.cli\n{START}")
    assert "trunkline.broker.node.life" in modules
    heavy = {"asyncio", "trunkline.management.operations", "trunkline.broker.views", "multiprocessing"}
    heavy |= {"trunkline.testing", "trunkline.plugins.shipped", "trunkline.events", "difflib", "logging.handlers"}
    commands = ("ctl", "ctl_commands", "config_view", "journal_commands", "plugin_commands")
    heavy |= {f"trunkline.management.{name}" for name in commands}
    assert modules & heavy == set()
    needed = {"trio", "attr", "attrs", "outcome", "sniffio", "idna", "sortedcontainers"}
    needed |= {
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
        "click",
        "msgpack",
    }
    allowed = {name for name in packages(modules) if not name.startswith("_")} - {"cython_runtime"}
    assert allowed <= needed
    assert len([name for name in modules if name.startswith("trunkline")]) <= 288


def test_commands_do_without_the_broker() -> None:
    modules = loaded("from trunkline.__main__ import main\nimport trunkline.management.cli")
    assert not {"trio", "msgpack", "rich", "tomlkit"} & packages(modules)


def test_version_of_the_installed_command() -> None:
    command = Path(sys.executable).with_name("trunkline")
    assert subprocess.run([command, "--version"], capture_output=True, check=True).stdout.startswith(b"trunkline, ")


@pytest.mark.parametrize(("output", "code"), [("&-", 0), ("/dev/full", 1)])
def test_output_that_nobody_takes(output: str, code: int) -> None:
    if output.startswith("/") and not Path(output).exists():
        pytest.skip(f"there is no {output}")
    command = f"{sys.executable} -m trunkline config show --no-config >{output}"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert ("the output cannot be written" in result.stderr) is (code == 1)
