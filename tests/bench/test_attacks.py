"""Attacks on a broker: small runs, in which each must get through what it does. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from bench import wire
from bench.attackers import ATTACKS, connect, publish, varint

from tests.conformance import raw

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the load generator needs epoll")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151])
def test_variable_lengths(value: int) -> None:
    assert varint(value) == raw.varint(value)


def test_packets_are_what_the_oracle_writes() -> None:
    assert connect("c", expiry=7, keep_alive=3, login=("ann", "secret")) == raw.connect(
        "c", clean=False, keep_alive=3, properties=raw.session_expiry(7), username="ann", password="secret"
    )
    properties = raw.message_expiry(5)
    assert publish("t", b"x", 1, 9, properties, retain=True) == raw.publish(
        "t", b"x", qos=1, packet_id=9, retain=True, properties=properties
    )
    assert publish("t") == wire.publish("t", b"", 0, wire.V5)


def test_each_attack_says_what_it_does() -> None:
    assert len({attack.text for attack in ATTACKS.values()}) == len(ATTACKS)


def test_a_small_run(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    names = ["churn", "poison", "pressure", "logins", "huge", "greedy", "same-id", "unacknowledged"]
    asked = [word for name in names for word in ("--attack", name)]
    command = [
        sys.executable,
        "-m",
        "bench.attacks",
        "-p",
        "trunkline",
        "--seconds",
        "0.5",
        "--json",
        str(kept),
        *asked,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    results = json.loads(kept.read_text())["results"]
    assert results["failures"] == [], done.stdout + done.stderr
    rounds = {row["rounds"][0]["attack"]: row["rounds"][0] for row in results["rows"]}
    assert list(rounds) == names
    assert all(round["turn"] > 0 for round in rounds.values())
    assert rounds["poison"]["kept"] == [50, 50]
    assert rounds["pressure"]["victim"] is not None
    assert rounds["logins"]["login"] is not None
