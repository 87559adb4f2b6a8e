"""A broker that runs by itself, with plugins that do not let it start, end, or read its settings; and a full disk."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import raw
from tests.management.plugin_packages import describe
from tests.test_main import ADDRESS, Process

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are not sent to processes there")

EVIL = """
import os, sys, time
import trio
from pydantic import field_validator
from trunkline.config.units import Text
from trunkline.plugins import Context, Settings, setting

class Blocks:
    def __init__(self, context: Context[Settings]): ...

    def stop(self):
        time.sleep(1000)

class Stalls:
    def __init__(self, context: Context[Settings]) -> None: ...

    async def run(self) -> None:
        print("serving, and blocked from now on", file=sys.stderr, flush=True)
        time.sleep(600)


class Swallows:
    def __init__(self, context: Context[Settings]): ...

    async def run(self):
        while True:
            try:
                await trio.sleep(0.05)
            except BaseException:
                pass

class Never:
    def __init__(self, context: Context[Settings]):
        context.logger.info("starting")

    async def start(self):
        await trio.sleep_forever()

class Obstinate(Never):
    async def start(self):
        while True:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                pass

class Asleep:
    def __init__(self, context: Context[Settings]): ...

    def start(self):
        time.sleep(1000)

class OddSettings(Settings):
    word: Text = setting("", "A word.")

    @field_validator("word")
    @classmethod
    def check(cls, value):
        if os.path.exists(value):
            raise RuntimeError("the validator broke")
        return value

def odd(context: Context[OddSettings]): ...
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator["Started"]:
    started = Started(tmp_path)
    yield started
    started.kill()


class Started:
    """Brokers with these plugins, and with little patience at their end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[Process] = []
        (folder / "evil.py").write_text(EVIL)
        points = {
            "blocks": "evil:Blocks",
            "swallows": "evil:Swallows",
            "stalls": "evil:Stalls",
            "never": "evil:Never",
            "obstinate": "evil:Obstinate",
            "asleep": "evil:Asleep",
            "odd": "evil:odd",
        }
        describe(folder / "evil-1.0.dist-info", "evil", "1.0", points)

    def __call__(self, config: str) -> Process:
        file = self.folder / "trunkline.toml"
        file.write_text(f'listeners = ["tcp://127.0.0.1:0"]\ncontrol.enabled = false\n{config}')
        process = Process("--config", str(file), PYTHONPATH=str(self.folder))
        self._processes.append(process)
        return process

    def kill(self) -> None:
        for each in self._processes:
            if each.process.poll() is None:
                each.process.kill()
            each.process.communicate()


@pytest.mark.parametrize("plugin", ["blocks", "stalls", "swallows"])
def test_a_plugin_that_does_not_end_does_not_keep_the_process(started: Started, plugin: str) -> None:
    patched = "import trunkline.management.process_start as s; s.MAX_END = s.MAX_END_EACH = 0.2"
    code = f"{patched}; from trunkline.__main__ import main; main()"
    file = started.folder / "trunkline.toml"
    file.write_text(f'listeners = ["tcp://127.0.0.1:0"]\ncontrol.enabled = false\n[plugins.{plugin}]\n')
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TRUNKLINE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--config", str(file)],
        stderr=subprocess.PIPE,
        text=True,
        env={**environ, "PYTHONPATH": str(started.folder)},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "serving" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "not stopped after 0.4 s" in rest


def test_a_signal_cuts_the_start_of_a_plugin_short(started: Started) -> None:
    broker = started("[plugins.never]\n")
    broker.wait_for("starting")
    assert broker.end(signal.SIGTERM) == 0
    assert broker.lines[-1].endswith("stopped\n")
    assert not any("serving" in line or "Traceback" in line for line in broker.lines)


def test_a_second_signal_ends_it_while_it_still_starts(started: Started) -> None:
    broker = started("[plugins.obstinate]\n")
    broker.wait_for("starting")
    broker.process.send_signal(signal.SIGTERM)
    broker.wait_for("stopping on SIGTERM")
    assert broker.end(signal.SIGTERM) == -signal.SIGTERM


def test_a_plugin_that_blocks_as_it_starts_is_named(started: Started) -> None:
    broker = started("[plugins.asleep]\n")
    broker.wait_for(r"nothing else has run for .*: asleep, evil\.Asleep\.start")


def test_a_reload_whose_plugin_cannot_check_its_settings(started: Started) -> None:
    there = started.folder / "there"
    broker = started(f'[plugins.odd]\nword = "{there}"\n')
    broker.wait_for("serving")
    there.touch()
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("not reloaded: .*plugins.odd: .*the validator broke")
    there.unlink()
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for(": reloaded")
    assert broker.end(signal.SIGTERM) == 0


def test_a_full_disk_does_not_stop_it_nor_fill_the_other_log(started: Started) -> None:
    broker = started('[log]\nfile = "/dev/full"\n')
    broker.wait_for(r"the log cannot be written: .*No space left on device \(4 so far\)")  # it listens by then
    for _ in range(50):  # it may see several of them as one
        broker.process.send_signal(signal.SIGHUP)
    assert broker.end(signal.SIGTERM) == 0
    told = [found[1] for line in broker.lines if (found := re.search(r"cannot be written: .*\((\d+) so far\)", line))]
    assert told == [str(2**power) for power in range(len(told))]
    assert len(broker.lines) == len(told)


def test_too_few_descriptors(started: Started) -> None:
    resource = pytest.importorskip("resource")
    broker = started("")
    found = broker.wait_for(ADDRESS)
    broker.wait_for("serving")
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (24, 24))
    address = ("127.0.0.1", int(found[1]))
    crowd = [socket.create_connection(address) for _ in range(60)]
    broker.wait_for("Too many open files|accept")
    for each in crowd:
        each.close()
    with socket.create_connection(address, timeout=120) as fresh:
        fresh.sendall(raw.connect("fresh"))
        assert fresh.recv(1) == b"\x20"
    assert broker.end(signal.SIGTERM) == 0


def test_what_is_wrong_is_told_without_steering_the_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trunkline", "ctl", "--node", "\x1b[31mred", "clients", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "red" in done.stderr
    assert "\x1b" not in done.stderr
