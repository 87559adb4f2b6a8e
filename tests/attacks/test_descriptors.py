"""A broker whose file descriptors are really used up."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance import raw
from tests.test_main import ADDRESS, Process, processes

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


class Client:
    """A client with a socket that blocks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, timeout=120)
        self._buffer = b""

    def connect(self, client_id: str) -> int:
        """The reason code in CONNACK."""
        self.sock.sendall(raw.connect(client_id))
        return self.receive().reason

    def receive(self) -> raw.Received:
        while len(self._buffer) < 2 or len(self._buffer) < 2 + self._buffer[1]:
            data = self.sock.recv(1024)
            assert data, "closed"
            self._buffer += data
        end = 2 + self._buffer[1]  # all packets here are short
        packet, self._buffer = self._buffer[:end], self._buffer[end:]
        return raw.parse(packet, 5)

    def ping(self) -> None:
        self.sock.sendall(raw.PINGREQ)
        while self.receive().type != raw.PINGRESP[0]:
            pass

    def uptime(self) -> int:
        """The next one that the broker publishes, in seconds."""
        while (packet := self.receive()).type != raw.PUBLISH:
            pass
        return int(packet.payload.split()[0])


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
    quiet = Client(address)
    assert quiet.connect("quiet") == 0
    quiet.sock.sendall(raw.subscribe(1, ("$SYS/broker/uptime", 0)))

    with ExitStack() as crowd:
        # above the mark new clients are refused
        first = [Client(address) for _ in range(LIMIT * 92 // 100 - len(os.listdir(f"/proc/{pid}/fd")))]
        for each in first:
            crowd.callback(each.sock.close)
        broker.wait_for(r"overload_files: open files: \d+ of 100: above overload\.files_high = 90%")
        refused = Client(address)
        assert refused.connect("late") == 0x97
        refused.sock.close()
        quiet.ping()

        # no descriptor is left: connections wait, and the broker serves those that it has
        for _ in range(LIMIT):
            crowd.callback(socket.create_connection(address, timeout=120).close)
        broker.wait_for("out_of_descriptors: .*Too many open files")
        quiet.ping()
        began, used = quiet.uptime(), processor_seconds(pid)
        while quiet.uptime() < began + 3:
            quiet.ping()
        assert processor_seconds(pid) - used < 0.5  # of at least two seconds; one that spins takes all it gets
        assert len(os.listdir(f"/proc/{pid}/fd")) == LIMIT

    broker.wait_for("overload_files: over")
    fresh = Client(address)
    assert fresh.connect("fresh") == 0
    fresh.ping()
    quiet.ping()
    for client in (fresh, quiet):
        client.sock.close()
