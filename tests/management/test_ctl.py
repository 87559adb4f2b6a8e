"""`trunkline ctl`, with a broker that is a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.management.test_control_client import HELLO, server
from trunkline.client import ConnectionSettings, Disconnected
from trunkline.client.sync import Client, Subscription
from trunkline.management.cli import cli
from trunkline.management.control_place import Port, write_port

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")

Run = Callable[..., subprocess.CompletedProcess[bytes]]


def environment(runtime: Path, **more: str) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("TRUNKLINE_")}
    return {**own, "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime), **more}  # brokers of others are not seen


class Broker:
    """A broker in a process of its own."""

    def __init__(self, runtime: Path, *arguments: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", "serve", "--listen", "tcp://127.0.0.1:0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(runtime, TRUNKLINE_STORE__DURABILITY="memory", **environ),
        )
        self.lines: list[str] = []
        self.port = int(self.wait_for(r"listening on 127\.0\.0\.1 port (\d+)")[1])
        self.wait_for("serving")

    def wait_for(self, pattern: str) -> re.Match[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"ended without saying so: {self.lines}")

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        self.lines += self.process.communicate(timeout=120)[1].splitlines()
        return self.process.returncode


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def broker(runtime: Path) -> Iterator[Broker]:
    started = Broker(runtime, TRUNKLINE_SYS__INTERVAL="0")
    yield started
    assert started.end() == 0
    assert not list((runtime / "trunkline").iterdir())


@pytest.fixture
def ctl(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, which takes less time than starting one."""

    def run(*arguments: str, text: bytes = b"", code: int = 0, **environ: str) -> subprocess.CompletedProcess[bytes]:
        own = environment(runtime, **environ)
        monkeypatch.setattr("tempfile.tempdir", own["TMPDIR"])
        without = dict.fromkeys(os.environ.keys() - own.keys())
        done = CliRunner().invoke(cli, ["ctl", *arguments], input=text, env={**without, **own})
        assert done.exit_code == code, done.stderr
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return subprocess.CompletedProcess(arguments, code, done.stdout_bytes, done.stderr_bytes)

    return run


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stdout.decode().splitlines()


def client(broker: Broker, **settings: Any) -> Client:
    return Client(ConnectionSettings(host="127.0.0.1", port=broker.port, **settings), max_queued=3_000)


@pytest.fixture
def messages(broker: Broker) -> Iterator[Subscription]:
    """Those of a client with a session that stays."""
    with suppress(Disconnected), client(broker, client_id="sensor-1", version="3.1.1", clean_start=False) as opened:
        yield opened.subscribe("t/#", qos=1)


# The main line


def test_a_client_is_listed_shown_kicked_and_its_session_ended(messages: Subscription, ctl: Run) -> None:
    head, row = lines(ctl("clients", "list"))
    assert head.split()[:2] == ["client_id", "username"]
    assert row.split()[:2] == ["sensor-1", "-"]
    (shown,) = [json.loads(line) for line in lines(ctl("clients", "list", "--json"))]
    assert (shown["client_id"], shown["version"], shown["subscriptions"]) == ("sensor-1", "3.1.1", 1)
    assert "connected        yes" in lines(ctl("sessions", "show", "sensor-1"))
    assert lines(ctl("subscriptions", "list", "--client-id", "sensor-1"))[1].split()[:3] == ["sensor-1", "t/#", "1"]
    assert lines(ctl("routes", "lookup", "t/1"))[1].split()[0] == "sensor-1"
    assert lines(ctl("clients", "kick", "sensor-1")) == ["kicked        sensor-1", "session_kept  yes"]
    done = ctl("clients", "kick", "sensor-1", code=1)
    assert done.stderr == b"trunkline: the client 'sensor-1' is not connected; its session is kept\n"
    done = ctl("clients", "show", "sensor-11", code=1)
    assert done.stderr == b"trunkline: no client 'sensor-11'; did you mean sensor-1?\n"
    assert lines(ctl("sessions", "list", "--disconnected"))[1].split()[0] == "sensor-1"
    ctl("sessions", "end", "sensor-1")
    done = ctl("sessions", "list")
    assert (done.stdout, done.stderr) == (b"", b"none\n")


def test_retained_messages_from_standard_input_and_back_to_a_file(broker: Broker, ctl: Run, tmp_path: Path) -> None:
    payload = bytes(range(256))
    ctl("retained", "set", "data/raw", "-", "--qos", "1", text=payload)
    ctl("retained", "set", "data/text", "grüß\tdich")
    assert ctl("retained", "show", "data/raw", "--payload", "-").stdout == payload
    ctl("retained", "show", "data/raw", "--payload", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == payload
    raw, text = [json.loads(line) for line in lines(ctl("retained", "list", "--filter", "data/#", "--json"))]
    assert (raw["size"], raw["payload_encoding"]) == (256, "base64")
    assert (text["payload"], text["payload_encoding"]) == ("grüß\tdich", "text")
    table = lines(ctl("retained", "list", "--filter", "data/#"))
    assert table[1].endswith(f"0x{payload[:128].hex()}…")
    assert table[2].endswith(r"grüß\tdich")
    assert lines(ctl("retained", "delete", "data/#")) == ["deleted  2"]
    done = ctl("retained", "show", "data/raw", code=1)
    assert b"no message is retained at 'data/raw'" in done.stderr


def test_publish_to_a_stream_that_refuses(broker: Broker, ctl: Run) -> None:
    ctl("streams", "create", "full", "full", "--max-message-size", "10")
    done = ctl("publish", "full", "more than it takes", code=1)
    refusal = b"trunkline: not published: the stream 'full' takes messages of 10 bytes at most\n"
    assert (done.stdout, done.stderr) == (b"", refusal)
    ctl("streams", "delete", "full")


def test_publish(ctl: Run, messages: Subscription) -> None:
    sent = ctl("publish", "t/1", "hello", "--qos", "1", "--json")
    assert json.loads(sent.stdout) == {"topic": "t/1", "receivers": 1}
    ctl("publish", "t/1", "-", "--user-property", "a=b", text=b"\xff\x00")
    ctl("publish", "t/1")
    assert [messages.receive(timeout=120).payload for _ in range(3)] == [b"hello", b"\xff\x00", b""]


def test_thousands_of_rows_are_all_fetched_or_as_many_as_asked_for(broker: Broker, ctl: Run) -> None:
    with client(broker) as publisher:
        for number in range(2_600):
            last = publisher.publish_nowait(f"many/{number:04}/" + "x" * 200, b"1", qos=1, retain=True)
        last.wait(timeout=120)
    topics = [json.loads(line)["topic"] for line in lines(ctl("retained", "list", "--filter", "many/#", "--json"))]
    assert len(topics) == len(set(topics)) == 2_600
    table = lines(ctl("retained", "list", "--filter", "many/#"))
    assert len(table) == 2_601
    assert all("x" * 200 in line for line in table[1:])  # nothing is cut off
    for limit in (1, 499, 500, 501, 1300):
        assert len(lines(ctl("retained", "list", "--limit", str(limit), "--json"))) == limit
    begun = [
        json.loads(line)["topic"]
        for line in lines(ctl("retained", "list", "--after", topics[9], "--limit", "2", "--json"))
    ]
    assert begun == topics[10:12]
    ctl("retained", "delete", "#")


def test_a_reader_that_has_enough(broker: Broker, ctl: Run, runtime: Path) -> None:
    """As `trunkline ctl … | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", "ctl", "metrics"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(runtime),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(120)


# What goes wrong


def test_no_broker(ctl: Run, runtime: Path, tmp_path: Path, broker: Broker) -> None:
    done = ctl("--node", "plant", "status", code=3)
    text = done.stderr.decode()
    assert text.startswith("trunkline: no broker 'plant' runs here: there is neither ")
    assert str(runtime / "trunkline" / "plant.sock") in text
    assert re.search(r"; there is .*\btrunkline\b.*: name it with --node", text)  # others may run here too
    done = ctl("--socket", str(tmp_path / "none"), "status", code=3)
    assert done.stderr.decode() == f"trunkline: no broker: {tmp_path / 'none'}: No such file or directory\n"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    done = ctl("--socket", str(tmp_path / "dead"), "status", code=3)
    assert (
        done.stderr.decode()
        == f"trunkline: no broker at {tmp_path / 'dead'}: the broker that made this file has ended\n"
    )
    (tmp_path / "file").touch(mode=0o600)
    assert b"it does not hold a port and token" in ctl("--socket", str(tmp_path / "file"), "status", code=3).stderr


def test_a_broker_that_goes_while_it_is_asked(ctl: Run, tmp_path: Path) -> None:
    with server(tmp_path / "x", HELLO):
        done = ctl("--socket", str(tmp_path / "x"), "status", code=3)
    assert b"is gone: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["clients", "lsit"], "No such command 'lsit'"),
        (["clients", "list", "--limit", "0"], "0 is not in the range x>=1"),
        (["publish"], "Missing argument 'TOPIC'"),
        (["publish", "t", "x", "--qos", "3"], "'3' is not one of '0', '1', '2'"),
        (["publish", "t/+", "x"], "trunkline: topic name 't/+' holds a wildcard"),
        (
            ["publish", "t", "x", "--expiry", "-1"],
            "Error: Invalid value for '--expiry': '-1'; accepted is whole seconds",
        ),
        (["publish", "t", "x", "--user-property", "a"], "'a' is not KEY=VALUE"),
        (["plugins", "call", "bans", "list", "=x"], "'=x' is not KEY=VALUE"),
        (["log", "level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (["trace", "outcomes", "7"], "trunkline: "),
    ],
)
def test_mistakes(arguments: list[str], text: str, ctl: Run, broker: Broker) -> None:
    assert text in ctl(*arguments, code=2).stderr.decode()


def test_variables_name_the_broker(runtime: Path, ctl: Run, tmp_path: Path) -> None:
    other = Broker(runtime, TRUNKLINE_NODE__NAME="plant", TRUNKLINE_CONTROL__TRANSPORT="tcp")
    third = Broker(runtime, TRUNKLINE_CONTROL__PATH=str(tmp_path / "own.sock"))
    try:
        assert (runtime / "trunkline" / "plant.port").exists()
        (tmp_path / "plant.toml").write_text('[node]\nname = "plant"\n[mqtt]\nbroken = "meanwhile"\n')
        (tmp_path / "own.toml").write_text('[control]\npath = "own.sock"\n')
        for arguments, environ, pid in (
            (["--node", "plant"], {}, other.process.pid),
            ([], {"TRUNKLINE_NODE__NAME": "plant"}, other.process.pid),
            (["--socket", str(tmp_path / "own.sock")], {}, third.process.pid),
            ([], {"TRUNKLINE_CONTROL__PATH": str(tmp_path / "own.sock")}, third.process.pid),
            (["--config", str(tmp_path / "plant.toml")], {}, other.process.pid),
            ([], {"TRUNKLINE_CONFIG": str(tmp_path / "own.toml")}, third.process.pid),
        ):
            assert json.loads(ctl(*arguments, "status", "--json", **environ).stdout)["pid"] == pid
    finally:
        assert (other.end(), third.end()) == (0, 0)


def test_after_a_crash_the_next_broker_takes_the_place(tmp_path: Path, ctl: Run) -> None:
    first = Broker(tmp_path)
    first.end(signal.SIGKILL)
    assert (tmp_path / "trunkline" / "trunkline.sock").exists()
    second = Broker(tmp_path)
    try:
        pid = json.loads(ctl("status", "--json", XDG_RUNTIME_DIR=str(tmp_path)).stdout)["pid"]
        assert pid == second.process.pid
        third = Broker(tmp_path)  # under another name, and says so
        try:
            hint = f"runs as process {pid}, so use `trunkline ctl --node trunkline-2`"
            assert any(hint in line for line in third.lines)
            own = {"XDG_RUNTIME_DIR": str(tmp_path)}
            several = ctl("status", code=2, **own).stderr.decode()
            assert several == (
                f"trunkline: several brokers run here: trunkline (process {pid} on 127.0.0.1:{second.port}), "
                "trunkline-2 "
                f"(process {third.process.pid} on 127.0.0.1:{third.port}); name one with --node NAME before "
                "the command, or with node.name in the configuration\n"
            )
            for name, pid in (("trunkline", second.process.pid), ("trunkline-2", third.process.pid)):
                assert json.loads(ctl("--node", name, "status", "--json", **own).stdout)["pid"] == pid
            third.end(signal.SIGKILL)  # what it leaves does not count
            assert json.loads(ctl("status", "--json", **own).stdout)["pid"] == second.process.pid
        finally:
            third.end(signal.SIGKILL)
    finally:
        second.end()


def test_help_needs_no_broker(ctl: Run) -> None:
    text = ctl("--help").stdout.decode()
    assert "trace" in text
    assert "--username" in ctl("clients", "list", "--help").stdout.decode()
    assert "--payload" in ctl("retained", "show", "--help").stdout.decode()


def test_a_port_file_that_others_can_read(ctl: Run, tmp_path: Path) -> None:
    write_port(tmp_path / "x", Port(1, "t"))
    (tmp_path / "x").chmod(0o644)
    assert b"its token is not secret" in ctl("--socket", str(tmp_path / "x"), "status", code=3).stderr
