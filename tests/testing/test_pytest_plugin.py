"""The fixtures, in runs of pytest of their own: with each of the plugins that people use, and with none."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

pytest_plugins = "pytester"

Run = Callable[..., pytest.RunResult]

#: The plugins of others that are installed here, by the names under which pytest knows them.
OTHERS = {"trio", "asyncio", "anyio", "xdist"}


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs files of tests with these plugins and no others. Warnings are errors. `here`: in this process, in a
    tenth of the time."""

    def run(
        *options: str, plugins: tuple[str, ...] = (), ini: str = "", here: bool = False, **files: str
    ) -> pytest.RunResult:
        if files:
            pytester.makepyfile(**files)
        if "asyncio" in plugins:
            ini += "\nasyncio_default_fixture_loop_scope = function"
        pytester.makeini(f"[pytest]\nfilterwarnings = error\n{ini}")
        without = [f"-pno:{name}" for name in sorted(OTHERS - {*plugins})]
        start = pytester.runpytest_inprocess if here else pytester.runpytest_subprocess
        return start(*without, "-pno:cacheprovider", "--strict-markers", "--strict-config", *options)

    return run


PLAIN = """
import pytest
from paho.mqtt import publish, subscribe

def test_a_client_comes_in(mqtt_broker):
    publish.single("greeting", "hello", retain=True, hostname=mqtt_broker.host, port=mqtt_broker.port)
    mqtt_broker.wait_until(lambda: mqtt_broker.retained)
    assert [row.payload for row in mqtt_broker.retained] == [b"hello"]

def test_the_next_one_has_a_broker_of_its_own(mqtt_broker):
    assert not mqtt_broker.retained
    mqtt_broker.clock.advance(3600)

def test_a_factory_makes_several(mqtt_broker_factory):
    one, two = mqtt_broker_factory(), mqtt_broker_factory(mqtt={"max_qos": 1}, history=0)
    assert one.port != two.port
    assert (one.history > 0, two.history) == (True, 0)
    assert two._running.node.config.mqtt.max_qos == 1

@pytest.mark.parametrize("number", [0, 1])
def test_one_for_all(mqtt_broker_session, number):
    assert len(mqtt_broker_session.retained) == number
    mqtt_broker_session.publish("kept", "here", retain=True)
"""


ASYNC = """
import aiomqtt
import pytest

MARK

async def test_a_client_comes_in(mqtt_broker):
    async with aiomqtt.Client(mqtt_broker.host, mqtt_broker.port) as client:
        await client.publish("greeting", "hello", retain=True, qos=1)
        assert [row.payload for row in mqtt_broker.retained] == [b"hello"]
    await mqtt_broker.clock.advance(3600)
    await mqtt_broker.wait_until(lambda: not mqtt_broker.clients)

@pytest.fixture
async def client(mqtt_broker):
    async with aiomqtt.Client(mqtt_broker.host, mqtt_broker.port) as client:
        yield client

async def test_fixtures_build_on_it(mqtt_broker, client):
    assert len(mqtt_broker.clients) == 1

async def test_a_factory_makes_several(mqtt_broker_factory):
    one, two = mqtt_broker_factory(), mqtt_broker_factory()
    await one.wait_until(lambda: one.port != two.port)

async def test_one_for_all(mqtt_broker_session):
    assert "messages.received" in await mqtt_broker_session.metrics()

def test_a_plain_one_beside_them(mqtt_broker, mqtt_broker_session):
    assert mqtt_broker.metrics()["connections.count"] == 0
    assert "messages.received" in mqtt_broker_session.metrics()
"""


ANYIO = """
import anyio
import pytest

pytestmark = pytest.mark.anyio

async def test_in_both(mqtt_broker, mqtt_broker_session):
    async with await anyio.connect_tcp(mqtt_broker.host, mqtt_broker.port) as stream:
        await stream.send(bytes.fromhex("100d00044d51545404020000000161"))
        assert await stream.receive() == bytes.fromhex("20020000")
        await mqtt_broker.wait_until(lambda: mqtt_broker.clients)
        with anyio.move_on_after(0.01) as scope:
            await mqtt_broker.wait_until(lambda: False)
        assert scope.cancelled_caught
    await mqtt_broker_session.clock.advance(60)
"""


TRIO = """
import pytest
import trio

MARK
async def test_the_clock_is_the_tests(mqtt_broker, autojump_clock):
    assert mqtt_broker.node is not None
    began = trio.current_time()
    stream = mqtt_broker.connect()
    await stream.send_all(bytes.fromhex("100d00044d51545404020e10000161"))
    assert await stream.receive_some() == bytes.fromhex("20020000")
    assert await stream.receive_some() == b""
    assert trio.current_time() - began >= 5400
    await stream.aclose()

@pytest.fixture
async def stream(mqtt_broker):
    async with mqtt_broker.connect() as stream:
        yield stream

@pytest.fixture
def port(mqtt_broker):
    return mqtt_broker.port

MARK
async def test_fixtures_build_on_it(mqtt_broker, stream, port):
    assert port == mqtt_broker.port
    await stream.send_all(bytes.fromhex("100d00044d51545404020000000161"))
    await mqtt_broker.wait_until(lambda: mqtt_broker.clients)

MARK
async def test_one_for_all(mqtt_broker_session, mqtt_broker_factory):
    assert "messages.received" in await mqtt_broker_session.metrics()
    broker = mqtt_broker_factory()
    with pytest.raises(RuntimeError, match="host"):
        broker.connect()
    await broker.clock.advance(10)

def test_a_plain_one_beside_them(mqtt_broker, mqtt_broker_session):
    assert mqtt_broker.metrics()["connections.count"] == 0
    assert "messages.received" in mqtt_broker_session.metrics()
"""


FAILS = """
import pytest
from paho.mqtt import client as mqtt

def watch(broker):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "watcher")
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe("sensors/#", 1)
    return client

def test_fails(mqtt_broker):
    client = watch(mqtt_broker)
    mqtt_broker.wait_until(lambda: mqtt_broker.subscriptions)
    mqtt_broker.publish("sensors/kitchen", "x" * 1000, retain=True)
    for number in range(100):
        mqtt_broker.publish(f"sensors/{number:03}", "x", retain=True)
    client.loop_stop()
    assert False, "on purpose"

def test_shared(mqtt_broker_session):
    assert False, "on purpose"

@pytest.fixture
def ready(mqtt_broker):
    assert False, "in a fixture"

def test_is_not_reached(ready):
    pass

def test_passes(mqtt_broker):
    mqtt_broker.publish("not/shown", "x", retain=True)
"""


HOOKS = """
import pytest

def check(message, receivers):
    assert message.payload == b"good"

def test_its_own(mqtt_broker):
    mqtt_broker.hooks.add("message.routed", check)
    mqtt_broker.publish("t", "bad")

def test_of_all(mqtt_broker_session):
    mqtt_broker_session.hooks.add("message.routed", check)
    mqtt_broker_session.publish("t", "bad")
    mqtt_broker_session.hooks.remove("message.routed", check)

def test_the_next_one_passes(mqtt_broker_session):
    mqtt_broker_session.publish("t", "bad")
"""


OWN = """
import pytest
import trunkline.testing
import unittest

@pytest.fixture
def own():
    with trunkline.testing.broker() as broker:
        yield broker

def test_with_a_fixture_of_its_own(own):
    own.publish("seen/1")
    assert False, "on purpose"

def test_with_a_block_of_its_own():
    with trunkline.testing.broker() as broker:
        broker.publish("seen/2")
        assert False, "on purpose"

@pytest.fixture
def fails_later(mqtt_broker):
    yield
    mqtt_broker.publish("seen/3")
    assert False, "on purpose"

def test_whose_teardown_fails(fails_later):
    pass

class TestCase(unittest.TestCase):
    def setUp(self):
        self.broker = self.enterContext(trunkline.testing.broker())

    def test_it(self):
        self.broker.publish("seen/4")
        assert False, "on purpose"

def test_of_all(mqtt_broker_session):
    mqtt_broker_session.publish("seen/5")

def test_without():
    assert False, "on purpose"
"""


SHARED = """
import pytest

pytestmark = pytest.mark.mqtt_broker(mqtt={"max_qos": 1})
ports = set()

def test_one(mqtt_broker_module, mqtt_broker_session):
    assert mqtt_broker_module._running.node.config.mqtt.max_qos == 1
    mqtt_broker_module.publish("t", "x", retain=True)
    ports.add(mqtt_broker_module.port)
    assert mqtt_broker_session.port not in ports

def test_the_next(mqtt_broker_module):
    assert mqtt_broker_module.port in ports
    assert mqtt_broker_module.retained
    mqtt_broker_module.reset()
    assert not mqtt_broker_module.retained

async def test_async(mqtt_broker_module):
    await mqtt_broker_module.reset()
    assert mqtt_broker_module.port in ports

async def test_says_itself(mqtt_thread_broker):
    mqtt_thread_broker.wait_until(lambda: True)
    await mqtt_thread_broker.awaitable.wait_until(lambda: True)
"""


JOURNALS = """
import pytest

@pytest.mark.parametrize("number", [0, 1])
def test_all(mqtt_broker, mqtt_broker_factory, number):
    mqtt_broker_factory()

@pytest.mark.mqtt_broker(record="mine.journal")
def test_one(mqtt_broker):
    pass
"""


def test_plain_tests(run: Run, pytester: pytest.Pytester) -> None:
    """In one run: what a test's broker is, what is shown when tests fail, and what is recorded."""
    result = run(
        "-rA",
        "--mqtt-journal=journals",
        test_plain=PLAIN,
        test_fails=FAILS,
        test_hooks=HOOKS,
        test_own=OWN,
        test_journals=JOURNALS,
    )
    result.assert_outcomes(passed=5 + 1 + 1 + 2 + 3, failed=2 + 2 + 4, errors=1 + 1)
    shown = "\n".join(result.outlines)
    sections = shown.split("- MQTT broker -")[1:]
    assert len(sections) == 3 + 2 + 4
    # of tests that fail, with fixtures and without
    assert "  watcher: connected by 3.1.1" in shown
    assert "  watcher to sensors/# at QoS 1" in shown
    assert "101 retained messages, the last 20" in shown
    assert "  sensors/098: b'x'" in shown
    assert "  sensors/070: b'x'" not in shown
    assert f"  sensors/kitchen: b'{'x' * 100}" in shown
    assert "x" * 200 not in shown
    assert "not/shown" not in shown
    for number in range(1, 5):
        assert shown.count(f"  seen/{number} b'' QoS 0") == 1
    assert "  seen/5" not in shown
    # hooks that raise
    result.stdout.fnmatch_lines([">       assert message.payload == b?good?"])
    # journals
    assert (pytester.path / "mine.journal").exists()
    journals = {path.name for path in (pytester.path / "journals").iterdir()}
    assert {f"test_journals.py-test_all-{number}{more}.journal" for number in (0, 1) for more in ("", "-2")} == {
        name for name in journals if name.startswith("test_journals")
    }
    assert "session.journal" in journals


SETTINGS = """
import pytest

pytestmark = pytest.mark.mqtt_broker(session={"max_inflight": 3, "max_queue_length": 30})

def config(broker):
    return broker._running.node.config

def test_of_all(mqtt_broker_factory, mqtt_broker_session):
    for broker in (mqtt_broker_factory(), mqtt_broker_session):
        assert config(broker).session.max_inflight == 2
        assert config(broker).mqtt.max_qos == 1
    assert config(mqtt_broker_factory(session={"max_inflight": 5})).session.max_inflight == 5

def test_of_the_module(mqtt_broker):
    assert config(mqtt_broker).session.max_inflight == 3
    assert config(mqtt_broker).mqtt.max_qos == 1

@pytest.mark.mqtt_broker(session={"max_inflight": 4})
def test_of_the_test(mqtt_broker):
    assert config(mqtt_broker).session.max_inflight == 4
    assert config(mqtt_broker).session.max_queue_length == 30

@pytest.mark.mqtt_broker(session={"max_inflightt": 4})
def test_wrong(mqtt_broker):
    pass

@pytest.mark.mqtt_broker({"max_inflight": 4})
def test_not_by_section(mqtt_broker):
    pass
"""


def test_settings_come_from_markers_and_from_the_configuration(run: Run) -> None:
    ini = "mqtt_broker =\n    session.max_inflight = 2\n    mqtt.max_qos = 1\n"
    result = run(here=True, ini=ini, test_settings=SETTINGS)
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*session.max_inflightt: unknown key; did you mean*"])
    result.stdout.fnmatch_lines(["*the marker mqtt_broker of test_not_by_section takes settings by section*"])


WRONG = """
import pytest

@pytest.mark.mqtt_broker(session={"max_inflightt": 4}, log={"level": "loud"})
class TestMarked:
    @pytest.mark.mqtt_broker(log={"level": "low"}, listeners=["tcp://127.0.0.1:0", 5])
    def test_of_a_class(self, mqtt_broker):
        pass

def test_made(mqtt_broker_factory):
    mqtt_broker_factory(retained={"lots": 1})

@pytest.mark.trio
async def test_in_trio(mqtt_broker):
    pass
"""


def test_wrong_settings_are_named_with_where_they_were_written(run: Run) -> None:
    result = run(ini="mqtt_broker = mqtt.max_packet_sie = 5\n", plugins=("trio",), test_wrong=WRONG)
    result.assert_outcomes(errors=1, failed=2)  # pytest-trio makes fixtures within the test
    of_all = "*mqtt_broker in tox.ini: mqtt.max_packet_sie: unknown key; did you mean max_packet_size?"
    for lines in (
        [
            of_all,
            "*the marker mqtt_broker of TestMarked: session.max_inflightt: unknown key*",
        ],
        ["*the marker mqtt_broker of test_of_a_class: listeners[[]1[]]*"],
        ["*the marker mqtt_broker of test_of_a_class: log.level: *low*"],
        [of_all, "*mqtt_broker_factory: retained*"],
    ):
        result.stdout.fnmatch_lines(lines)
    assert "settings: " not in result.stdout.str()


def test_settings_that_are_no_toml_are_named(run: Run) -> None:
    result = run(ini="mqtt_broker = session: 1", here=True, test_it="def test_it(mqtt_broker): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the option mqtt_broker of pytest's configuration is not TOML*"])


def test_with_pytest_asyncio(run: Run) -> None:
    result = run(
        plugins=("asyncio",), ini="asyncio_mode = auto", test_async=ASYNC.replace("MARK", ""), test_shared=SHARED
    )
    result.assert_outcomes(passed=5 + 4)


def test_with_pytest_asyncio_and_marks(run: Run) -> None:
    code = ASYNC.replace("MARK", "").replace("@pytest.fixture", "@pytest_asyncio.fixture")
    code = "import pytest_asyncio\n" + code.replace("async def test", "@pytest.mark.asyncio\nasync def test")
    run(plugins=("asyncio",), ini="asyncio_mode = strict", here=True, test_async=code).assert_outcomes(passed=5)


def test_with_anyio_in_asyncio_and_in_trio(run: Run) -> None:
    code = ASYNC.replace("MARK", "@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n")
    code = code.replace("async def test", "@pytest.mark.anyio\nasync def test")
    result = run("-v", plugins=("anyio",), here=True, test_async=code, test_both=ANYIO)
    result.assert_outcomes(passed=5 + 2)
    result.stdout.fnmatch_lines(["*test_in_both?asyncio?*PASSED*", "*test_in_both?trio?*PASSED*"])


FAILS_IN_TRIO = """
async def test_fails(mqtt_broker):
    mqtt_broker.publish("seen", "x", retain=True)
    assert False, "on purpose"
"""

HYPOTHESIS = """
from hypothesis import HealthCheck, given, settings, strategies as st

@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers())
async def test_it(mqtt_broker, number):
    await mqtt_broker.wait_until(lambda: True)
"""


def test_with_pytest_trio(run: Run, pytester: pytest.Pytester) -> None:
    hooks = HOOKS.replace("def test_", "async def test_").replace("mqtt_broker_session", "mqtt_broker")
    result = run(
        "--mqtt-journal=journals",
        plugins=("trio",),
        ini="trio_mode = true",
        test_trio=TRIO.replace("MARK", ""),
        test_hooks=hooks,
        test_fails=FAILS_IN_TRIO,
        test_hypothesis=HYPOTHESIS,
    )
    result.assert_outcomes(passed=4 + 1 + 1, failed=2 + 1)
    result.stdout.fnmatch_lines(["*- MQTT broker -*", "mqtt://127.0.0.1:*", "1 retained message", "  seen: b'x'"])
    assert (pytester.path / "journals" / "test_fails.py-test_fails.journal").exists()


def test_with_pytest_trio_and_marks(run: Run) -> None:
    code = TRIO.replace("MARK", "@pytest.mark.trio")
    run(plugins=("trio",), ini="trio_mode = false", here=True, test_trio=code).assert_outcomes(passed=4)


def test_with_xdist_each_worker_has_its_own(run: Run) -> None:
    code = """
import os
import pytest

@pytest.mark.parametrize("number", range(20))
def test_ports(mqtt_broker, mqtt_broker_session, number):
    print("WORKER", os.environ["PYTEST_XDIST_WORKER"], "SHARED", mqtt_broker_session.port, "OWN", mqtt_broker.port)
    assert mqtt_broker.port != mqtt_broker_session.port
"""
    result = run("-n", "2", "-rP", plugins=("xdist",), test_ports=code)
    result.assert_outcomes(passed=20)
    lines = [line.split() for line in result.outlines if line.startswith("WORKER")]
    assert len(lines) == 20
    shared = {(worker, port) for _, worker, _, port, _, _ in lines}
    assert len(shared) == len({worker for worker, _ in shared}) == len({port for _, port in shared}) == 2


def test_the_fixtures_and_the_marker_are_listed(run: Run) -> None:
    result = run("--fixtures", here=True)
    for name in ("mqtt_broker", "mqtt_broker_factory", "mqtt_broker_session [[]session scope[]]"):
        result.stdout.fnmatch_lines([f"{name} -- *"])
    assert "_mqtt_broker_in_trio" not in result.stdout.str()
    run("--markers", here=True).stdout.fnmatch_lines(["@pytest.mark.mqtt_broker(*settings): *"])


def test_it_costs_nothing_where_it_is_not_used() -> None:
    code = (
        "import pytest, sys; before = {*sys.modules}; import trunkline.pytest_plugin; print(*{*sys.modules} - before)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert set(done.stdout.split()) == {"trunkline", "trunkline.pytest_plugin"}


def test_a_run_without_a_broker_imports_no_broker(run: Run) -> None:
    code = """
import sys

def test_it():
    assert "trunkline.pytest_plugin" in sys.modules
    assert not {"trio", "pydantic", "trunkline.testing", "trunkline.broker"} & {*sys.modules}
"""
    run(test_it=code).assert_outcomes(passed=1)


CLIENTS = """
import asyncio
import pytest

def test_paho(mqtt_broker, mqtt_paho):
    lamp = mqtt_paho("lamp")
    assert [row.client_id for row in mqtt_broker.clients] == ["lamp"]
    lamp.publish("lamp/state", "on", qos=1)
    mqtt_broker.wait_for("lamp/state", payload="on", publisher="lamp")
    with pytest.raises(ConnectionError, match="'no' of paho-mqtt did not connect: Not authorized"):
        with mqtt_broker.faults.refuse_connect("NOT_AUTHORIZED", client="no"):
            mqtt_paho("no")

@pytest.mark.mqtt_broker(users={"ada": "secret"})
@pytest.mark.parametrize("protocol", [4, 5])
def test_paho_logs_in(mqtt_broker, mqtt_paho, protocol):
    mqtt_paho("lamp", username="ada", password="secret", protocol=protocol)
    assert [row.username for row in mqtt_broker.clients] == ["ada"]
    with pytest.raises(ConnectionError, match="'no' of paho-mqtt did not connect: Bad user name or password"):
        mqtt_paho("no", username="ada", password="wrong", protocol=protocol)

@pytest.mark.mqtt_broker(listeners=["tls://127.0.0.1:0"])
def test_paho_over_tls(mqtt_broker, mqtt_paho):
    mqtt_paho("lamp")
    assert mqtt_broker.clients

@pytest.mark.asyncio
async def test_aiomqtt(mqtt_broker, mqtt_aiomqtt):
    async with mqtt_aiomqtt("pump") as client:
        await client.publish("pump/state", "on", qos=1)
        await mqtt_broker.wait_for("pump/state", publisher="pump")
"""


def test_clients_of_others(run: Run) -> None:
    result = run("-q", plugins=("asyncio",), ini="mqtt_leaks = true", test_clients=CLIENTS)
    result.assert_outcomes(passed=5)


LEAKS = """
import pytest
import trio
from paho.mqtt import client as mqtt

from trunkline.client import Client

left = []

def test_a_client_is_left(mqtt_broker):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "left")
    client.connect(mqtt_broker.host, mqtt_broker.port)
    client.loop_start()
    left.append(client)
    mqtt_broker.wait_for_client("left")

@pytest.mark.trio
async def test_a_client_is_left_in_trio(mqtt_broker):
    stream = await trio.open_tcp_stream(mqtt_broker.host, mqtt_broker.port)
    await stream.send_all(bytes.fromhex("101000044d5154540402003c00046c656674"))
    await mqtt_broker.wait_for_client("left")
    left.append(stream)

@pytest.fixture
def client(mqtt_broker):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "tidy")
    client.connect(mqtt_broker.host, mqtt_broker.port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()

def test_a_client_leaves(mqtt_broker, client):
    mqtt_broker.wait_for_client("tidy")
"""


@pytest.mark.parametrize("leaks", [True, False])
def test_clients_that_are_left(run: Run, leaks: bool) -> None:
    """They fail their tests where that is wanted."""
    ini = "mqtt_leaks = true" if leaks else ""
    result = run("-q", "-Wignore", plugins=("trio",), ini=ini, test_leaks=LEAKS)
    result.assert_outcomes(passed=3 if not leaks else 2, errors=int(leaks), failed=int(leaks))
    if leaks:
        assert result.stdout.str().count("still connected at the end of the test: 'left'") >= 2


MISTAKES = """
import pytest
import trunkline.client.sync

def test_filter(mqtt_broker):
    mqtt_broker.wait_for("a#")

def test_point(mqtt_broker):
    @mqtt_broker.hooks.on("client.conected")
    def look(client): ...

def test_packet(mqtt_broker):
    mqtt_broker.faults.drop("PUBLSH")

def test_time(mqtt_broker):
    mqtt_broker.clock.advance(-1)

def test_client(mqtt_broker):
    mqtt_broker.kick("nobody")

def test_topic(mqtt_broker):
    mqtt_broker.publish("a#")

def test_payload(mqtt_broker):
    mqtt_broker.publish("a", {"a": 1})

def test_settings(mqtt_broker_factory):
    mqtt_broker_factory(sesion={})

@pytest.mark.mqtt_broker(auth={"allow_anonymous": False})
def test_paho(mqtt_paho):
    mqtt_paho("lamp")

@pytest.mark.trio
async def test_filter_in_trio(mqtt_broker):
    await mqtt_broker.wait_for("a#")

@pytest.mark.asyncio
async def test_filter_in_asyncio(mqtt_broker):
    await mqtt_broker.wait_for("a#")

@pytest.mark.asyncio
async def test_not_awaited(mqtt_broker):
    mqtt_broker.wait_for("a")

def test_fault(mqtt_broker):
    mqtt_broker.faults.drop("PUBLISH")

@pytest.mark.mqtt_broker(sesion={})
def test_section(mqtt_broker): ...

@pytest.mark.mqtt_broker(sesion={})
def test_section_of_a_thread(mqtt_thread_broker): ...

@pytest.mark.mqtt_broker(users={"": "x"})
def test_user(mqtt_broker): ...

@pytest.mark.mqtt_broker(rules=[{"permt": "allow"}])
def test_rule(mqtt_broker): ...

@pytest.mark.mqtt_broker("x")
def test_marker(mqtt_broker): ...
"""


def test_what_a_test_has_wrong_shows_its_lines_and_none_of_ours(run: Run) -> None:
    result = run("-q", plugins=("asyncio", "trio"), test_mistakes=MISTAKES)
    result.assert_outcomes(failed=13, errors=5)
    text = result.stdout.str()
    for folder in ("testing", "hooks", "config", "actors"):
        assert f"trunkline/{folder}" not in text
    assert "pytest_plugin.py" not in text
    for told in (
        "the marker mqtt_broker of test_section: sesion: unknown section; did you mean session?",
        "the marker mqtt_broker of test_section_of_a_thread: sesion: unknown section; did you mean session?",
        "the marker mqtt_broker of test_user: users: '' cannot be a user name",
        "the marker mqtt_broker of test_rule: rules[0]: permt: unknown; did you mean permit?",
        "the marker mqtt_broker of test_marker takes settings by section: session=",
        "wait_for() in * was never awaited",
    ):
        result.stdout.fnmatch_lines([f"*{told.replace('[0]', '[[]0]')}*"])
