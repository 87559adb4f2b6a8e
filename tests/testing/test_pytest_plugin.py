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
    """Runs a file of tests with these plugins and no others. Warnings are errors."""

    def run(code: str, *options: str, plugins: tuple[str, ...] = (), ini: str = "") -> pytest.RunResult:
        pytester.makepyfile(code)
        pytester.makeini(f"[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n{ini}")
        without = [f"-pno:{name}" for name in sorted(OTHERS - {*plugins})]
        if "asyncio" not in plugins:
            pytester.makeini(f"[pytest]\nfilterwarnings = error\n{ini}")
        return pytester.runpytest_subprocess(
            *without, "-pno:cacheprovider", "--strict-markers", "--strict-config", *options
        )

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


def test_plain_tests(run: Run) -> None:
    run(PLAIN).assert_outcomes(passed=5)


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


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_with_pytest_asyncio(run: Run, mode: str) -> None:
    code = ASYNC.replace("MARK", "pytestmark = pytest.mark.asyncio" if mode == "strict" else "")
    if mode == "strict":
        code = "import pytest_asyncio\n" + code.replace("@pytest.fixture", "@pytest_asyncio.fixture")
        code = code.replace("pytestmark = pytest.mark.asyncio", "").replace(
            "async def test", "@pytest.mark.asyncio\nasync def test"
        )
    run(code, plugins=("asyncio",), ini=f"asyncio_mode = {mode}").assert_outcomes(passed=5)


def test_with_anyio_in_asyncio(run: Run) -> None:
    code = ASYNC.replace("MARK", "@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n")
    code = code.replace("async def test", "@pytest.mark.anyio\nasync def test")
    run(code, plugins=("anyio",)).assert_outcomes(passed=5)


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


def test_with_anyio_in_asyncio_and_in_trio(run: Run) -> None:
    result = run(ANYIO, "-v", plugins=("anyio",))
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_in_both?asyncio?*PASSED*", "*test_in_both?trio?*PASSED*"])


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


@pytest.mark.parametrize("mode", ["true", "false"])
def test_with_pytest_trio(run: Run, mode: str) -> None:
    code = TRIO.replace("MARK", "" if mode == "true" else "@pytest.mark.trio")
    run(code, plugins=("trio",), ini=f"trio_mode = {mode}").assert_outcomes(passed=4)


def test_with_xdist_each_worker_has_its_own(run: Run) -> None:
    code = """
import os
import pytest

@pytest.mark.parametrize("number", range(20))
def test_ports(mqtt_broker, mqtt_broker_session, number):
    print("WORKER", os.environ["PYTEST_XDIST_WORKER"], "SHARED", mqtt_broker_session.port, "OWN", mqtt_broker.port)
    assert mqtt_broker.port != mqtt_broker_session.port
"""
    result = run(code, "-n", "2", "-rP", plugins=("xdist",))
    result.assert_outcomes(passed=20)
    lines = [line.split() for line in result.outlines if line.startswith("WORKER")]
    assert len(lines) == 20
    shared = {(worker, port) for _, worker, _, port, _, _ in lines}
    assert len(shared) == len({worker for worker, _ in shared}) == len({port for _, port in shared}) == 2


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
    result = run(SETTINGS, ini="mqtt_broker =\n    session.max_inflight = 2\n    mqtt.max_qos = 1\n")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*session.max_inflightt: unknown key; did you mean*"])
    result.stdout.fnmatch_lines(["*the marker mqtt_broker takes settings by section*"])


def test_settings_that_are_no_toml_are_named(run: Run) -> None:
    result = run("def test_it(mqtt_broker): pass", ini="mqtt_broker = session: 1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the option mqtt_broker of pytest's configuration is not TOML*"])


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


def test_a_test_that_fails_shows_what_its_broker_saw(run: Run) -> None:
    result = run(FAILS, "-rA")
    result.assert_outcomes(passed=1, failed=2, errors=1)
    shown = "\n".join(result.outlines)
    assert shown.count("- MQTT broker -") == 3
    assert "  watcher: connected by 3.1.1" in shown
    assert "  watcher to sensors/# at QoS 1" in shown
    assert "101 retained message, the last 20" in shown
    assert "  sensors/098: b'x'" in shown
    assert "  sensors/070: b'x'" not in shown
    assert f"  sensors/kitchen: b'{'x' * 100}" in shown
    assert "x" * 200 not in shown
    assert "not/shown" not in shown


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


def test_a_hook_that_raises_fails_its_test(run: Run) -> None:
    result = run(HOOKS)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines([">       assert message.payload == b?good?"])
    code = HOOKS.replace("def test_", "async def test_").replace("mqtt_broker_session", "mqtt_broker")
    result = run(code, plugins=("trio",), ini="trio_mode = true")
    result.assert_outcomes(passed=1, failed=2)


def test_a_trio_test_that_fails_shows_it_too(run: Run) -> None:
    code = """
async def test_fails(mqtt_broker):
    mqtt_broker.publish("seen", "x", retain=True)
    assert False, "on purpose"
"""
    result = run(code, plugins=("trio",), ini="trio_mode = true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- MQTT broker -*", "mqtt://127.0.0.1:*", "1 retained message", "  seen: b'x'"])


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


def test_brokers_of_its_own_are_shown_and_those_of_a_teardown(run: Run) -> None:
    result = run(OWN)
    result.assert_outcomes(passed=2, failed=4, errors=1)
    shown = "\n".join(result.outlines)
    assert shown.count("- MQTT broker -") == 4
    for number in range(1, 5):
        assert shown.count(f"  seen/{number} b'' QoS 0") == 1
    assert "seen/5" not in shown.replace('mqtt_broker_session.publish("seen/5")', "")


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


def test_a_broker_for_a_module_and_one_in_a_thread_in_any_case(run: Run) -> None:
    run(SHARED, plugins=("asyncio",), ini="asyncio_mode = auto").assert_outcomes(passed=4)


JOURNALS = """
import pytest

@pytest.mark.parametrize("number", [0, 1])
def test_all(mqtt_broker, mqtt_broker_factory, number):
    mqtt_broker_factory()

@pytest.mark.mqtt_broker(record="mine.journal")
def test_one(mqtt_broker):
    pass

def test_shared(mqtt_broker_session):
    pass
"""


def test_journals_are_written_where_they_are_asked_for(run: Run, pytester: pytest.Pytester) -> None:
    run(JOURNALS).assert_outcomes(passed=4)
    assert (pytester.path / "mine.journal").exists()
    run(JOURNALS, "--mqtt-journal", "journals").assert_outcomes(passed=4)
    name = "test_journals_are_written_where_they_are_asked_for.py"
    names = [f"{name}-test_all-{number}{more}.journal" for number in (0, 1) for more in ("", "-2")]
    assert sorted(path.name for path in (pytester.path / "journals").iterdir()) == sorted([*names, "session.journal"])


def test_a_trio_test_is_recorded_too(run: Run, pytester: pytest.Pytester) -> None:
    code = "async def test_it(mqtt_broker): pass"
    run(code, "--mqtt-journal", "j", plugins=("trio",), ini="trio_mode = true").assert_outcomes(passed=1)
    assert len(list((pytester.path / "j").iterdir())) == 1


def test_hypothesis_with_an_async_test(run: Run) -> None:
    code = """
from hypothesis import HealthCheck, given, settings, strategies as st

@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers())
async def test_it(mqtt_broker, number):
    await mqtt_broker.wait_until(lambda: True)
"""
    run(code, plugins=("trio",), ini="trio_mode = true").assert_outcomes(passed=1)


def test_the_fixtures_and_the_marker_are_listed(run: Run) -> None:
    result = run("", "--fixtures")
    for name in ("mqtt_broker", "mqtt_broker_factory", "mqtt_broker_session [[]session scope[]]"):
        result.stdout.fnmatch_lines([f"{name} -- *"])
    assert "_mqtt_broker_in_trio" not in result.stdout.str()
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.mqtt_broker(*settings): *"])


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
    run(code).assert_outcomes(passed=1)
