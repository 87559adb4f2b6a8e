"""A node of several processes, from outside: real ones, real signals, real clients."""

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.management.plugin_packages import describe
from tests.test_main import ADDRESS, Process, client, processes
from trunkline.broker.shards.homes import Homes, dealt
from trunkline.client import ConnectFailed, ConnectRefused, Disconnected, PublishRefused, SubscribeRefused
from trunkline.client.settings import WillMessage
from trunkline.client.sync import Client
from trunkline.config.config import Config
from trunkline.config.node_settings import NodeSettings
from trunkline.management.cli import cli
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_place import worker_sockets
from trunkline.management.service_manager import READY, SOCKET, STOPPING, WATCHDOG
from trunkline.management.workers.supervising import sign_of_life
from trunkline.nats import sync as nats

if TYPE_CHECKING:
    from trunkline.mqtt.properties import Properties

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")

Start = Callable[..., Process]
STARTED = re.compile(r"trunkline\.workers: worker (\d): process (\d+), term (\d+)")


@pytest.fixture
def runtime() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def start(runtime: Path) -> Iterator[Start]:
    with processes() as started:

        def start(*arguments: str, **environ: str) -> Process:
            own = {
                "XDG_RUNTIME_DIR": str(runtime),
                "TMPDIR": str(runtime),
                "TRUNKLINE_NODE__WORKERS": "2",
                "TRUNKLINE_LISTENERS": "tcp://127.0.0.1:0",
                "TRUNKLINE_STORE__PATH": str(runtime / "a.db"),
            }
            return started("serve", *arguments, **own | environ)

        yield start


class Node:
    """A node that serves."""

    def __init__(self, process: Process, workers: int = 2) -> None:
        self.process = process
        self.workers: dict[int, int] = {}
        self.terms: list[int] = []
        while len(self.workers) < workers:
            self.note_start()
        self.workers = dict(sorted(self.workers.items()))  # they start in any order
        self.port = int(process.wait_for(ADDRESS)[1])
        process.wait_for(r"trunkline: serving$")

    def note_start(self) -> int:
        """Wait until a worker was started; its number."""
        found = self.process.wait_for(STARTED)
        number = int(found[1])
        self.workers[number] = int(found[2])
        self.terms.append(int(found[3]))
        return number

    def wait_for_ready(self, number: int) -> None:
        self.process.wait_for(rf"trunkline\[{number}\]: ready$")


def ended(pid: int) -> bool:
    """Whether it runs no more; one of nobody's may still have to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def rows_of(runtime: Path, number: int, operation: str) -> list[dict[str, Any]]:
    with ControlClient(runtime / "trunkline" / "trunkline.workers" / f"{number}.sock") as worker:
        return list(worker.rows(operation))


def clients_of(runtime: Path, number: int) -> list[str]:
    return [row["client_id"] for row in rows_of(runtime, number, "clients.list")]


def leave(*clients: Client) -> None:
    """Some may have been disconnected."""
    for each in clients:
        with suppress(Disconnected):
            each.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_workers_serve_until_a_signal_and_all_end_with_0(start: Start, runtime: Path, signum: signal.Signals) -> None:
    node = Node(start())
    assert len({node.process.process.pid, *node.workers.values()}) == 3
    client(node.port).open()
    assert node.process.end(signum) == 0
    assert node.process.lines[-1].endswith("trunkline: stopped\n")
    for number, pid in node.workers.items():
        assert ended(pid)
        assert any(f"trunkline[{number}]: stopped" in line for line in node.process.lines)
    assert not any(re.search("WARNING|ERROR", line) for line in node.process.lines)
    assert not list((runtime / "trunkline").iterdir())


def test_all_workers_get_clients_at_one_port(start: Start, runtime: Path) -> None:
    node = Node(start())
    opened = [client(node.port, client_id=f"c{number}").open() for number in range(40)]
    found = [clients_of(runtime, number) for number in node.workers]
    assert all(found)
    assert sorted(chain(*found)) == sorted(f"c{number}" for number in range(40))
    leave(*opened)
    assert node.process.end(signal.SIGTERM) == 0


def test_each_line_of_a_worker_says_so(start: Start) -> None:
    node = Node(start())
    assert node.process.end(signal.SIGTERM) == 0
    own = [line for line in node.process.lines if re.search(r" trunkline(\.\w+)*\[[01]\]: ", line)]
    supervisors = [line for line in node.process.lines if re.search(r" trunkline(\.\w+)*: ", line)]
    assert len(own) + len(supervisors) == len(node.process.lines)
    assert {"0", "1"} == {found[1] for line in own if (found := re.search(r"\[(\d)\]", line))}


def test_a_worker_that_is_killed_starts_again_and_the_others_go_on(start: Start, runtime: Path) -> None:
    node = Node(start())
    before, (killed, stays) = dict(node.workers), (0, 1)
    opened = [client(node.port, client_id=f"c{number}").open() for number in range(20)]
    staying = clients_of(runtime, stays)
    os.kill(node.workers[killed], signal.SIGKILL)
    node.process.wait_for(rf"ERROR trunkline.workers: worker {killed} .* was killed by SIGKILL; it starts again in 1 s")
    assert set(clients_of(runtime, stays)) >= set(staying)
    assert node.note_start() == killed
    node.wait_for_ready(killed)
    assert node.workers[stays] == before[stays]
    assert node.workers[killed] != before[killed]
    assert node.terms == sorted(set(node.terms))
    leave(*opened)
    new = [client(node.port, client_id=f"n{number}").open() for number in range(20)]
    assert any(name.startswith("n") for name in clients_of(runtime, killed))
    leave(*new)
    assert node.process.end(signal.SIGTERM) == 0


def test_a_plugin_of_the_node_runs_in_the_first_worker_and_starts_again_with_it(start: Start, runtime: Path) -> None:
    describe(runtime / "bells.dist-info", "bells", "1", {"bell": "bells:bell"})
    (runtime / "bells.py").write_text(
        "def bell(context):\n"
        "    context.subscribe('ring', lambda message: context.publish('rung', context.process_name))\n"
    )
    scope = {"TRUNKLINE_PLUGINS__BELL__SCOPE": "node", "PYTHONPATH": os.pathsep.join([str(runtime), *sys.path])}
    node = Node(start(**scope))

    def status() -> list[tuple[str, str]]:
        return [
            (row["status"], row["scope"])
            for number in node.workers
            for row in rows_of(runtime, number, "plugins.list")
            if row["name"] == "bell"
        ]

    assert status() == [("running", "node"), ("in worker 0", "node")]
    folder = runtime / "trunkline" / "trunkline.workers"
    with (
        ControlClient(folder / "1.sock") as other,
        pytest.raises(ControlError, match=f"the streams .* at worker 0: ask it with --socket {folder / '0.sock'}"),
    ):
        list(other.rows("streams.list"))
    for _ in range(2):
        ringing = [client(node.port, client_id=f"c{number}").open() for number in range(8)]
        assert {number for number in node.workers if clients_of(runtime, number)} == {0, 1}
        heard = ringing[0].subscribe("rung")
        for each in ringing:
            each.publish("ring", qos=1)
            assert heard.receive(timeout=120).payload == b"trunkline.0"
        assert len(heard) == 0
        leave(*ringing)
        os.kill(node.workers[0], signal.SIGKILL)
        assert node.note_start() == 0
        node.wait_for_ready(0)
    assert status()[0] == ("running", "node")
    assert node.process.end(signal.SIGTERM) == 0


def test_what_a_killed_worker_has_acknowledged_is_there_again(start: Start, runtime: Path) -> None:
    node = Node(start())
    with client(node.port, client_id="a", clean_start=False, session_expiry=100) as first:
        first.subscribe("t", qos=1)
    (number,) = [number for number in node.workers if rows_of(runtime, number, "sessions.list")]
    os.kill(node.workers[number], signal.SIGKILL)
    node.process.wait_for(r"restored in .* s: .*1 session")
    assert node.process.end(signal.SIGTERM) == 0


def test_workers_end_with_their_supervisor_and_the_next_one_waits_for_them(start: Start, runtime: Path) -> None:
    """With the same store and at the same port."""
    node = Node(start())
    staying = client(node.port, client_id="c", clean_start=False, session_expiry=100).open()
    node.process.process.kill()
    again = Node(start("--listen", f"tcp://127.0.0.1:{node.port}"))
    assert all(map(ended, node.workers.values()))
    assert min(again.terms) > max(node.terms)
    leave(staying)
    assert node.process.end() == -signal.SIGKILL
    assert sum("]: stopped" in line for line in node.process.lines) == 2  # in order
    assert again.process.end(signal.SIGTERM) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only there does a worker notice that does not run")
def test_a_worker_whose_event_loop_is_stuck_ends_with_its_supervisor_too(start: Start) -> None:
    node = Node(start())
    pid = node.workers[0]
    os.kill(pid, signal.SIGSTOP)
    node.process.process.kill()
    os.kill(pid, signal.SIGCONT)
    assert node.process.end() == -signal.SIGKILL  # nobody has its standard error open any more
    assert all(map(ended, node.workers.values()))


def test_wills_are_published_before_anybody_is_disconnected(start: Start, runtime: Path) -> None:
    node = Node(start())
    watching = client(node.port, client_id="w").open()
    messages = watching.subscribe("wills/#", qos=1)
    (number,) = [number for number in node.workers if "w" in clients_of(runtime, number)]
    leaving: list[Client] = []
    while len(clients_of(runtime, number)) < 2:  # the system chooses the worker
        name = f"d{len(leaving)}"
        leaving.append(
            client(node.port, client_id=name, will=WillMessage(topic=f"wills/{name}", payload=b"gone")).open()
        )
    node.process.process.terminate()
    assert messages.receive(timeout=120).payload == b"gone"
    assert node.process.end() == 0


def test_a_reload_reaches_all(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[mqtt]\nmax_qos = 2\n")
    node = Node(start("--config", str(file)))
    file.write_text("[mqtt]\nmax_qos = 3\n")
    node.process.process.send_signal(signal.SIGHUP)
    node.process.wait_for(r"ERROR trunkline: not reloaded: .*mqtt.max_qos: 3")
    file.write_text("[mqtt]\nmax_qos = 1\n")
    node.process.process.send_signal(signal.SIGHUP)
    said = {node.process.wait_for(r"INFO trunkline(\[\d\]): reloaded$")[1] for _ in node.workers}
    assert said == {"[0]", "[1]"}
    assert node.process.end(signal.SIGTERM) == 0
    assert not any("trunkline[" in line and "not reloaded" in line for line in node.process.lines)


def test_the_service_manager_sees_one_service(start: Start, runtime: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(runtime / "notify"))
        manager.settimeout(120)
        node = Node(start(**{SOCKET: str(runtime / "notify"), WATCHDOG: "600000000"}))

        def told() -> str:
            """Besides signs of life, which come from the beginning on."""
            while (text := manager.recv(1000).decode()) == "WATCHDOG=1":
                signs.append(text)
            return text

        signs: list[str] = []
        assert told() == READY
        assert signs == ["WATCHDOG=1"]
        node.process.process.send_signal(signal.SIGHUP)
        assert told().startswith("RELOADING=1\n")
        assert told() == READY
        os.kill(node.workers[0], signal.SIGKILL)
        node.note_start()
        node.wait_for_ready(0)
        node.process.process.terminate()
        assert told() == STOPPING
        assert node.process.end() == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)


@pytest.mark.parametrize("by", [{SOCKET: "nobody", WATCHDOG: "2000000"}, {"TRUNKLINE_NODE__WORKER_TIMEOUT": "2s"}])
def test_a_worker_that_hangs_is_killed_and_starts_again(start: Start, by: dict[str, str]) -> None:
    """As the service manager would do with a single process, or as the settings say."""
    node = Node(start(**by))
    os.kill(node.workers[1], signal.SIGSTOP)
    node.process.wait_for("CRITICAL trunkline.workers: worker 1 has shown no sign of life for 2 s and is killed")
    assert node.note_start() == 1
    node.wait_for_ready(1)
    assert node.process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("watchdog", "settings", "expected"),
    [("", {}, 30), ("5000000", {}, 5), ("5000000", {"worker_timeout": 7}, 7), ("5000000", {"worker_timeout": 0}, 0)],
)
def test_how_long_a_worker_may_show_no_life(
    watchdog: str, settings: dict[str, int], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WATCHDOG, watchdog)
    assert sign_of_life(Config(node=NodeSettings.model_validate({"workers": 2, **settings}))) == expected


def test_a_second_signal_ends_all_at_once(start: Start) -> None:
    node = Node(start())
    os.kill(node.workers[0], signal.SIGSTOP)  # it does not end by itself
    node.process.process.terminate()
    node.process.wait_for(r"trunkline: stopping on SIGTERM")
    assert node.process.end(signal.SIGTERM) == -signal.SIGTERM
    assert all(map(ended, node.workers.values()))


def test_signals_for_all_processes_of_the_service_end_it_in_order(start: Start) -> None:
    """As systemd sends them by default, and more than once."""
    node = Node(start())
    for _ in range(3):
        for pid in node.workers.values():
            os.kill(pid, signal.SIGTERM)
    assert node.process.end(signal.SIGTERM) == 0
    assert sum("stopped" in line for line in node.process.lines) == 3


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"TRUNKLINE_AUTH__PASSWORD_FILE": "missing"}, 2, "missing"),
        ({"TRUNKLINE_STORE__PATH": "/nowhere/at/all.db"}, 2, "/nowhere/at"),
        ({"TRUNKLINE_MQTT__MAX_QOS": "3"}, 2, "TRUNKLINE_MQTT__MAX_QOS"),
        ({"TRUNKLINE_NODE__WORKERS": "300"}, 2, 'accepted is a number from 1 to 256, or "auto"'),
    ],
    ids=["file", "store", "configuration", "number"],
)
def test_what_keeps_it_from_starting_is_said_once(
    start: Start, settings: dict[str, str], code: int, words: str
) -> None:
    broker = start(**settings)
    assert broker.end() == code
    (line,) = [line for line in broker.lines if line.startswith("trunkline: ")]
    assert words in line
    assert "Traceback" not in "".join(broker.lines)


def test_a_store_that_cannot_be_used_is_one_line(start: Start, runtime: Path) -> None:
    (runtime / "a.1.db").write_bytes(b"something else" * 1000)
    broker = start()
    assert broker.end() == 1
    (line,) = [line for line in broker.lines if line.startswith("trunkline: ")]
    assert "a.1.db is not a store of Trunkline" in line
    assert not list((runtime / "trunkline").iterdir())


def test_one_line_for_an_address_in_use(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        broker = start("--listen", url)
        assert broker.end() == 1
    (line,) = [line for line in broker.lines if line.startswith("trunkline: ")]
    assert url in line
    assert "ddress already in use" in line


def test_one_node_has_the_stores(start: Start) -> None:
    first = Node(start())
    second = start()
    assert second.end() == 1
    assert f"a.db is in use by process {first.process.process.pid}" in "".join(second.lines)
    single = start(TRUNKLINE_NODE__WORKERS="1")
    assert single.end() == 1
    assert "divided among several workers" in "".join(single.lines)
    assert first.process.end(signal.SIGTERM) == 0


def test_a_store_of_one_process_is_not_left_behind(start: Start) -> None:
    single = start(TRUNKLINE_NODE__WORKERS="1")
    single.wait_for("serving")
    assert single.end(signal.SIGTERM) == 0
    several = start()
    assert several.end() == 1
    assert "a.db is that of one process, and node.workers is 2" in "".join(several.lines)


def test_unix_sockets_are_for_all_workers(start: Start, runtime: Path) -> None:
    path = runtime / "mqtt"
    broker = start("--listen", f"unix://{path}")
    broker.wait_for("trunkline: serving$")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
    assert broker.end(signal.SIGTERM) == 0
    assert not path.exists()


def test_all_control_sockets_are_in_the_nodes_folder(start: Start, runtime: Path) -> None:
    node = Node(start())
    found = worker_sockets(runtime / "trunkline" / "trunkline.workers")
    assert len(found) == 2
    for number, path in enumerate(found):
        with ControlClient(path) as worker:
            assert worker.pid == node.workers[number]
    assert node.process.end(signal.SIGTERM) == 0
    with pytest.raises(NoBroker):
        ControlClient(found[0])


def test_figures_are_those_of_the_node_and_counters_do_not_go_back_when_a_worker_is_killed(
    start: Start, runtime: Path
) -> None:
    node = Node(start())
    opened = [client(node.port, client_id=f"c{number}").open() for number in range(10)]
    for number, each in enumerate(opened):
        each.publish(f"t/{number}", b"x", qos=1, retain=True)

    def figures(number: int) -> dict[str, int]:
        with ControlClient(runtime / "trunkline" / "trunkline.workers" / f"{number}.sock") as worker:
            return {row["name"]: row["value"] for row in worker.rows("metrics")}

    names = "messages.received", "retained.count", "connections.count", "connections.accepted"
    for number in node.workers:
        assert [figures(number)[name] for name in names] == [10, 10, 10, 10]
    os.kill(node.workers[1], signal.SIGKILL)
    node.note_start()
    node.wait_for_ready(1)
    left = len(clients_of(runtime, 0))
    for number in node.workers:
        found = figures(number)
        assert [found[name] for name in names[:3]] == [10, 10, left]
        assert found["connections.accepted"] >= 10
    leave(*opened)
    assert node.process.end(signal.SIGTERM) == 0


def of_worker(number: int) -> str:
    """A client id whose home it is, of two."""
    homes = Homes(0, dealt(2))
    return next(name for n in count() if homes.home_of(name := f"w{n}") == number)


def test_a_small_limit_means_what_it_says(start: Start) -> None:
    node = Node(start(TRUNKLINE_LIMITS__MAX_CONNECTIONS="2"))
    opened = [client(node.port, client_id=of_worker(number)).open() for number in range(2)]
    for number in range(6):  # whatever worker gets it
        with pytest.raises(ConnectFailed):
            client(node.port, client_id=f"more{number}").open()
    leave(*opened)
    assert node.process.end(signal.SIGTERM) == 0


def test_what_a_killed_worker_has_promised_holds(start: Start, runtime: Path) -> None:
    """An exclusive subscription is nobody else's meanwhile, and a ban that it has missed holds when it is back."""
    node = Node(start(TRUNKLINE_PLUGINS__EXCLUSIVE__ENABLED="true", TRUNKLINE_PLUGINS__BANS__ENABLED="true"))
    stays = client(node.port, client_id=of_worker(1), session_expiry=1000, clean_start=False).open()
    stays.subscribe("$exclusive/t")
    asks = client(node.port, client_id=of_worker(0)).open()
    os.kill(node.workers[1], signal.SIGKILL)
    node.process.wait_for("the link to worker 1 is down")
    with pytest.raises(SubscribeRefused):
        asks.subscribe("$exclusive/t")
    with ControlClient(runtime / "trunkline" / "trunkline.workers" / "0.sock") as worker:
        worker.call("bans.add", kind="client_id", who=of_worker(1))
    node.note_start()
    node.wait_for_ready(1)
    with pytest.raises(SubscribeRefused):
        asks.subscribe("$exclusive/t")
    with pytest.raises(ConnectRefused, match="banned"):
        client(node.port, client_id=of_worker(1)).open()
    leave(stays, asks)
    assert node.process.end(signal.SIGTERM) == 0


def test_ctl_asks_all_workers_and_gives_one_answer(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(start())
    opened = [client(node.port, client_id=f"c{number:02}").open() for number in range(20)]
    assert all(clients_of(runtime, number) for number in node.workers)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(runtime))

    def ctl(*words: str) -> str:
        result = CliRunner().invoke(cli, ["ctl", "--no-config", *words, "--json"])
        assert result.exit_code == 0, result.output
        return result.output

    listed = [json.loads(line)["client_id"] for line in ctl("clients", "list").splitlines()]
    assert listed == [f"c{number:02}" for number in range(20)]
    assert len(ctl("clients", "list", "--limit", "7").splitlines()) == 7
    status = json.loads(ctl("status"))
    assert (status["node"], status["connections"]) == ("trunkline", 20)
    assert status["workers"] == [node.workers[0], node.workers[1]]
    assert [listener["connections"] for listener in status["listeners"]] == [20]
    for number in range(3):
        assert json.loads(ctl("clients", "kick", f"c{number:02}"))["kicked"] == f"c{number:02}"
    assert json.loads(ctl("status"))["connections"] == 17
    assert json.loads(ctl("reload"))["reloaded"]
    leave(*opened)
    assert node.process.end(signal.SIGTERM) == 0


def test_each_worker_has_a_folder_in_the_event_log(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "broker.toml"
    file.write_text('[plugins.events]\npath = "log"\n')
    node = Node(start("--config", str(file)))
    assert node.process.end(signal.SIGTERM) == 0
    names = {path.name.partition("@")[0] for path in (tmp_path / "log").rglob("*") if "@" in path.name}
    assert {name.rpartition("=")[2].lstrip(".") for name in names} == {"trunkline.0", "trunkline.1"}


def test_streams_and_nats_are_at_the_first_worker_for_clients_of_any(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "tcp://127.0.0.1:0,nats://127.0.0.1:0"
    declared = '[{name = "orders", filters = ["orders/#"], max_messages = 3, discard = "new"}]'
    node = Node(start(TRUNKLINE_LISTENERS=both, TRUNKLINE_STREAMS=declared))
    nats_port = next(int(found[1]) for line in node.process.lines if (found := re.search(r"port (\d+) \(NATS\)", line)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(runtime))
    devices = [client(node.port, client_id=f"c{number}").open() for number in range(8)]
    earliest: Properties = {"user_property": [("from", "earliest")]}
    assert all(clients_of(runtime, number) for number in node.workers)
    assert "nats" not in str(rows_of(runtime, 1, "clients.list"))
    with nats.connect(f"nats://127.0.0.1:{nats_port}") as service, ExitStack() as subscribed:
        readers = [
            subscribed.enter_context(device.subscribe("$stream/orders/orders/#", qos=1, properties=earliest))
            for device in devices
        ]
        heard = service.subscribe("orders.>")
        service.flush()
        for number, device in enumerate(devices[:3]):
            device.publish("orders/1", b"%d" % number, qos=1)
        for reader in readers:
            assert [reader.receive().payload for _ in range(3)] == [b"0", b"1", b"2"]
        assert [heard.receive().payload for _ in range(3)] == [b"0", b"1", b"2"]
        for device in devices:
            with pytest.raises(PublishRefused, match="the stream 'orders' is full"):
                device.publish("orders/1", b"no", qos=1)
        assert service.jetstream().stream("orders").state.messages == 3
    listed = CliRunner().invoke(cli, ["ctl", "--no-config", "streams", "list", "--json"])
    assert json.loads(listed.output)["name"] == "orders", listed.output
    leave(*devices)
    assert node.process.end(signal.SIGTERM) == 0
