"""What CONNECT says, and what it cannot say."""

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
        ({"protocol": "1"}, "invalid client protocol"),
        ({"no_responders": True}, "no responders requires headers support"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], answer: str) -> None:
    with pytest.raises(BadOptions) as refused:
        read_terms(options)
    assert str(refused.value) == answer
