from trunkline.analytics.demo.streams import FLAPS, Plan, checked
from trunkline.analytics.jobs.catalogue import find


def test_the_jobs_take_what_they_are_told() -> None:
    for name in ("latency", "traffic", "flapping"):
        job = find(name)
        options = job.read_options(Plan(window=2.0).options(name))
        assert options.lateness == 1.0
    assert options.limit == FLAPS


def test_alerts_behind_the_end_are_not_looked_at() -> None:
    nothing = {"latency": {}, "traffic": {}, "flapping": {}}
    begin = {"alert": "flapping", "time": 5, "count": 9, "began": 5}
    storm = {**begin, "alert": "storm"}
    found = {
        **nothing,
        "flapping": {("a", "begin", 5): begin, ("a", "end", 9): {**begin, "time": 9}, ("n", "begin", 5): storm},
    }
    expected = {**nothing, "flapping": {("a", "begin", 5): {"count": 9, "began": 5}}}
    assert all(check.good for check in checked(expected, found, 8))
    assert not all(check.good for check in checked(expected, found, 9))
    assert not all(check.good for check in checked(nothing, found, 8))
