"""The one way to open a broker, from code of each kind; and how it says that it cannot be opened."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from trunkline import testing
from trunkline.broker.net.listeners import ListenError
from trunkline.config.errors import ConfigError, SecurityError
from trunkline.hooks import Hooks
from trunkline.plugins import PluginError


def in_plain_code(**settings: Any) -> None:
    with testing.broker(**settings) as b:
        assert isinstance(b, testing.ThreadBroker)
        assert b.port
        b.wait_until(lambda: not b.clients)


async def awaiting(**settings: Any) -> None:
    async with testing.broker(**settings) as b:
        assert isinstance(b, testing.Broker)
        assert b.port
        await b.wait_until(lambda: not b.clients)


def in_asyncio(**settings: Any) -> None:
    asyncio.run(awaiting(**settings))


def in_trio(**settings: Any) -> None:
    async def run() -> None:
        await awaiting(**settings)

    trio.run(run)


everywhere = pytest.mark.parametrize("use", [in_plain_code, in_asyncio, in_trio])


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # trio keeps the threads of its name look-ups for ten seconds, for the next one
    assert [thread for thread in threading.enumerate() if thread not in before and "Trio" not in thread.name] == []


@everywhere
def test_it_opens(use: Callable[..., None]) -> None:
    use()


@everywhere
def test_settings_that_are_wrong_are_named_where_the_broker_was_opened(use: Callable[..., None]) -> None:
    with pytest.raises(ConfigError, match="max_quos"):
        use(mqtt={"max_quos": 1})


@everywhere
def test_an_address_that_is_taken_is_named(use: Callable[..., None]) -> None:
    with testing.broker() as other, pytest.raises(ListenError, match=f"cannot listen on tcp://127.0.0.1:{other.port}"):
        use(listeners=[f"tcp://127.0.0.1:{other.port}"])


@everywhere
def test_a_password_file_that_cannot_be_used_is_named(use: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("no colon in it\n")
    with pytest.raises(SecurityError, match="users"):
        use(auth={"password_file": str(file)})


@pytest.fixture
def moody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed plugin that does not start."""
    (tmp_path / "moody_plugin.py").write_text("def plugin(context): raise LookupError('not today')\n")
    information = tmp_path / "moody-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[trunkline.plugins]\nmoody = moody_plugin:plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("moody_plugin", None)


@everywhere
@pytest.mark.usefixtures("moody")
def test_a_plugin_that_cannot_start_is_named(use: Callable[..., None]) -> None:
    with pytest.raises(PluginError, match="the plugin moody: LookupError: not today"):
        use(plugins={"moody": {}})
    use(plugins={"moody": {"enabled": False}})


@everywhere
def test_hooks_may_be_there_from_the_start(use: Callable[..., None]) -> None:
    use(hooks=Hooks())


async def test_in_trio_it_is_opened_by_async_with() -> None:
    with pytest.raises(RuntimeError, match="async with"), testing.broker():
        raise AssertionError("it opened")


def test_without_a_loop_it_cannot_be_awaited() -> None:
    coroutine = awaiting()
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)
