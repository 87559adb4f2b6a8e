"""Tests that are wrong must not pass: each of these fails, and says why."""

import re

import pytest

from trunkline import testing

pytest_plugins = "pytester"

#: Each wrong test for a broker `b`, what its failure says, and how such a test runs.
WRONG = {
    "a truth before a wait": (
        "assert b.wait_for('never')",
        r"wait_for\(\) in .*:\d+ is neither true nor false",
        "async",
    ),
    "a wait that is not awaited": ("b.wait_for('never')", r"wait_for\(\) in .*:\d+ was never awaited", "async"),
    "a clock that is not awaited": ("b.clock.advance(3600)", r"advance\(\) in .*:\d+ was never awaited", "async"),
    "a fault's wait that is not awaited": (
        "fault = b.faults.drop('PUBACK').optional(); fault.triggered()",
        r"triggered\(\) in .*:\d+ was never awaited",
        "async",
    ),
    "a fault for a misspelt client": (
        "b.faults.drop('PUBACK', client='kitchn')",
        "this fault has never happened: drop PUBACK client 'kitchn'",
        "any",
    ),
    "a block of a fault that never happens": (
        "\n    with b.faults.refuse_publish('NOT_AUTHORIZED', topic='b/#'): b.publish('a')",
        "this fault has never happened: refuse publishes: NOT_AUTHORIZED",
        "any",
    ),
    "a cut of nobody": ("b.faults.cut(client='nobody')", "no client 'nobody' is connected; connected: nobody", "any"),
    "a cut of none": ("b.faults.cut()", "no client is connected", "any"),
    "a packet for nobody": ("b.faults.inject(b'x', client='nobody')", "no client 'nobody' is connected", "any"),
    "a kick of nobody": ("b.kick('nobody')", "no client 'nobody' is connected", "any"),
    "the outcome for a misspelt client": (
        "assert b.publish('a', '1').outcome('nobdy').state != 'dropped'",
        "no client 'nobdy' has connected, and the message went to nobody",
        "any",
    ),
}
#: Where the broker lives, the marks of such a test, and the plugins that it needs.
WAYS = {
    "plain": ("", "def", ()),
    "asyncio": ("@pytest.mark.asyncio", "async def", ("asyncio",)),
    "trio": ("@pytest.mark.trio", "async def", ("trio",)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_test_fails_and_says_why(pytester: pytest.Pytester, way: str) -> None:
    mark, define, plugins = WAYS[way]
    cases = [case for case in WRONG.values() if way != "plain" or case[2] == "any"]
    lines = ["import pytest"]
    for number, (body, _, _) in enumerate(cases):
        lines += [mark, f"{define} test_{number:02}(mqtt_broker):", "    b = mqtt_broker", f"    {body.strip()}", ""]
    # a right one beside them, for which nothing of theirs is left
    wait = "await " if plugins else ""
    lines += [mark, f"{define} test_right(mqtt_broker):", "    mqtt_broker.publish('t')"]
    lines += [f"    {wait}mqtt_broker.wait_for('t')", "    mqtt_broker.faults.drop('PUBACK').optional()"]
    pytester.makepyfile("\n".join(lines))
    ini = "asyncio_default_fixture_loop_scope = function" if "asyncio" in plugins else ""
    pytester.makeini(f"[pytest]\nfilterwarnings = error\n{ini}")
    without = [f"-pno:{name}" for name in ("trio", "asyncio", "anyio", "xdist") if name not in plugins]
    result = pytester.runpytest_subprocess(*without, "-pno:cacheprovider", "-rA", "--tb=short")
    result.assert_outcomes(failed=len(cases), passed=1)
    output = result.stdout.str()
    for number, (_, words, _) in enumerate(cases):
        ((section,),) = [re.findall(rf"_ test_{number:02} _.*?(?=\n_+ test_|\n=====)", output, re.DOTALL)]
        assert re.search(words, section), section


def test_a_failed_block_says_nothing_more() -> None:
    with pytest.raises(LookupError, match="own"), testing.broker() as broker:  # noqa: PT012 - how a block ends
        broker.faults.drop("PUBACK")
        raise LookupError("own")


def test_the_end_of_a_block_is_the_end_of_a_test() -> None:
    with pytest.raises(LookupError, match="never happened: drop PUBACK"), testing.broker() as broker:
        broker.faults.drop("PUBACK")
