"""What a message is made of is counted, not timed; so it can be tested."""

import pytest
from bench.anatomy import ORDER, Bench, examine_all, opened, single, stream, table


async def test_every_case_is_counted() -> None:
    cases = await examine_all(1)
    rows = table(cases)
    assert len(rows) == len(cases) + 1
    assert all(len(row) == 4 + len(ORDER) for row in rows)
    operations = {case.text: sum(case.operations.values()) / case.messages for case in cases}
    assert operations["QoS 0, a read full of packets"] < operations["QoS 0, one packet a read"] / 10
    assert operations["QoS 0, a read full of packets, 50 subscribers"] < 10
    hooked = next(case for case in cases if "hook" in case.text)
    assert hooked.calls["hooks and access"] >= hooked.messages, "a hook sees every message"


@pytest.mark.parametrize("burst", [False, True])
async def test_a_publish_costs_the_same_beside_any_number_of_sessions_and_subscriptions(burst: bool) -> None:
    counted = []
    for others in (0, 300):
        async with opened() as node:
            bench = Bench(node)
            for number in range(others):
                await bench.line(f"other-{number}", [f"other/{number}/{place}" for place in ("exact", "+", "#")])
            case = await (stream(bench, "burst") if burst else single(bench, "single", 0))
            await bench.examine(case, 1)
            counted.append([case.operations["session"], case.operations["pubsub and router"]])
    assert counted[0] == pytest.approx(counted[1], rel=0.02), "message ids take a bit more when the clock has not moved"
