"""What a failed test's report says of its broker."""

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.testing.report import LINES, WIDTH, report


async def test_it_says_who_is_there_and_what_waits() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, Wire(b.connect(), version=4) as away:
        await wire.connect("here")
        await wire.subscribe(("a/+", 1))
        await away.connect("away", clean=False)
        await away.subscribe(("a/+", 1))
        await away.abort()
        await b.wait_until(lambda: len(b.clients) == 1)
        b.publish("a/b", b"x", qos=1, retain=True)
        b.node.alarms.activate("hot", "it is")
        await b.wait_until(lambda: b.sessions[0].queued)
        assert report(b).splitlines() == [
            b.url,
            "2 sessions",
            "  away: away, 1 message queued",
            "  here: connected by 5.0, 1 not acknowledged",
            "2 subscriptions",
            "  away to a/+ at QoS 1",
            "  here to a/+ at QoS 1",
            "1 retained message",
            "  a/b: b'x'",
            "1 alarm",
            "  hot: it is",
            "1 closed connection",
            "  away: gone (unspecified_error: the client closed the connection without a DISCONNECT)",
            "0 faults",
            "1 message",
            "  a/b b'x' QoS 1 RETAIN from the broker itself; 'here': delivered, 'away': queued",
        ]
    async with testing.broker(history=0) as b:
        assert report(b).splitlines()[-1] == "0 faults"


async def test_it_stays_short() -> None:
    async with testing.broker() as b:
        for number in range(LINES + 5):
            b.publish(f"{number:02}", b"x" * 10 * WIDTH, retain=True)
        lines = report(b).splitlines()
        assert len([line for line in lines if ": b'x" in line]) == LINES
        assert len([line for line in lines if " QoS 0" in line]) == LINES
        assert max(map(len, lines)) == WIDTH


async def test_it_says_who_was_refused_who_is_gone_and_what_went_wrong() -> None:
    async with testing.broker() as b, Wire(b.connect()) as gone, Wire(b.connect()) as refused:
        await gone.connect("gone")
        await gone.subscribe(("t", 0))
        with b.faults.drop("PUBLISH", direction="to"), b.faults.refuse_connect("BANNED"):
            await refused.send(raw.connect("refused"))
            b.publish("t", "x" * 1000)
            for number in range(20):
                b.publish(f"{number}")
            await b.wait_until(lambda: len(b.connections) == 2)
            assert gone.stream is not None
            await gone.disconnect()
            await b.wait_until(lambda: not b.clients)
            lines = report(b).splitlines()
        i = lines.index("2 closed connections")
        assert lines[i + 1].startswith("  gone: gone (normal_disconnection")
        assert lines[i + 2] == "  refused: refused (banned)"
        assert lines[i + 3 : i + 6] == ["2 faults", "  drop PUBLISH to, 1 hit", "  refuse connects: BANNED, 1 hit"]
        b.messages.clear()
    async with testing.broker(listeners=[]) as b, Wire(b.connect()) as wire:
        await wire.connect("a" * 200)
        await wire.subscribe(("t", 0))
        with b.faults.drop("PUBLISH", direction="to"):
            b.publish("t", "x" * 1000)
            await wire.expect_nothing()
        assert report(b).splitlines()[0] == "no listeners"
        assert report(b).splitlines()[-1].endswith("…': dropped (fault)")


def test_a_broker_that_is_gone_is_reported_too() -> None:
    with testing.broker() as b:
        pass
    assert report(b) == "the broker is gone: RuntimeError('the broker has been stopped')"
