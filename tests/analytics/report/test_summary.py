import json
import re
from pathlib import Path
from typing import get_args

from tests.analytics.report.made import bad_day, nothing
from trunkline.analytics.jobs.catalogue import summaries
from trunkline.analytics.report.findings import SEVERITIES, Finding, FindingName, failing, findings, tiles, totals
from trunkline.analytics.report.reading import JOBS
from trunkline.analytics.report.summary import summary
from trunkline.analytics.report.tables import MAX_ROWS


def test_a_program_gets_the_sums_and_findings_of_the_page() -> None:
    results = bad_day()
    document = json.loads(summary(results))
    assert document["totals"] == totals(results)._asdict()
    assert document["totals"]["denied"] == 69
    assert document["totals"]["worst_p99_us"] == max(row.p99 for row in results.latency)
    assert document["totals"]["published"] == sum(row.published for row in results.timeline)
    assert results.before is not None
    assert document["before"] == {
        "begin": "2025-06-01T14:00:00+00:00",
        "end": "2025-06-01T14:30:00+00:00",
        "totals": totals(results.before)._asdict(),
    }
    assert document["use"]["users"]["total"] == 300
    assert document["use"]["users"]["first"][0] == results.users.rows[0].asDict()
    assert document["topics"]["once"] == 4000
    assert document["topics"]["most"]["total"] == 4711
    assert len(document["topics"]["most"]["first"]) == MAX_ROWS
    assert document["topics"]["unheard"]["first"] == [
        {"topic": results.source, "messages": 7, "last": "2025-06-01T14:31:30+00:00"}
    ]
    assert document["topics"]["fanout"]["total"] == 40
    assert document["dead_subscriptions"]["after"] == 900
    assert document["dead_subscriptions"]["first"][0]["filter"] == "site/+/temprature"
    assert document["connections"]["by_end"][0]["brief"] == 200
    assert document["connections"]["moves"]["first"][0]["client_id"] == "pump-17"
    assert document["gauges"][0]["high_at"] == "2025-06-01T14:59:50+00:00"
    assert document["loads"][0] == {"name": "published", "nodes": 2, "total": 900, "node": "n1", "most": 900, "skew": 2}
    assert document["payload_sizes"] == [row.asDict() for row in results.sizes]
    assert [(one["severity"], one["name"], one["number"]) for one in document["findings"]][:4] == [
        ("error", "missing", 5),
        ("error", "unwritten", 40),
        ("error", "alarms", 1),
        ("error", "dropped", 1152),
    ]
    assert [one["text"] for one in document["findings"]] == [found.text for found in findings(results)]


def test_where_nothing_happened_there_are_sums_of_nothing() -> None:
    document = json.loads(summary(nothing()))
    assert document["findings"] == []
    assert document["totals"]["worst_p99_us"] is None
    assert document["before"] is None
    assert document["totals"]["published"] == 0
    assert tiles(nothing())[0].figure == "0"


def test_what_fails_is_as_severe_as_asked_and_more_than_allowed() -> None:
    found = findings(bad_day())
    assert failing(found, "note", {}) == found
    assert failing(found, "warning", {}) == [one for one in found if one.severity != "note"]
    errors = [one for one in found if one.severity == "error"]
    assert failing(found, "error", {}) == errors
    assert [one.name for one in failing(found, "error", {"missing": 5, "unwritten": 39})] == [
        one.name for one in errors if one.name != "missing"
    ]


def test_the_page_of_the_docs_has_the_severity_of_each_finding() -> None:
    page = (Path(__file__).parents[3] / "docs" / "analytics-report.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(error|warning|note)` \| .* \| (.*) \|$", page, re.MULTILINE))
    for severity in SEVERITIES:
        names = [name for name in get_args(FindingName) if Finding(name, "x", "", 1).severity == severity]
        assert told[severity] == ", ".join(f"`{name}`" for name in names)


def test_the_page_of_the_docs_says_which_jobs_feed_the_report() -> None:
    page = (Path(__file__).parents[3] / "docs" / "analytics-report.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"Of the thirteen jobs, ten feed the report: (.*?)\. Of the others \((.*?)\)", page, re.DOTALL)
    feeding, others = (re.findall(r"`([\w-]+)`", names) for names in told)
    assert feeding == [*JOBS, "audit"]
    assert {*feeding, *others} == set(summaries())
    assert len(summaries()) == 13
