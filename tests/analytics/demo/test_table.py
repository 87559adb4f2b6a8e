import io

from rich.console import Console

from tests.analytics.demo.test_results import NOON, message, window
from trunkline.analytics.demo.devices import Tally
from trunkline.analytics.demo.results import Received
from trunkline.analytics.demo.table import Progress, line, table


def shown(received: Received, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(table(Progress("live", 12.3, 60), Tally(published=1234, received=5), received))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def full(name: str = "plant/1") -> Received:
    received = Received()
    for number, (topic, row) in enumerate(
        (
            ("latency/1", window(0, node="n", prefix="old", qos=0, delivered=7)),
            (
                "latency/1",
                window(
                    5,
                    node="n",
                    prefix=name,
                    qos=1,
                    delivered=1500,
                    undelivered=2,
                    p50_us=120.0,
                    p95_us=1500.0,
                    p99_us=2e6,
                ),
            ),
            ("traffic/1", window(5, rank=1, name=name, messages=20, bytes=2500)),
            ("traffic/2", window(5, rank=2, name="b", messages=10, bytes=100)),
            (
                "flapping/x",
                {
                    "subject": name,
                    "state": "begin",
                    "time": "2025-06-01T12:00:09Z",
                    "began": "2025-06-01T12:00:09Z",
                    "count": 11,
                },
            ),
        )
    ):
        received.take(message(topic, row, number), NOON + 11.5)
    return received


def test_everything_is_there() -> None:
    text = shown(full())
    assert "Delivery latency, 12:00:05 to 12:00:10 UTC" in text
    for words in (
        "plant/1/…",
        "1\N{NARROW NO-BREAK SPACE}500",
        "120\N{NO-BREAK SPACE}µs",
        "2\N{NO-BREAK SPACE}s",
        "2.5\N{NO-BREAK SPACE}kB",
    ):
        assert words in text
    assert "old" not in text
    assert "12:00:09 │ flaps" in text
    bars = [row.count("█") for row in text.splitlines() if "█" in row]
    assert bars == [24, 12]


def test_nothing_has_come_yet() -> None:
    text = shown(Received())
    assert "Delivery latency: nothing yet" in text
    assert "Flapping clients: none yet" in text


def test_names_are_no_markup() -> None:
    assert "[red]x[/red]\\x1b" in shown(full("[red]x[/red]\x1b"))


def test_it_fits_a_narrow_terminal() -> None:
    assert max(map(len, shown(full(), width=60).splitlines())) <= 60


def test_one_line_says_it_too() -> None:
    assert line(Progress("live", 12.3, 60), Tally(published=1234, received=5), full()) == (
        "live 12/60 s: 1\N{NARROW NO-BREAK SPACE}234 messages published, 5 received; 5 results, 1.5\N{NO-BREAK SPACE}s behind their windows"
    )
