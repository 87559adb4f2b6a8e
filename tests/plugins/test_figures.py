import logging

import pytest

from trunkline.plugins.figures import MAX_FIGURE, Counter, Gauge, PluginFigures

LOGGER = logging.getLogger("trunkline.plugins.test")


def figures_of(*gauges: Gauge) -> PluginFigures:
    figures = PluginFigures()
    figures.gauges = {gauge.name: gauge for gauge in gauges}
    return figures


def test_counters_grow_and_gauges_are_read_when_asked_for() -> None:
    values = [1, 2]
    figures = figures_of(Gauge("waiting", "What waits.", lambda: values.pop(0)))
    figures.counters["greeted"] = counter = Counter("greeted", "Who was greeted.")
    counter.add()
    counter.add(4)
    assert figures.read(LOGGER) == {"greeted": 5, "waiting": 1}
    assert figures.read(LOGGER) == {"greeted": 5, "waiting": 2}
    assert list(figures.meanings()) == [("greeted", "Who was greeted."), ("waiting", "What waits.")]


@pytest.mark.parametrize("value", [MAX_FIGURE, -MAX_FIGURE, 0, True])
def test_what_a_gauge_may_be(value: int) -> None:
    assert figures_of(Gauge("g", "", lambda: value)).read(LOGGER) == {"g": value}


@pytest.mark.parametrize("value", [MAX_FIGURE + 1, -MAX_FIGURE - 1, 1.5, "1", None])
def test_what_a_gauge_cannot_be_is_left_out_and_logged(value: object, caplog: pytest.LogCaptureFixture) -> None:
    figures = figures_of(Gauge("bad", "", lambda: value), Gauge("good", "", lambda: 1))  # type: ignore[arg-type, return-value]
    assert figures.read(LOGGER) == {"good": 1}
    assert figures.errors == 1
    assert caplog.messages == ["the gauge bad cannot be read (1 crashes so far)"]
    assert "is not a whole number of 64 bits" in caplog.text


def test_a_gauge_that_always_raises_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    figures = figures_of(Gauge("ratio", "Of nothing.", lambda: 1 // 0))
    for _ in range(100):
        assert figures.read(LOGGER) == {}
    assert figures.errors == 100
    assert 1 < len(caplog.messages) < 10


def test_an_interrupt_is_no_error_of_a_gauge() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    figures = figures_of(Gauge("g", "", interrupted))
    with pytest.raises(KeyboardInterrupt):
        figures.read(LOGGER)
    assert figures.errors == 0
