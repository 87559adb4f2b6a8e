"""Reasons, and how they read in a log."""

from __future__ import annotations

import pytest

from tests.actors.probes import Probe
from trunkline.actors import Down, Reason, Shutdown, TooManyRestarts, system
from trunkline.actors.exits import abnormal


@pytest.mark.parametrize(
    ("reason", "expected"),
    [(None, False), (Shutdown(), False), (Shutdown("taken over"), False), (ValueError(), True)],
)
def test_what_counts_as_a_crash(reason: Reason, expected: bool) -> None:
    assert abnormal(reason) is expected


async def test_the_end_of_another_is_a_crash_of_who_is_linked() -> None:
    async with system() as actors:
        assert abnormal(Down(actors.start(Probe()), ValueError()))


async def test_they_name_who_and_why() -> None:
    async with system() as actors:
        ref = actors.start(Probe(), name="x")
        assert str(Down(ref, None)) == "x is down (normal)"
        assert str(Down(ref, Shutdown("now"))) == "x is down (Shutdown('now'))"
    gave_up = TooManyRestarts("root", "x", ValueError("fault"))
    assert str(gave_up) == "root gave up: x ended too often, at last with ValueError('fault')"
