"""Which runs the options and forms make, and with which peers."""

import resource
import sys
from io import StringIO
from pathlib import Path

import pytest
from bench import plan
from bench.options import chosen_peers, parse
from bench.peers import PEERS, Peer, known
from bench.plan import FORMS, SIZES, groups, within
from bench.progress import Progress, duration
from bench.workloads import WORKLOADS

#: Those that are measured over plain TCP.
OVER_TCP = {name: each for name, each in WORKLOADS.items() if each.over("tcp")}


def planned(*arguments: str) -> list[tuple[str, str, int]]:
    options, _form = parse([*arguments])
    workloads = [WORKLOADS[name] for name in options.workload]
    made = groups(workloads, options.version, options.payload)
    return [(group.workload.name, group.version, group.workload.payload) for group in made]


def test_without_options_everything_is_run_once() -> None:
    assert planned() == [(name, "3.1.1", 64) for name in OVER_TCP]


def test_sizes_are_for_the_streaming_workloads_and_the_first_version() -> None:
    found = planned(
        "-w", "connect", "-w", "pair-qos0", "-V", "5", "-V", "3.1.1", "--payload", "64", "--payload", "1024"
    )
    assert found == [
        ("pair-qos0", "5", 64),
        ("pair-qos0", "3.1.1", 64),
        ("pair-qos0", "5", 1024),
        ("connect", "5", 64),
        ("connect", "3.1.1", 64),
    ]
    assert planned("-w", "pair-qos0", "--payload", "1024") == [("pair-qos0", "3.1.1", 1024)]


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    found = planned("--form", form)
    assert found
    assert {name for name, _, _ in found} <= set(WORKLOADS)
    if form in ("short", "full"):
        sized = {(name, payload) for name, version, payload in found if version == "3.1.1"}
        assert sized == {
            (name, payload) for name, each in OVER_TCP.items() for payload in (SIZES if each.sizes else (64,))
        }
        assert {name for name, version, _ in found if version == "5"} == set(OVER_TCP)


def test_five_minutes_are_five_minutes() -> None:
    form = FORMS["five-minutes"]
    runs = len(planned("--form", "five-minutes")) * form.rounds * len(form.peers)
    assert 240 < runs * (form.seconds + form.warmup + 1.0) < 330  # a second for start, end and preparations


def test_every_workload_over_every_transport_that_it_can_have() -> None:
    options, _form = parse(["-t", "tcp", "-t", "ws", "-t", "wss", *("-w", "retained", "-w", "connect-resumed")])
    workloads = [WORKLOADS[name] for name in options.workload]
    made = groups(workloads, options.version, options.payload, options.transport)
    found = [(group.workload.name, group.workload.transport) for group in made]
    assert found == [("connect-resumed", "wss"), ("retained", "tcp")]


def test_options_are_stronger_than_the_form() -> None:
    options, form = parse(["--form", "short", "--rounds", "4", "-w", "all", "--flows", "100"])
    assert (options.rounds, options.flows, options.window) == (4, 100, form.window)
    assert options.seconds == form.seconds < 1


@pytest.mark.parametrize("size", ["0", "-1", "1000000"])
def test_sizes_that_the_generator_cannot_count(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--payload", size])
    assert "1 to 262144 bytes" in capsys.readouterr().err


def test_what_does_not_fit_is_scaled() -> None:
    idle = within(WORKLOADS["idle"], 2000)
    assert idle.flows == idle.held == 2000 - plan.SPARE
    assert within(WORKLOADS["idle"], 65536) == WORKLOADS["idle"]
    few = WORKLOADS["subscribe-1m"].scaled(flows=None, window=None, topics=None, held=300)
    assert few.held == few.batch == 300


def test_the_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(what: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if limits[1] > 4096:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert plan.allow_files() == 4096
    assert asked == [(plan.FILES, plan.FILES), (4096, 4096)]


def test_what_peers_cannot() -> None:
    qos2, shared, many = WORKLOADS["pairs-qos2"], WORKLOADS["shared-qos0"], WORKLOADS["subscribe-1m"]
    assert PEERS["trunkline"].cannot(qos2, "5") is None
    assert PEERS["mosquitto"].cannot(shared, "3.1.1") is None
    assert PEERS["nats-server"].cannot(qos2, "3.1.1") == "QoS 2"
    assert PEERS["nats-server"].cannot(WORKLOADS["pairs-qos1"], "3.1.1") is None
    assert PEERS["nats-server"].cannot(WORKLOADS["pairs-qos1"], "5") == "MQTT 5"
    encrypted = qos2.over("tls")
    assert encrypted is not None
    assert PEERS["aedes"].cannot(encrypted, "3.1.1") == "tls"
    assert PEERS["mosquitto"].cannot(encrypted, "3.1.1") is PEERS["trunkline"].cannot(encrypted, "3.1.1") is None
    assert PEERS["aedes"].cannot(shared, "3.1.1") == "shared subscriptions"
    assert PEERS["amqtt"].cannot(many, "3.1.1") == "more than 100,000 subscriptions, in useful time"
    assert PEERS["amqtt"].cannot(WORKLOADS["subscribe-100k"], "3.1.1") is None


def test_aedes_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_NODE_MODULES", raising=False)
    monkeypatch.setenv("NODE_PATH", "")
    assert known()["aedes"].missing() == "no aedes in --node-modules, BENCH_NODE_MODULES or NODE_PATH"
    (tmp_path / "aedes").mkdir()
    monkeypatch.setenv("NODE_PATH", f"nowhere:{tmp_path}")
    assert str(tmp_path) in known()["aedes"].command
    monkeypatch.setenv("BENCH_NODE_MODULES", str(tmp_path))
    assert str(tmp_path) in known()["aedes"].command
    assert str(tmp_path) in known(node_modules=str(tmp_path))["aedes"].command
    assert known(node_modules="nowhere")["aedes"].needs == ""  # NODE_PATH has it


def test_amqtt_runs_with_the_interpreter_that_it_is_installed_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_AMQTT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert known()["amqtt"].missing() == "no amqtt in --amqtt, BENCH_AMQTT or on the PATH"
    for name in ("amqtt", "python"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).touch(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "bin" / "amqtt")
    assert known(amqtt_program=str(tmp_path / "link"))["amqtt"].command[0] == str(tmp_path / "bin" / "python")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert known()["amqtt"].command[0] == str(tmp_path / "bin" / "python")


def test_peers_are_chosen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def names(*arguments: str) -> list[str]:
        return [peer.name for peer in chosen_peers(*parse([*arguments]))]

    monkeypatch.setattr(Peer, "missing", lambda self: "it is gone" if self.name == "mosquitto" else None)
    assert names() == ["trunkline"]
    assert "without mosquitto: it is gone" in capsys.readouterr().err
    assert names("-p", "all") == [
        "trunkline",
        "trunkline-2",
        "trunkline-4",
        "trunkline-hook",
        "trunkline-export",
        "nats-server",
        "aedes",
        "amqtt",
        "sink",
    ]
    assert names("-p", "mine=broker --port {port}", "-p", "sink") == ["mine", "sink"]
    with pytest.raises(SystemExit, match="unknown peer 'other'"):
        names("-p", "other")


def test_a_configuration_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    [peer] = chosen_peers(*parse(["-p", "trunkline", "--config", str(file)]))
    assert peer.command[peer.command.index("--config") + 1] == str(file)


def test_versions_of_brokers() -> None:
    assert Peer("made-up", ["x"], about=[sys.executable, "-c", "print('made-up 1.22.333-rc1, (c) 4.5')"]).version() == (
        "1.22.333"
    )
    assert Peer("made-up", ["x"], about=["/nowhere/at/all"]).version() is None
    assert Peer("made-up", ["x"]).version() is None


def test_progress_tells_how_long_it_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    said = StringIO()
    progress = Progress(11, said)
    progress.begin("one")
    now += 40.0
    progress.end()
    progress.begin("two")
    assert said.getvalue() == "[ 1/11] one\n[ 2/11] two; 7 min left\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (90, "2 min"), (3600, "60 min"), (7290, "2 h 2 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
