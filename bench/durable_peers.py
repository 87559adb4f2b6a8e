"""The brokers as they keep sessions and messages through a restart, by how much of that they promise."""

import os
import shutil
from dataclasses import replace
from typing import Final

from bench.peers import MOSQUITTO_CONF, NATS_CONF, Peer, mosquitto, nats, trunkline

TRUNKLINE: Final = """\
[store]
durability = "{durability}"
path = "{{folder}}/store.db"

[session]
max_inflight = 1000
max_queue_length = 0
max_queue_bytes = 0
max_subscriptions = 0

[log]
level = "warning"
"""

#: Saved every half hour, and at the end.
MOSQUITTO: Final = MOSQUITTO_CONF.replace("persistence false", "persistence true\npersistence_location {folder}/")

NATS: Final = NATS_CONF.replace(", consumer_memory_storage: true", "")


def stored(durability: str) -> Peer:
    return replace(trunkline(), name=f"trunkline-{durability}", config=TRUNKLINE.format(durability=durability))


def saving(name: str, lines: str) -> Peer:
    return replace(mosquitto(), name=name, config=MOSQUITTO + lines)


def synced(program: str | None) -> Peer:
    """nats-server of 2.10 or later, which can sync each message before it is acknowledged."""
    peer = nats()
    found = shutil.which(program or os.environ.get("BENCH_NATS") or "nats-server")
    return replace(
        peer,
        name="nats-always",
        command=[found or "nats-server", *peer.command[1:]],
        about=[found or "nats-server", "--version"],
        config=NATS.replace('/jetstream"', '/jetstream", sync_interval: always'),
        max_qos=2,
        needs="" if program or os.environ.get("BENCH_NATS") else "BENCH_NATS names no nats-server of 2.10 or later",
    )


def known() -> dict[str, Peer]:
    peers = [
        *map(stored, ("memory", "os", "fsync")),
        saving("mosquitto", ""),
        saving("mosquitto-changes", "autosave_on_changes true\n"),
        saving("mosquitto-each", "autosave_on_changes true\nautosave_interval 1\n"),
        replace(nats(), config=NATS),
        synced(None),
    ]
    return {peer.name: peer for peer in peers}


PEERS: Final = known()
