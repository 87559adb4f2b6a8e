"""A broker whose file descriptors are really used up."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.test_main import ADDRESS, Process, processes
from trunkline.client import ConnectionSettings, ConnectRefused
from trunkline.client.sync import Client, Subscription

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="only Linux lets a limit be set from outside"
)

#: Descriptors of the broker, of which it needs about 20 itself.
LIMIT = 100
SETTINGS = """
listeners = ["tcp://127.0.0.1:0"]
control.enabled = false
store.durability = "memory"
mqtt.connect_timeout = "1h"
sys.interval = 1
overload.interval = 0.1
"""


def seconds(uptime: Subscription) -> int:
    """The next one that the broker publishes."""
    return int(uptime.receive(timeout=120).payload.split()[0])


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "trunkline.toml").write_text(SETTINGS)
    with processes() as start:
        yield start("--config", str(tmp_path / "trunkline.toml"))


def test_the_last_descriptors(broker: Process) -> None:
    address = "127.0.0.1", int(broker.wait_for(ADDRESS)[1])
    broker.wait_for("serving")
    pid = broker.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    settings = ConnectionSettings(host=address[0], port=address[1])

    with Client(settings) as quiet, ExitStack() as crowd:
        uptime = quiet.subscribe("$SYS/broker/uptime")

        # above the mark new clients are refused
        for _ in range(LIMIT * 92 // 100 - len(os.listdir(f"/proc/{pid}/fd"))):
            crowd.callback(socket.create_connection(address, timeout=120).close)
        broker.wait_for(r"overload_files: open files: \d+ of 100: above overload\.files_high = 90%")
        with pytest.raises(ConnectRefused, match="0x97"):
            Client(settings).open()
        quiet.ping(timeout=120)

        # no descriptor is left: connections wait, and the broker serves those that it has
        for _ in range(LIMIT):
            crowd.callback(socket.create_connection(address, timeout=120).close)
        broker.wait_for("out_of_descriptors: .*Too many open files")
        quiet.ping(timeout=120)
        began, used = seconds(uptime), processor_seconds(pid)
        while seconds(uptime) < began + 3:
            quiet.ping(timeout=120)
        assert processor_seconds(pid) - used < 0.5  # of at least two seconds; one that spins takes all it gets
        assert len(os.listdir(f"/proc/{pid}/fd")) == LIMIT

        crowd.close()
        broker.wait_for("overload_files: over")
        with Client(settings) as fresh:
            fresh.ping(timeout=120)
        quiet.ping(timeout=120)
