"""nats.js at a NATS listener: node/nats.mjs does things and prints what it saw."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.test_mqttjs import NODE, need_node
from tests.nats.servers import BROKER, NatsServer, running
from trunkline.hooks.passwords import hash_password


@pytest.fixture(autouse=True)
def _node() -> None:
    need_node("@nats-io/transport-node")


def play(server: NatsServer, password: str) -> Any:
    command = ["node", str(NODE / "nats.mjs"), server.url, password]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_what_it_does_with_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password('right')}\n")
    monkeypatch.setenv("TRUNKLINE_AUTH__PASSWORD_FILE", str(users))
    with running(BROKER, tmp_path) as server:
        assert play(server, "right") == [
            ["room.kitchen", "note", "C"],
            ["room.hall", "how warm", ""],
            "21.5",
            True,
        ]
        assert play(server, "wrong") == "AuthorizationError"
