from trunkline.analytics.demo.checking import TOLD, compare, verdict


def test_what_is_equal() -> None:
    expected = {(1, "a"): {"n": 3, "p50": 1.5, "none": None}, (2, "a"): {"n": 4, "p50": 2.0, "none": None}}
    found = {(1, "a"): {"n": 3, "p50": 1.5000000000001, "more": 7}, (2, "a"): {"n": 4, "p50": 2, "none": None}}
    check = compare("latency", "windows", expected, found)
    assert check.good
    assert str(check) == "latency: 2 windows equal"


def test_every_difference_is_one() -> None:
    expected = {(1,): {"n": 3}, (2,): {"n": 4}, (3,): {"n": 5}}
    found = {(1,): {"n": 3}, (2,): {"n": 5}, (4,): {"n": 5}}
    check = compare("latency", "windows", expected, found)
    assert not check.good
    assert str(check).splitlines() == [
        "latency: 1 windows equal, 3 not:",
        "  (2,): n is 5 and should be 4",
        "  (3,): did not come",
        "  (4,): is too much",
    ]


def test_a_missing_column_is_a_difference() -> None:
    assert not compare("latency", "windows", {(1,): {"n": 3}}, {(1,): {}}).good


def test_not_all_differences_are_told() -> None:
    check = compare("latency", "windows", {(number,): {} for number in range(TOLD + 2)}, {})
    assert len(str(check).splitlines()) == 1 + TOLD + 1
    assert str(check).endswith("… and 2 more")


def test_what_did_not_come_is_not_called_unequal() -> None:
    good = compare("latency", "windows", {(1,): {"n": 3}}, {(1,): {"n": 3}})
    late = compare("traffic", "ranks", {(1,): {"n": 3}, (2,): {"n": 3}}, {(1,): {"n": 3}})
    wrong = compare("flapping", "alerts", {(1,): {"n": 3}}, {(1,): {"n": 4}, (2,): {"n": 4}})
    told = "equal to what plain Python computes from the same 9 events"
    assert verdict([good], 9) == f"checked: 1 results {told}"
    assert verdict([good, late], 9) == f"checked: 2 results {told}, 1 did not come"
    assert verdict([good, late, wrong], 9) == f"checked: 2 results {told}, 2 NOT equal, 1 did not come"
