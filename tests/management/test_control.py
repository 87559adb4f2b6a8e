"""The control socket of a broker that runs: where it is, and whom it lets in."""

import logging
import os
import re
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.room import room
from tests.management.asking import controlled, through_socket
from tests.management.by_hand import by_hand, request
from trunkline import __version__
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping
from trunkline.management import control_answers
from trunkline.management.control import ControlSocketError, open_control
from trunkline.management.control_client import ControlClient, ControlError, NoBroker

unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")
TRANSPORTS = ["tcp"] if os.name == "nt" else ["unix", "tcp"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_who_it_is_and_what_it_answers(transport: str, tmp_path: Path) -> None:
    def use(client: ControlClient) -> tuple[object, ...]:
        return client.node, client.version, client.pid, client.call("status")["node"]

    async with controlled(tmp_path, transport=transport) as here:
        assert await through_socket(tmp_path, use) == ("trunkline", __version__, os.getpid(), "trunkline")
        assert here.admin.control is not None
        assert here.admin.control.path == tmp_path / "broker.sock"
        if os.name != "nt":
            assert stat.S_IMODE((tmp_path / "broker.sock").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == []


async def test_a_broker_inside_another_process_has_none_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with room() as here:
        assert here.admin.control is None
        assert os.listdir(tmp_path) == []
    async with room(control={"enabled": True}, node={"name": "plant"}):
        assert (tmp_path / "trunkline" / ("plant.port" if os.name == "nt" else "plant.sock")).exists()


async def test_a_broker_of_its_own_has_one_unless_told_not_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for enabled in (True, False):
        table = {"listeners": [], **({} if enabled else {"control": {"enabled": False}})}
        config = from_mapping(table)

        async with open_node(config, read=lambda config=config: config, open_control=open_control) as node:
            assert (node.control is not None) == enabled


@unix
async def test_two_brokers_side_by_side_and_two_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "trunkline"

    def ask(name: str) -> Any:
        with ControlClient(folder / f"{name}.sock") as client:
            return client.call("status")["node"]

    async with room(control={"enabled": True}), room(control={"enabled": True}, node={"name": "plant"}):
        for name in ("trunkline", "plant"):
            assert await trio.to_thread.run_sync(ask, name) == name
        words = rf"belongs to the broker 'plant' that runs as process {os.getpid()}"
        with pytest.raises(ControlSocketError, match=words):
            async with room(control={"path": str(folder / "plant.sock")}):
                raise AssertionError("it must not start")
        # without a path of its own the second one has a name with a number
        for table in ({}, {"control": {"enabled": True}}):
            config = from_mapping({"listeners": [], "node": {"name": "plant"}, **table})
            async with open_node(config, read=lambda config=config: config, open_control=open_control) as node:
                assert node.control is not None
                assert node.control.path == folder / "plant-2.sock"
                assert await trio.to_thread.run_sync(ask, "plant-2") == "plant"
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 2
        assert re.search(
            rf"{words}, so use `trunkline ctl --node plant-2` for this broker, or give it a node.name", warnings[0]
        )
        assert await trio.to_thread.run_sync(ask, "plant") == "plant"
    assert os.listdir(folder) == []


@unix
async def test_a_connection_that_crashes_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled(tmp_path):
        with monkeypatch.context() as patched:
            patched.setattr(control_answers, "to_json", lambda value: 1 // 0)
            with pytest.raises(NoBroker, match="is gone"):
                await through_socket(tmp_path, lambda client: client.call("status"))
        assert "a control connection crashed" in caplog.text
        assert await through_socket(tmp_path, lambda client: client.call("status"))


@unix
async def test_no_more_connections_than_may_be(tmp_path: Path) -> None:
    async with controlled(tmp_path, max_connections=2):
        async with by_hand(tmp_path) as first, by_hand(tmp_path) as second:
            for client in (first, second):
                await client.send(request("log.level"))
                assert (await client.receive()).status == 200
            with pytest.raises(ControlError, match="the limit of 2 control connections is reached") as caught:
                await through_socket(tmp_path, lambda client: client.call("status"))
            assert caught.value.code == "unwelcome"
            await second.send(request("log.level"))
            assert (await second.receive()).status == 200
        with trio.fail_after(120):
            while True:
                try:
                    assert await through_socket(tmp_path, lambda client: client.call("status"))
                    break
                except ControlError:  # the others are about to be seen to have gone
                    await trio.lowlevel.checkpoint()


@unix
async def test_the_broker_ends_while_somebody_asks(tmp_path: Path) -> None:
    connected = trio.Event()
    said: list[str] = []
    loop = trio.lowlevel.current_trio_token()

    def ask_on(client: ControlClient) -> None:
        trio.from_thread.run_sync(connected.set, trio_token=loop)
        try:
            while True:
                client.call("metrics")
        except NoBroker as error:
            said.append(str(error))

    async with trio.open_nursery() as nursery, controlled(tmp_path):
        nursery.start_soon(through_socket, tmp_path, ask_on)
        await connected.wait()
    assert "is gone" in said[0]
    assert os.listdir(tmp_path) == []


async def test_a_control_server_that_crashes_is_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve, errors = trio.serve_listeners, [ValueError("a fault")]

    async def fails_once(*args: Any, **kwargs: Any) -> None:
        if errors:
            raise errors.pop()
        await serve(*args, **kwargs)

    monkeypatch.setattr(trio, "serve_listeners", fails_once)
    async with controlled(tmp_path) as here:
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not errors
        assert await through_socket(tmp_path, lambda client: client.call("status"))
        assert here.admin.alarms.active == []
