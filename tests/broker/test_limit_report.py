"""Which limit acted, for whom, how often."""

import pytest
from trio.testing import MockClock

from tests.broker.room import room
from trunkline.broker.metrics import LimitKind


@pytest.mark.parametrize("kind", LimitKind)
async def test_every_limit_is_counted_and_in_the_log(
    kind: LimitKind, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with room() as here:
        for whom in ("a", "b", "a"):
            here.node.services.limit_report.acted(kind, whom, "limit = 1")
        assert (await here.node.figures())[kind.counter] == 3
    noun = kind.noun
    assert [record.getMessage() for record in caplog.records if record.name == "trunkline.limits"] == [
        f"{kind.counter} acted for 1 {noun}: limit = 1 ({noun} a)",
        f"{kind.counter} acted 2 more times in the last minute for 2 {noun}s: limit = 1 (e.g. {noun} a)",
    ]
