"""Access rules that a login brings along."""

import pytest

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW
from trunkline.plugins.shipped.acl_rules import LoginRules, RulesError


def decide(rules: object, action: str, topic: str, qos: int = 0, retain: bool = False) -> str:
    decision = LoginRules(rules, ClientInfo("cid", "ann")).decide(action, topic, qos, retain)  # type: ignore[arg-type]
    return "pass" if decision is None else "allow" if decision is ALLOW else "deny"


RULES = [
    {"permission": "allow", "action": "publish", "topic": "t/${clientid}"},
    {"permission": "allow", "action": "subscribe", "topic": "eq t/1/#", "qos": [1]},
    {"permission": "deny", "action": "publish", "topic": "t/2", "retain": True},
    {"permission": "deny", "action": "all", "topic": "t/3"},
    {"permission": "allow", "topics": ["u/%u", "u/x"], "qos": 0},
    {"permission": "deny", "action": "all", "topic": "r/#", "retain": True},
]


@pytest.mark.parametrize(
    ("action", "topic", "qos", "retain", "answer"),
    [
        ("publish", "t/cid", 2, True, "allow"),
        ("publish", "t/other", 0, False, "pass"),
        ("subscribe", "t/cid", 0, False, "pass"),
        ("subscribe", "t/1/#", 1, False, "allow"),
        ("subscribe", "t/1/#", 0, False, "pass"),
        ("subscribe", "t/1/x", 1, False, "pass"),
        ("publish", "t/2", 0, True, "deny"),
        ("publish", "t/2", 0, False, "pass"),
        ("publish", "t/3", 0, False, "deny"),
        ("subscribe", "t/3", 0, False, "deny"),
        ("receive", "t/3", 0, False, "pass"),
        ("publish", "u/ann", 0, False, "allow"),
        ("subscribe", "u/x", 0, False, "allow"),
        ("subscribe", "u/x", 1, False, "pass"),
        ("publish", "r/1", 0, True, "deny"),
        ("publish", "r/1", 0, False, "pass"),
        ("subscribe", "r/1", 0, False, "deny"),
    ],
)
def test_rules_in_order(action: str, topic: str, qos: int, retain: bool, answer: str) -> None:
    assert decide(RULES, action, topic, qos, retain) == answer


@pytest.mark.parametrize(
    ("action", "topic", "answer"),
    [
        ("publish", "p/cid", "allow"),
        ("subscribe", "p/cid", "deny"),
        ("subscribe", "s/a/b", "allow"),
        ("publish", "s/a/b", "deny"),
        ("publish", "a", "allow"),
        ("subscribe", "a", "allow"),
        ("subscribe", "#", "deny"),
        ("receive", "x", "pass"),
    ],
)
def test_lists_of_what_is_allowed(action: str, topic: str, answer: str) -> None:
    assert decide({"pub": ["p/%c"], "sub": ["s/#"], "all": ["a"]}, action, topic) == answer


def test_lists_that_allow_nothing() -> None:
    assert decide({}, "publish", "a") == "deny"
    assert decide({"pub": []}, "publish", "a") == "deny"
    assert decide([], "publish", "a") == "pass"


def test_a_name_that_would_change_a_topic_matches_nothing() -> None:
    rules = LoginRules([{"permission": "allow", "topic": "t/%c"}], ClientInfo("#"))
    assert rules.decide("subscribe", "t/#", 0, False) is None


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("all", 'found "all"; accepted: a table of pub, sub, all'),
        ({"publish": ["a"]}, r"publish: unknown; did you mean pub\?"),
        ({"pub": "a"}, 'pub: found "a"; accepted: a list'),
        ({"pub": ["a"] * 1001}, "no more than 1000"),
        ([{"permission": "deny", "topic": "a"}] * 1001, "more than 1000"),
        (["a"], 'found "a"; accepted: a table of permission, '),
        ([{"permission": "deny", "topic": "a", "zone": "x"}], "zone: unknown"),
        ([{"permission": "no", "topic": "a"}], "permission"),
        ([{"topic": "a"}], "permission"),
        ([{"permission": "deny", "topic": "a", "action": "receive"}], "action"),
        ([{"permission": "deny"}], "topics: found nothing"),
        ([{"permission": "deny", "topics": []}], "topics: found .* would never match"),
        ([{"permission": "deny", "topic": 3}], "topics: found 3"),
        ([{"permission": "deny", "topic": "a/#/b"}], "'#' is not alone"),
        ([{"permission": "deny", "topic": "a/${zone}"}], "placeholder that is not known"),
        ([{"permission": "deny", "topic": "a", "qos": 3}], "qos"),
        ([{"permission": "deny", "topic": "a", "qos": [True]}], "qos"),
        ([{"permission": "deny", "topic": "a", "retain": 1}], "retain"),
    ],
)
def test_what_is_not_understood_is_refused_as_a_whole(rules: object, words: str) -> None:
    with pytest.raises(RulesError, match=words):
        LoginRules(rules, ClientInfo("c"))
