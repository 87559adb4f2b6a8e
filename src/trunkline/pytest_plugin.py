"""Fixtures for pytest: a broker for a test, one for a module or the whole run, and as many as a test wants to have.

pytest imports this wherever Trunkline is installed, so nothing of Trunkline is imported until a test asks for a broker.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import reduce
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
    from types import ModuleType

    import aiomqtt
    import paho.mqtt.client as paho

    from trunkline.plugins.context import Client
    from trunkline.testing import Broker, ThreadBroker

    #: Where settings are written, and the settings by section.
    Source = tuple[str, Mapping[str, Any]]

#: Fixtures that several tests share.
_SHARED: Final = ("mqtt_broker_module", "mqtt_broker_session")
#: Seconds for a client to connect, and for those that leave.
CONNECT_TIMEOUT: Final = 30.0
LEAVE_TIMEOUT: Final = 1.0
#: A test's report has what its brokers saw.
_REPORTED = pytest.StashKey[bool]()
#: The brokers of the fixtures that several tests share, by the fixture.
_SHARED_BROKERS = pytest.StashKey["dict[str, ThreadBroker]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("mqtt_broker", "settings of the brokers of all tests, as lines of TOML: session.max_inflight = 1")
    parser.addini("mqtt_leaks", "fail tests whose clients are connected when they end", type="bool", default=False)
    parser.addoption(
        "--mqtt-journal",
        metavar="DIR",
        help="record all packets of the MQTT brokers of each test in a journal in this folder: trunkline journal show",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "mqtt_broker(**settings): settings of the fixture mqtt_broker, by section: "
        "mqtt_broker(session={'max_inflight': 1})",
    )


@pytest.fixture
def mqtt_broker(request: pytest.FixtureRequest) -> Generator[Any, None, None]:
    """An MQTT broker for this test: a trunkline.testing.ThreadBroker, or in async tests a trunkline.testing.Broker."""
    awaits = _is_async(request.node)
    if awaits and request.node.get_closest_marker("trio") is not None:
        # in the test's own trio run, with its clock: pytest-trio starts it when it starts the test
        yield request.getfixturevalue("_mqtt_broker_in_trio")
    else:
        with _of_fixture(request.node, _sources_for(request.node)) as broker:
            yield broker.awaitable if awaits else broker


@pytest.fixture
async def _mqtt_broker_in_trio(request: pytest.FixtureRequest) -> AsyncGenerator[Broker, None]:
    from trunkline.testing import broker

    sources = _sources_for(request.node)
    settings = _merged(sources)
    record = settings.pop("record", None) or _journal(request.node)
    with _sources_named(sources):
        async with broker(record=record, **settings) as opened:
            yield opened
            if request.config.getini("mqtt_leaks"):
                from trio.testing import wait_all_tasks_blocked

                await wait_all_tasks_blocked()
                _check_leaks(opened.clients)


@pytest.fixture
def mqtt_thread_broker(request: pytest.FixtureRequest) -> Generator[ThreadBroker, None, None]:
    """An MQTT broker for this test: a trunkline.testing.ThreadBroker, whatever the test is. Its `awaitable` is the
    trunkline.testing.Broker."""
    with _of_fixture(request.node, _sources_for(request.node)) as broker:
        yield broker


@pytest.fixture
def mqtt_broker_factory(request: pytest.FixtureRequest) -> Generator[Callable[..., Any], None, None]:
    """Called with settings by section, it gives a running MQTT broker, for as long as this test lasts."""
    awaits, of_all = _is_async(request.node), _sources_of_all(request.config)
    with ExitStack() as stack:

        def start(**settings: Any) -> Any:
            broker = stack.enter_context(_opened(request.node, [*of_all, ("mqtt_broker_factory", settings)]))
            return broker.awaitable if awaits else broker

        yield start


@pytest.fixture(scope="module")
def mqtt_broker_module(request: pytest.FixtureRequest) -> Generator[ThreadBroker, None, None]:
    """One MQTT broker for all tests of a module. Async tests get a trunkline.testing.Broker of it, everybody else a
    ThreadBroker."""
    with _shared(request, _sources_for(request.node)) as broker:
        yield broker


@pytest.fixture(scope="session")
def mqtt_broker_session(request: pytest.FixtureRequest) -> Generator[ThreadBroker, None, None]:
    """One MQTT broker for all tests of this process, as long as the run lasts. Async tests get a
    trunkline.testing.Broker of it, everybody else a ThreadBroker."""
    with _shared(request, _sources_of_all(request.config)) as broker:
        yield broker


# Clients of others


@pytest.fixture
def mqtt_paho(mqtt_broker: Broker | ThreadBroker) -> Generator[Callable[..., paho.Client], None, None]:
    """Called with a client id, a user name and a password, and arguments of paho's Client, it gives a client of
    paho-mqtt that is connected to the broker of this test, in a thread of its own, until the test ends."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    with ExitStack() as stack:

        def connect(
            client_id: str = "", *, username: str | None = None, password: str | None = None, **options: Any
        ) -> paho.Client:
            __tracebackhide__ = True
            client: Any = Client(CallbackAPIVersion.VERSION2, client_id, **options)
            client.username_pw_set(username, password)
            if mqtt_broker.url.startswith("mqtts:"):
                client.tls_set_context(mqtt_broker.client_context())
            answered, reasons = Event(), list[object]()

            def connected(_client: paho.Client, _data: object, _flags: object, reason: object, *_: object) -> None:
                reasons.append(reason)
                answered.set()

            client.on_connect = connected
            client.connect(mqtt_broker.host, mqtt_broker.port)
            client.loop_start()
            stack.callback(client.loop_stop)
            stack.callback(client.disconnect)
            if not answered.wait(CONNECT_TIMEOUT) or not client.is_connected():
                why = reasons[0] if reasons else "no answer came"
                raise ConnectionError(f"the client {client_id!r} of paho-mqtt did not connect: {why}")
            client.on_connect = None
            made: paho.Client = client
            return made

        yield connect


@pytest.fixture
def mqtt_aiomqtt(mqtt_broker: Broker) -> Callable[..., aiomqtt.Client]:
    """Called with a client id, and arguments of aiomqtt's Client, it gives such a client for the broker of this test:
    `async with mqtt_aiomqtt("pump") as client:`"""
    from aiomqtt import Client

    def make(client_id: str | None = None, **options: Any) -> aiomqtt.Client:
        if mqtt_broker.url.startswith("mqtts:"):
            options.setdefault("tls_context", mqtt_broker.client_context())
        return Client(mqtt_broker.host, mqtt_broker.port, identifier=client_id, **options)

    return make


# Around each test. (Old-style wrappers work with every pluggy.)


def pytest_runtest_logstart() -> None:
    if (reports := _reports()) is not None:
        reports.forget()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    if _is_async(item):
        arguments.update({name: arguments[name].awaitable for name in _SHARED if name in arguments})
    outcome = yield
    reports = _reports()
    if reports is not None and outcome.excinfo is None:
        try:
            for broker in reports.running():
                broker.check()
        except Exception as error:  # noqa: BLE001 - so that the test itself fails, and not what comes after it
            outcome.force_exception(_without_lines(error))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    if call.excinfo is not None and _reports() is not None:
        from trunkline.testing.own_frames import leave_out_own

        leave_out_own(call.excinfo.value)
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    reports = _reports()
    if report.failed and reports is not None and not item.stash.get(_REPORTED, False):
        item.stash[_REPORTED] = True
        names: list[str] = getattr(item, "fixturenames", [])
        nothing: dict[str, ThreadBroker] = {}
        shared = item.config.stash.get(_SHARED_BROKERS, nothing)
        others = [broker for name, broker in shared.items() if name not in names]
        report.sections.extend(("MQTT broker", text) for text in reports.reports(others))


def _reports() -> ModuleType | None:
    """The module that knows all brokers; None as long as no test has asked for one."""
    return sys.modules.get("trunkline.testing.report")


def _is_async(item: pytest.Item) -> bool:
    """To be asked before the test begins: then others put plain functions around those that await."""
    function = getattr(item, "obj", None)
    hypothesis = getattr(function, "hypothesis", None)
    return inspect.iscoroutinefunction(function if hypothesis is None else hypothesis.inner_test)


# Brokers in threads


@contextmanager
def _opened(node: pytest.Item | pytest.Collector, sources: Sequence[Source]) -> Generator[ThreadBroker, None, None]:
    from trunkline.testing.running import Options
    from trunkline.testing.threads import in_thread

    settings = _merged(sources)
    options = {name: settings[name] for name in ("hooks", "history") if name in settings}
    record = settings.get("record") or _journal(node)
    sections = {name: value for name, value in settings.items() if name not in ("hooks", "history", "record")}
    opening = in_thread(Options(sections, record=record, checked=False, **options))
    with _sources_named(sources), opening as broker:  # in trio, too
        yield broker
        if node.config.getini("mqtt_leaks"):
            with suppress(TimeoutError):  # the last ones may just be leaving
                broker.wait_until(lambda: not broker.clients, timeout=LEAVE_TIMEOUT)
            _check_leaks(broker.clients)


@contextmanager
def _of_fixture(node: pytest.Item | pytest.Collector, sources: Sequence[Source]) -> Generator[ThreadBroker, None, None]:
    """No code of the test is to blame if it cannot be opened, so there is none to show."""
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(_opened(node, sources))
        except Exception as error:  # noqa: BLE001 - a broker may fail by anything
            raise _without_lines(error) from None
        yield broker


def _without_lines(error: Exception) -> BaseException:
    """Its text alone, if it is what this package says of what a test has wrong."""
    from trunkline.testing.own_frames import is_raised_here

    return pytest.fail.Exception(str(error), pytrace=False) if is_raised_here(error) else error


def _check_leaks(clients: Sequence[Client]) -> None:
    if clients:
        names = ", ".join(repr(row.client_id) for row in clients)
        pytest.fail(f"still connected at the end of the test: {names}", pytrace=False)


@contextmanager
def _shared(request: pytest.FixtureRequest, sources: Sequence[Source]) -> Generator[ThreadBroker, None, None]:
    shared = request.config.stash.setdefault(_SHARED_BROKERS, {})
    with _of_fixture(request.node, sources) as broker:
        shared[str(request.fixturename)] = broker
        yield broker


def _journal(node: pytest.Item | pytest.Collector) -> Path | None:
    """A file of its own for each broker, if journals are asked for."""
    folder = node.config.getoption("--mqtt-journal")
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", node.nodeid or "session").strip("-")
    numbers = ["", *(f"-{number}" for number in range(2, 1000))]
    return next(path for number in numbers if not (path := Path(folder, f"{name}{number}.journal")).exists())


# Settings


def _sources_for(node: pytest.Item | pytest.Collector) -> list[Source]:
    sources = _sources_of_all(node.config)
    for holder, marker in reversed(list(node.iter_markers_with_node("mqtt_broker"))):  # the closest comes last
        if marker.args:
            place = f"the marker mqtt_broker of {holder.name}"
            pytest.fail(f"{place} takes settings by section: session={{'max_inflight': 1}}", pytrace=False)
        sources.append((f"the marker mqtt_broker of {holder.name}", marker.kwargs))
    return sources


def _sources_of_all(config: pytest.Config) -> list[Source]:
    import tomllib

    file = "pytest's configuration" if config.inipath is None else config.inipath.name
    try:
        return [(f"mqtt_broker in {file}", tomllib.loads(config.getini("mqtt_broker")))]
    except tomllib.TOMLDecodeError as error:
        pytest.fail(f"the option mqtt_broker of pytest's configuration is not TOML: {error}", pytrace=False)


def _merged(sources: Iterable[Source]) -> dict[str, Any]:
    return reduce(_with, [settings for _, settings in sources], dict[str, Any]())


def _with(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Table by table; of two values for a key, the one in `more`."""
    both = {**settings, **more}
    for key in settings.keys() & more.keys():
        if isinstance(settings[key], dict) and isinstance(more[key], dict):
            both[key] = _with(settings[key], more[key])
    return both


@contextmanager
def _sources_named(sources: Sequence[Source]) -> Generator[None, None, None]:
    """An error of the configuration says which of the sources is wrong."""
    from trunkline.config.errors import ConfigError, SecurityError

    try:
        yield
    except SecurityError as error:  # of users and rules, which stand in no file
        places = [_source_of(re.split(r"[:\[]", problem)[0], sources) for problem in error.problems]
        named = zip(places, error.problems, strict=True)
        raise SecurityError(
            [problem if place == "settings" else f"{place}: {problem}" for place, problem in named]
        ) from None
    except ConfigError as error:
        problems = [
            problem._replace(source=_source_of(problem.key, sources)) if problem.source == "settings" else problem
            for problem in error.problems
        ]
        raise ConfigError(problems) from None


def _source_of(key: str, sources: Sequence[Source]) -> str:
    """The last source that has the key; if none does, the last that has the table around it."""
    keys = re.split(r"[.\[]", key)
    having = (
        name
        for depth in range(len(keys), 0, -1)
        for name, settings in reversed(sources)
        if _has(settings, keys[:depth])
    )
    return next(having, "settings")


def _has(table: object, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return False
        table = cast("dict[str, object]", table)[key]
    return True
