"""What CONNECT says, and what it cannot say."""

from dataclasses import replace
from typing import Any

import pytest

from trunkline.broker.nats.terms import BadOptions, ConnectTerms, read_terms


def test_what_is_not_said_has_the_default() -> None:
    assert read_terms({}) == ConnectTerms()
    assert ConnectTerms().is_verbose
    assert ConnectTerms().is_pedantic
    assert read_terms({"user": None, "unknown": [1]}) == ConnectTerms()


def test_all_that_can_be_said() -> None:
    said = {
        "verbose": False,
        "pedantic": False,
        "echo": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "user": "u",
        "pass": "p",
        "name": "n",
        "lang": "python3",
        "version": "2.16",
    }
    assert read_terms(said) == ConnectTerms(False, False, False, True, True, "u", "p", "n", "python3 2.16")
    assert read_terms({"auth_token": "t"}).password == "t"


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"verbose": "x"}, ""),
        ({"echo": 1}, ""),
        ({"user": 7}, ""),
        ({"pass": "\ud800"}, ""),
        ({"name": ["x"]}, ""),
        ({"protocol": 2}, "invalid client protocol"),
        ({"protocol": -1}, "invalid client protocol"),
        ({"protocol": "1"}, ""),
        ({"protocol": 1.0}, ""),
        ({"protocol": True}, ""),
        ({"sig": 1}, ""),
        ({"lang": 3}, ""),
        ({"tls_required": "x"}, ""),
        ({"no_responders": True}, "no responders requires headers support"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], answer: str) -> None:
    with pytest.raises(BadOptions) as refused:
        read_terms(options)
    assert str(refused.value) == answer


def test_what_is_not_said_again_stays() -> None:
    before = read_terms({"verbose": False, "echo": False, "headers": True, "user": "u", "name": "n", "lang": "c"})
    assert read_terms({}, before) == before
    assert read_terms({"VERBOSE": True, "Echo": None}, before) == replace(before, is_verbose=True)
    changed = replace(before, is_pedantic=False, no_responders=True, name="m")
    assert read_terms({"pedantic": False, "no_responders": True, "name": "m"}, before) == changed
    with pytest.raises(BadOptions, match="requires headers"):
        read_terms({"headers": False}, changed)
