"""JetStream of nats.js at a NATS listener: node/jetstream.mjs does things and prints what it saw."""

import json
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from tests.interop.test_mqttjs import NODE, need_node
from tests.nats.servers import BROKER, NatsServer, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[NatsServer]:
    for package in ("transport-node", "jetstream", "kv", "obj"):
        need_node(f"@nats-io/{package}")
    with running(BROKER, tmp_path_factory.mktemp("broker")) as one:
        yield one


def play(server: NatsServer, scenario: str) -> Any:
    command = ["node", str(NODE / "jetstream.mjs"), server.url, scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_streams(server: NatsServer) -> None:
    assert play(server, "streams") == [
        *(False, False, True),
        10071,
        "a",
        "a.c",
        {"a.b": 1, "a.c": 1},
        1,
        True,
        "JetStreamNotEnabled",  # what it says of a subject that no stream takes
    ]


def test_consumers(server: NatsServer) -> None:
    assert play(server, "consumers") == [
        *("0", True),
        *("1", "2", "3", "4"),
        *("5", "6", "7", "8", "9"),
        *([number + 1, str(number)] for number in (1, 3, 5, 7, 9)),
        [0, 0, 10],
    ]


def test_buckets(server: NatsServer) -> None:
    assert play(server, "buckets") == [
        ["hello.world", "PUT", "hi"],
        ["hello.world", "PUT", "world"],
        ["hello.world", "DEL", ""],
        ["other", "PUT", "x"],
        ["other", "PURGE", ""],
        10071,
        ["PUT", "PUT", "DEL"],
        ["other"],
        "DEL",
        True,
    ]


def test_objects(server: NatsServer) -> None:
    assert play(server, "objects") == [[300_000, 3], 0, 10, True, ["picture"], True, True, True]
