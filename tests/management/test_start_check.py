"""What is found to keep a broker from starting does keep it from that, and the other way round. A plugin that cannot
start is found as well; a broker runs without it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.management.plugin_packages import installing
from trunkline.broker.net.listeners import ListenError
from trunkline.broker.node.opening import open_node
from trunkline.config.config import Config
from trunkline.config.errors import SecurityError
from trunkline.config.reader import from_mapping
from trunkline.management import logs
from trunkline.management.control import ControlSocketError, open_control
from trunkline.management.start_check import obstacles
from trunkline.plugins.finding import settings_model
from trunkline.store import StoreError

URL = "tcp://127.0.0.1:0"


async def starts(config: Config) -> bool:
    try:
        async with open_node(config, read=lambda: config, open_control=open_control):
            return True
    except (ListenError, SecurityError, ControlSocketError, StoreError):
        return False


def shared_folder(folder: Path) -> dict[str, object]:
    folder.chmod(0o777)
    return {"control": {"path": folder / "x.sock"}}


def somebodys_file(folder: Path) -> dict[str, object]:
    (folder / "notes").write_text("mine")
    (folder / "notes").chmod(0o600)
    return {"control": {"path": folder / "notes"}}


def a_long_path(folder: Path) -> dict[str, object]:
    return {"control": {"path": folder / ("x" * 120)}}


def no_rules(folder: Path) -> dict[str, object]:
    (folder / "rules").write_text("allow everything\n")
    return {"acl": {"file": folder / "rules"}}


def no_passwords(folder: Path) -> dict[str, object]:
    (folder / "users").write_text("ann\n")
    return {"auth": {"password_file": folder / "users"}}


def no_scram(folder: Path) -> dict[str, object]:
    (folder / "keys").write_text("ann:secret\n")
    return {"auth": {"scram_file": folder / "keys"}}


def no_such_host(folder: Path) -> dict[str, object]:
    return {"listeners": ["tcp://no-such-host.invalid:1883"], "auth": {"allow_anonymous": True}}


def a_folder_as_store(folder: Path) -> dict[str, object]:
    return {"store": {"path": folder}}


def no_store(folder: Path) -> dict[str, object]:
    (folder / "notes").write_text("mine")
    return {"store": {"path": folder / "notes"}}


@pytest.mark.parametrize(
    "broken",
    [
        a_folder_as_store,
        no_store,
        no_rules,
        no_passwords,
        no_scram,
        no_such_host,
        *(
            pytest.param(each, marks=pytest.mark.skipif(os.name == "nt", reason="no Unix sockets, and no modes"))
            for each in (shared_folder, somebodys_file, a_long_path)
        ),
    ],
)
async def test_what_is_found_keeps_a_broker_from_starting(
    broken: Callable[[Path], dict[str, object]], tmp_path: Path
) -> None:
    config = from_mapping({"listeners": [URL], **broken(tmp_path)})
    assert len(obstacles(config)) == 1
    assert not await starts(config)


async def test_nothing_is_found_where_a_broker_starts(tmp_path: Path) -> None:
    (tmp_path / "users").touch()
    table = {"auth": {"password_file": tmp_path / "users"}, "control": {"path": tmp_path / "x.sock"}}
    config = from_mapping({"listeners": [URL, {"name": "second", "url": URL}], **table})
    assert obstacles(config) == []
    assert await starts(config)


def test_hooks_that_one_worker_alone_would_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installing(tmp_path, monkeypatch) as install:
        install("watching", "from tests.plugins.test_scope import Watch, watch", watch="Watch", late="watch")
        table = {name: {"scope": "node"} for name in ("watch", "late")}
        problem = 'watch: scope = "node" is not for hooks: tests.plugins.test_scope.Watch.greet would see '
        assert obstacles(from_mapping({"plugins": table}, settings_model)) == [
            f"{problem}client.connected in worker 0 alone"
        ]
        table["watch"]["scope"] = "worker"
        assert obstacles(from_mapping({"plugins": table}, settings_model)) == []


async def test_a_broker_that_runs_does_not_stand_against_its_own_configuration(tmp_path: Path) -> None:
    config = from_mapping({"listeners": [URL], "control": {"path": tmp_path / "x.sock"}})
    async with open_node(config, read=lambda: config, open_control=open_control):
        assert obstacles(config) == []


async def test_the_folder_of_the_state_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file" / "deeper"))
    config = from_mapping({"listeners": [URL]})
    (problem,) = obstacles(config)
    assert problem.startswith("store.path: ")
    assert not await starts(config)
    assert obstacles(from_mapping({"store": {"durability": "memory"}})) == []


def test_two_names_of_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    urls = ["tcp://one:1883", "tcp://two:1883"]
    (problem,) = obstacles(from_mapping({"listeners": urls, "auth": {"allow_anonymous": True}}))
    assert problem == "tcp://one:1883 and tcp://two:1883 mean the same address"


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    config = from_mapping({"log": {"file": tmp_path}})
    assert obstacles(config) == [f"log.file: {tmp_path} cannot be written"]
    with pytest.raises(OSError, match="directory|denied"):
        logs.configure(config.log)
