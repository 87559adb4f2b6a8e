import io

from rich.console import Console

from trunkline.analytics.demo.devices import Tally
from trunkline.analytics.demo.results import Received
from trunkline.analytics.demo.screen import LINES, Screen
from trunkline.analytics.demo.table import Progress


def shown(console: Console, *elapsed: float) -> str:
    with Screen(console, Tally(), Received()) as screen:
        for seconds in elapsed:
            screen.show(Progress("live", seconds, 60))
        screen.show(Progress("done", elapsed[-1], 60))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    text = shown(Console(file=io.StringIO(), width=40), 0, 1, 2, LINES, LINES + 1)
    assert [line.split(":")[0] for line in text.splitlines()] == ["live 0/60 s", "live 5/60 s", "done 6/60 s"]


def test_on_a_terminal_there_is_a_table() -> None:
    text = shown(Console(file=io.StringIO(), width=100, force_terminal=True), 0, 1)
    assert "Busiest topics: nothing yet" in text
    assert "live 1/60 s" in text
