"""Shards in a world in which seeds decide what happens. `THOROUGH=100` tries a hundred times as many; for the long form
and to replay a seed see `simulation`."""

from collections import Counter

import pytest

from tests.broker.shards.simulation import World, run
from tests.store.conftest import THOROUGH

#: Seeds of one test: all of them together take about half a minute.
SEEDS = 5 * THOROUGH


@pytest.mark.parametrize("part", range(12))
def test_nothing_that_was_acknowledged_is_missing(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        faults = run(seed).ledger.wrong
        assert not faults, f"python -m tests.broker.shards.simulation {seed}: {faults[:3]}"


def test_a_seed_replays_exactly() -> None:
    stories = list[list[str]]()
    for _ in range(2):
        story = list[str]()
        run(13, story.append)
        stories.append(story)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 200


def test_the_simulation_does_what_it_is_for() -> None:
    """Messages are acknowledged, go from shard to shard and from a stream to its subscribers, and are in the way when
    links and shards end."""
    counts = sum([run(seed).counts for seed in range(12)], Counter[str]())
    wanted = {
        "acknowledged at QoS 1": 400,
        "acknowledged at QoS 2": 150,
        "to another shard": 500,
        "fed": 500,
        "checked at QoS 0": 20,
        "kills": 3,
        "cuts": 15,
        "stalls": 5,
    }
    for what, number in wanted.items():
        assert counts[what] > number, (what, counts)


def test_a_message_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client was not given, though it is on the ledger."""
    acked = World.acked

    def forget(world: World, message: object) -> None:
        for subscriber in world.subscribers:
            subscriber._names.discard(message.name)  # type: ignore[attr-defined]
        acked(world, message)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "acked", forget)
    assert any("never gets" in fault for seed in range(3) for fault in run(seed).ledger.wrong)
