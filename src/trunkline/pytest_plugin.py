"""Fixtures for pytest: a broker for a test, one for the whole run, and as many as a test wants to have.

pytest imports this wherever Trunkline is installed, so nothing of Trunkline is imported until a test asks for a broker.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from trunkline.testing import Broker, ThreadBroker

#: For each test, what tells of each of its brokers, should it fail.
_TELLERS = pytest.StashKey["dict[object, Callable[[], str]]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("mqtt_broker", "settings of the brokers of all tests, as lines of TOML: session.max_inflight = 1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "mqtt_broker(**settings): settings of the fixture mqtt_broker, by section: mqtt_broker(session={'max_inflight': 1})",
    )


@pytest.fixture
def mqtt_broker(request: pytest.FixtureRequest) -> Generator[Any, None, None]:
    """An MQTT broker for this test: a trunkline.testing.ThreadBroker, or in async tests a trunkline.testing.Broker."""
    awaits = _is_async(request.node)
    if awaits and request.node.get_closest_marker("trio") is not None:
        # in the test's own trio run, with its clock: pytest-trio starts it when it starts the test
        yield request.getfixturevalue("_mqtt_broker_in_trio")
    else:
        with _running(request.node, awaits, _settings_for(request.node)) as broker:
            yield broker


@pytest.fixture
async def _mqtt_broker_in_trio(request: pytest.FixtureRequest) -> AsyncGenerator[Broker, None]:
    from trunkline.testing import broker
    from trunkline.testing.telling import told

    async with broker(**_settings_for(request.node)) as opened:
        try:
            yield opened
        finally:
            text = told(opened)
            _tellers(request.node)["mqtt_broker"] = lambda: text


@pytest.fixture
def mqtt_broker_factory(request: pytest.FixtureRequest) -> Generator[Callable[..., Any], None, None]:
    """Called with settings by section, it gives a running MQTT broker, for as long as this test lasts."""
    awaits, of_all = _is_async(request.node), _settings_of_all(request.config)
    with ExitStack() as stack:

        def start(**settings: Any) -> Any:
            return stack.enter_context(_running(request.node, awaits, _merged(of_all, settings)))

        yield start


@pytest.fixture(scope="session")
def mqtt_broker_session(request: pytest.FixtureRequest) -> Generator[ThreadBroker, None, None]:
    """One MQTT broker for all tests of this process, as long as the run lasts. Async tests get a
    trunkline.testing.Broker of it, everybody else a ThreadBroker."""
    from trunkline.testing import broker

    with broker(**_settings_of_all(request.config)) as opened:
        yield opened


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    shared: ThreadBroker | None = arguments.get("mqtt_broker_session")
    if shared is not None:
        _tell(item, shared)
        if _is_async(item):
            arguments["mqtt_broker_session"] = shared.awaitable
    result = yield
    for broker in _tellers(item):
        errors: list[BaseException] | None = getattr(broker, "hook_errors", None)
        if errors:
            from trunkline.testing.inside import check_hooks

            check_hooks(errors)  # so that the test itself fails, and not what comes after it
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when != "teardown":
        report.sections.extend(("MQTT broker", tell()) for tell in _tellers(item).values())
    return report


# Brokers in threads


@contextmanager
def _running(
    item: pytest.Item, awaits: bool, settings: Mapping[str, Any]
) -> Generator[Broker | ThreadBroker, None, None]:
    from trunkline.testing.messages import HISTORY
    from trunkline.testing.threads import in_thread

    sections = {**settings}
    hooks, history = sections.pop("hooks", None), sections.pop("history", HISTORY)
    with in_thread(sections, hooks, history) as opened:  # in trio, too, where `broker` would be the test's own
        _tell(item, opened)
        yield opened.awaitable if awaits else opened


def _tell(item: pytest.Item, broker: ThreadBroker) -> None:
    from trunkline.testing.telling import told

    _tellers(item)[broker] = lambda: told(broker)


def _tellers(item: pytest.Item) -> dict[object, Callable[[], str]]:
    return item.stash.setdefault(_TELLERS, {})


def _is_async(item: pytest.Item) -> bool:
    """To be asked before the test begins: then others put plain functions around those that await."""
    function = getattr(item, "obj", None)
    hypothesis = getattr(function, "hypothesis", None)
    return inspect.iscoroutinefunction(function if hypothesis is None else hypothesis.inner_test)


# Settings


def _settings_for(item: pytest.Item) -> dict[str, Any]:
    settings = _settings_of_all(item.config)
    for marker in reversed(list(item.iter_markers("mqtt_broker"))):  # the closest comes last
        if marker.args:
            raise pytest.UsageError("the marker mqtt_broker takes settings by section: session={'max_inflight': 1}")
        settings = _merged(settings, marker.kwargs)
    return settings


def _settings_of_all(config: pytest.Config) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(config.getini("mqtt_broker"))
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"the option mqtt_broker of pytest's configuration is not TOML: {error}") from None


def _merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Table by table; of two values for a key, the one in `more`."""
    both = {**settings, **more}
    for key in settings.keys() & more.keys():
        if isinstance(settings[key], dict) and isinstance(more[key], dict):
            both[key] = _merged(settings[key], more[key])
    return both
