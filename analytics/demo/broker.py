"""The demonstration's broker: in this process, on a port of its own, with the event log switched on."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from trunkline.analytics.demo.fleet import CLIENTS, FORBIDDEN, USERNAME
from trunkline.broker.node import open_node
from trunkline.config.config import Config
from trunkline.management.credential_files import change_credentials
from trunkline.plugins.finding import settings_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

#: Results are published below it, by the one who may.
RESULTS: Final = "$analytics"
PUBLISHER: Final = "analytics"
#: Messages that wait for a client: few, so that a slow one can be seen to lose some within a minute.
LONGEST_QUEUE: Final = 200
#: What is recorded.
KINDS: Final = (
    "client.authenticated",
    "client.connack",
    "client.connected",
    "client.disconnected",
    "client.acl_decided",
    "session.*",
    "message.publish",
    "message.routed",
    "message.queued",
    "message.delivered",
    "message.acked",
    "message.dropped",
    "delivery.completed",
)

_RULES: Final = f"""\
[[rule]]
permit = "deny"
action = "publish"
topics = ["{FORBIDDEN}/#"]

[[rule]]
permit = "allow"
user = "{PUBLISHER}"
action = "publish"
topics = ["{RESULTS}/#"]

[[rule]]
permit = "deny"
action = "publish"
topics = ["{RESULTS}/#"]
"""


class Running(NamedTuple):
    host: str
    port: int
    #: Where the events are recorded.
    log: Path
    #: For whom publishes results: the file that holds the password.
    secret: Path


def settings(folder: Path) -> dict[str, Any]:
    """The broker's settings. What they name is made in the folder."""
    rules = folder / "acl.toml"
    rules.write_text(_RULES, encoding="utf-8")
    password = secrets.token_urlsafe()
    secret = _secret(folder)
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    users = folder / "users"
    for name, word in ((USERNAME, secrets.token_urlsafe()), (PUBLISHER, password)):
        change_credentials(users, name, word)
    return {
        "listeners": ["tcp://127.0.0.1:0"],
        "auth": {"allow_anonymous": True, "password_file": str(users)},
        "acl": {"file": str(rules)},
        "session": {"max_queue_length": LONGEST_QUEUE, "backpressure": 0},
        "sys": {"interval": 0},
    }


def events(folder: Path) -> dict[str, Any]:
    """What switches the event log on. Only of devices: results, and those who publish them, are no part of the numbers."""
    recorded = {
        "path": str(_log(folder)),
        "kinds": KINDS,
        "clients": CLIENTS,
        "heartbeat": 0.5,
        "stats": 2.0,
    }
    return {"node": {"name": "demo"}, "plugins": {"events": recorded}}


def _log(folder: Path) -> Path:
    return folder / "events"


def _secret(folder: Path) -> Path:
    return folder / "password"


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Running]:
    """Run the broker in this trio run, for the length of a block.

    Raises:
        ListenError: there is no port to listen on.
        OSError: the folder cannot be written to.
    """
    table = await trio.to_thread.run_sync(settings, folder) | events(folder)
    config = Config.from_mapping(table, settings_model)
    async with open_node(config) as node:
        for row in node.plugins.rows():
            if row.name == "events" and row.status != "running":
                raise RuntimeError(f"the plugin events is {row.status}: {row.problem}")
        host, port = node.listeners[0].address[:2]
        yield Running(host, port, _log(folder), _secret(folder))
