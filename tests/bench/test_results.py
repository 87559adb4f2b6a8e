"""What is made of results that were kept: tables, comparisons, charts."""

import builtins
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from bench import results
from bench.__main__ import show
from bench.compare import compare
from bench.load import Outcome
from bench.markdown import markdown
from bench.plot import NotDrawn, bars, plot
from bench.report import generator_margin, line, short_table, table
from bench.results import Case, NotResults, Series, rows
from bench.workloads import WORKLOADS

PAIRS = Case("pairs-qos0", "3.1.1", 64)


def outcome(rate: float, *, lost: int = 0, cpu: float = 1.0, each: float | None = None) -> Outcome:
    return Outcome(rate, lost, 0, cpu, 0.5, 1 << 20, each)


def series(workload: str, peer: str, *outcomes: Outcome, version: str = "3.1.1", payload: int = 64) -> Series:
    return Series(WORKLOADS[workload].sized(payload), version, peer, outcomes=list(outcomes))


def all_series() -> list[Series]:
    refused = series("pairs-qos2", "nats-server")
    refused.unsupported = "QoS 2"
    failed = series("pairs-qos2", "amqtt")
    failed.failures.append("BrokenRun: it went away")
    return [
        series("pairs-qos0", "mosquitto", outcome(100), outcome(90), outcome(110)),
        series("pairs-qos0", "trunkline", outcome(500, cpu=0.5), outcome(450), outcome(510)),
        series("pairs-qos0", "sink", outcome(1200)),
        series("pairs-qos0", "mosquitto", outcome(40), payload=65536),
        series("pairs-qos0", "trunkline", outcome(10), payload=65536),
        series("pairs-qos0", "sink", outcome(60), payload=65536),
        series("pairs-qos2", "mosquitto", outcome(10), outcome(10, lost=3)),
        series("pairs-qos2", "trunkline", outcome(20)),
        refused,
        failed,
        series("subscribe-100k", "mosquitto", outcome(1000, each=900.0)),
        series("subscribe-100k", "trunkline", outcome(250, each=300.0)),
        series("idle", "mosquitto", outcome(2500, each=2500.0)),
        series("idle", "trunkline", outcome(5000, each=5000.0)),
    ]


@pytest.fixture
def kept() -> dict[str, Any]:
    """As it comes back from a file."""
    versions = {"mosquitto": "2.0.11", "trunkline": "1.2.3", "sink": None}
    made = json.loads(json.dumps(results.document({"rounds": 3}, versions, all_series())))
    made["date"] = "2026-01-02T03:04:05+00:00"
    made["machine"] = {"cpu": "A Processor", "cores": 4, "system": "Linux 6", "python": "3.11.7", "load": 0.1}
    return made


def test_rows_have_ratios_to_the_first_peer(kept: dict[str, Any]) -> None:
    found = {(row.case, row.peer): row for row in rows(kept)}
    assert found[PAIRS, "trunkline"].ratio == pytest.approx(5.0)
    assert found[PAIRS, "trunkline"].base == "mosquitto"
    assert found[PAIRS._replace(payload=65536), "trunkline"].ratio == pytest.approx(0.25)
    qos2 = Case("pairs-qos2", "3.1.1", 64)
    assert found[qos2, "trunkline"].ratio is None  # the first one lost something
    assert [found[qos2, peer].state for peer in ("mosquitto", "trunkline", "nats-server", "amqtt")] == [
        *("lost 3", "ranked", "not supported", "failed")
    ]
    assert found[qos2, "mosquitto"].rate is None


def test_rows_of_a_file_without_payload_sizes(kept: dict[str, Any]) -> None:
    for result in kept["results"]:
        for key in ("payload", "unsupported", "bytes_each", "less_is_better"):
            del result[key]
    found = rows({"results": kept["results"][:2] + kept["results"][-1:]})
    assert [row.case.payload for row in found] == [64, 64, 64]
    assert [row.less_is_better for row in found] == [False, False, True]


def test_what_is_not_supported_is_no_failure() -> None:
    good = {(each.workload.name, each.peer): each.good for each in all_series()}
    assert good["pairs-qos2", "nats-server"]
    assert not good["pairs-qos2", "amqtt"]
    assert not good["pairs-qos2", "mosquitto"]
    assert not series("pairs-qos0", "mosquitto").good


def test_the_table() -> None:
    found = all_series()
    text = table(found)
    assert "nats-server         not supported: QoS 2" in text
    assert "amqtt               failed: BrokenRun: it went away" in text
    assert "lost 3 messages (0 duplicates): not ranked" in text
    assert "5.00" in line(found[1], found[0])
    assert line(found[10], found[10]).endswith("900 bytes/subscription")
    assert "64 KiB" in line(found[3], found[3])


def test_the_short_table_has_no_figures() -> None:
    lines = short_table(all_series()).splitlines()
    assert lines[0].endswith("mosquitto           nothing lost")
    assert "lost 3 messages" in lines[6]
    assert "not supported" in lines[8]


def test_the_generators_margin(kept: dict[str, Any]) -> None:
    text = generator_margin(rows(kept))
    assert text is not None
    assert "does not drive the sink twice as fast as the fastest broker in 1 of 2:" in text
    expected = "the limit was the sink, the generator was busy for 50%"
    assert f"pairs-qos0, MQTT 3.1.1, 64 KiB: 1.5 times mosquitto; {expected}" in text
    kept["results"][5]["rounds"][0]["broker_cpu"] = 0.4
    text = generator_margin(rows(kept))
    assert text is not None
    assert text.endswith("the generator was busy for 50% and the sink for 40%, so others used the machine")
    kept["results"][5]["rounds"][0]["generator_cpu"] = 0.97
    text = generator_margin(rows(kept))
    assert text is not None
    assert text.endswith("the limit was the generator")
    kept["results"] = kept["results"][:3]
    text = generator_margin(rows(kept))
    assert text is not None
    assert "at least twice as fast" in text
    assert "2.4 times at the least" in text
    kept["results"] = kept["results"][:2]
    assert generator_margin(rows(kept)) is None


def test_compare(kept: dict[str, Any]) -> None:
    after = copy.deepcopy(kept)
    trunkline = after["results"][1]
    trunkline["median"] *= 1.1
    trunkline["per_cpu_second"] *= 0.5
    after["machine"]["cores"] = 8
    del after["results"][4]
    after["results"][6] |= {"ranked": False, "lost": 12}
    after["results"].append({**trunkline, "peer": "newcomer"})
    lines = compare(kept, after).splitlines()
    assert lines[0] == "changes since 2026-01-02T03:04:05+00:00"
    [changed] = [text for text in lines if text.startswith("pairs-qos0, MQTT 3.1.1, 64 B, trunkline")]
    assert changed.split()[-6:] == ["5.50", "5.00", "+10.0%", "255", "510", "-50.0%"]
    [same] = [text for text in lines if text.startswith("pairs-qos0, MQTT 3.1.1, 64 B, mosquitto")]
    assert same.split()[-6:] == ["1.00", "1.00", "+0.0%", "100", "100", "+0.0%"]
    assert "another machine: cores 4 then, 8 now" in lines
    assert "new: pairs-qos0, MQTT 3.1.1, 64 B, newcomer" in lines
    assert "not run any more: pairs-qos0, MQTT 3.1.1, 64 KiB, trunkline" in lines
    assert "pairs-qos2, MQTT 3.1.1, 64 B, trunkline: ranked then, lost 12 now" in lines


def test_compare_mistrusts_ratios_to_another_peer(kept: dict[str, Any]) -> None:
    after = copy.deepcopy(kept)
    after["results"] = after["results"][1:2]
    text = compare(kept, after)
    assert "its ratio was to mosquitto then, is to trunkline now" in text
    [changed] = [each for each in text.splitlines() if each.startswith("pairs-qos0, MQTT 3.1.1, 64 B, trunkline  ")]
    assert changed.split()[-6:-3] == ["1.00", "-", "-"]


def test_markdown(kept: dict[str, Any]) -> None:
    text = markdown(kept)
    assert text.startswith(
        "2026-01-02; A Processor, 4 cores, Linux 6; Python 3.11.7; mosquitto 2.0.11, trunkline 1.2.3.\n\n"
        "| workload | MQTT | payload | unit | mosquitto | trunkline | sink | nats-server | amqtt |\n"
        "|---|---|---|---|---:|---:|---:|---:|---:|\n"
        "| `pairs-qos0` | 3.1.1 | 64 B | deliveries/s | 100 (1.00) | 500 (5.00) | 1,200 (12.00) | - | - |\n"
    )
    assert "| `pairs-qos2` | 3.1.1 | 64 B | deliveries/s | lost 3 | 20 | - | not supported | failed |\n" in text
    work, memory = text.split("By the processor time")[1].split("Resident bytes")
    assert "| `pairs-qos0` | 3.1.1 | 64 B | deliveries/s | 100 | 510 | 1,200 | - | - |\n" in work
    assert "idle" not in work
    assert "| `subscribe-100k` | 3.1.1 | 64 B | bytes | 900 | 300 | - | - | - |\n" in memory
    assert "pairs" not in memory


def test_bars_are_longer_for_what_is_better(kept: dict[str, Any]) -> None:
    found = bars(kept)
    assert found[PAIRS] == pytest.approx({"mosquitto": 1.0, "trunkline": 5.0, "sink": 12.0})
    assert found[Case("idle", "3.1.1", 64)] == pytest.approx({"mosquitto": 1.0, "trunkline": 0.5})
    assert Case("pairs-qos2", "3.1.1", 64) not in found  # a ratio to what has no rank


def test_plot(kept: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    kept["results"].append({**kept["results"][1], "peer": "unheard-of"})
    plot(kept, tmp_path / "chart.svg")
    assert "<svg" in (tmp_path / "chart.svg").read_text()


def test_plot_says_what_is_missing(kept: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotDrawn, match="nothing to draw"):
        plot({**kept, "results": []}, tmp_path / "chart.svg")
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotDrawn, match="pip install matplotlib"):
        plot(kept, tmp_path / "chart.svg")
    assert not (tmp_path / "chart.svg").exists()


def test_kept_results_are_shown_later(kept: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.json"
    results.write(file, kept)
    assert show("markdown", [str(file), str(tmp_path / "table.md")]) == 0
    assert (tmp_path / "table.md").read_text() == markdown(kept)
    assert show("compare", [str(file), str(file)]) == 0
    assert "+0.0%" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[1]", "{}"])
def test_a_file_with_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(NotResults):
        results.read(tmp_path / "other.json")


def test_the_command_line_names_no_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", [str(tmp_path / "__main__.py"), "-w", "pair", "--json", str(tmp_path / "a.json")])
    assert results.document({}, {}, [])["command"] == ["__main__.py", "-w", "pair", "--json", "a.json"]
