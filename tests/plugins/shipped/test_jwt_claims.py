"""What tokens say, and when that holds."""

from typing import Any

import pytest

from trunkline.hooks.client import ClientInfo
from trunkline.plugins.shipped.jwt_claims import BadClaim, Claims

NOW = 1_700_000_000.0
ANN = ClientInfo("cid", "ann")


def check(claims: dict[str, Any], client: ClientInfo = ANN, **settings: Any) -> float | None:
    defaults: dict[str, Any] = {"leeway": 0, "issuer": "", "audience": "", "required": (), "expected": {}}
    return Claims(**{**defaults, **settings}).check(claims, client, NOW)


def problem(claims: dict[str, Any], client: ClientInfo = ANN, **settings: Any) -> str:
    with pytest.raises(BadClaim) as raised:
        check(claims, client, **settings)
    return str(raised.value)


def test_nothing_is_asked_of_a_token_that_says_nothing() -> None:
    assert check({}) is None


def test_the_end_of_a_token() -> None:
    assert check({"exp": NOW + 1}) == NOW + 1
    assert problem({"exp": NOW}) == "the token has expired"
    assert check({"exp": NOW - 4}, leeway=5) == NOW + 1
    assert problem({"exp": NOW - 5}, leeway=5) == "the token has expired"


@pytest.mark.parametrize("name", ["nbf", "iat"])
def test_the_beginning_of_a_token(name: str) -> None:
    assert check({name: NOW}) is None
    assert problem({name: NOW + 1}) == "the token is not valid yet"
    assert check({name: NOW + 5}, leeway=5) is None


@pytest.mark.parametrize(
    "value", ["1700000000", None, True, [], -1, 1_700_000_000_000, 10**400, float("nan"), float("inf")]
)
def test_what_is_no_time(value: object) -> None:
    assert problem({"exp": value}) == "the token's exp is not a time in seconds"


def test_the_issuer() -> None:
    assert check({"iss": "me"}, issuer="me") is None
    for claims in ({}, {"iss": "you"}, {"iss": ["me"]}):
        assert problem(claims, issuer="me") == "the token has another issuer"


def test_the_audience() -> None:
    assert check({"aud": "me"}, audience="me") is None
    assert check({"aud": ["you", "me"]}, audience="me") is None
    for claims in ({}, {"aud": "you"}, {"aud": ["you"]}, {"aud": {"me": 1}}, {"aud": "some"}):
        assert problem(claims, audience="me") == "the token is for another audience"


def test_claims_that_must_be_there() -> None:
    assert check({"exp": NOW + 1, "x": None}, required=("exp", "x")) == NOW + 1
    assert problem({"x": 1}, required=("exp", "x")) == "the token has no exp"


def test_claims_that_must_say_who_the_client_is() -> None:
    expected = {"device": "%c", "who": "user:%u", "tenant": "acme"}
    good = {"device": ["other", "cid"], "who": "user:ann", "tenant": "acme"}
    assert check(good, expected=expected) is None
    for name, value in (("device", "x"), ("who", "ann"), ("tenant", None), ("device", {"cid": 1}), ("tenant", ["x"])):
        assert problem({**good, name: value}, expected=expected) == f"the token's {name} belongs to another client"


def test_a_placeholder_is_not_taken_for_text() -> None:
    assert check({"who": "%c"}, ClientInfo("c", "%c"), expected={"who": "%u"}) is None
    assert (
        problem({"who": "c"}, ClientInfo("c", "%c"), expected={"who": "%u"})
        == "the token's who belongs to another client"
    )


@pytest.mark.parametrize("username", [None, ""])
def test_a_client_that_says_nothing_is_nobody(username: str | None) -> None:
    for value in ("", None):
        assert "did not send" in problem({"who": value}, ClientInfo("c", username), expected={"who": "%u"})


def test_what_proves_a_name() -> None:
    def proves(**expected: str) -> bool:
        return Claims(0, "", "", (), expected).prove_username

    assert proves(who="%u")
    assert not proves(who="x%u")
    assert not proves(who="%c")
    assert not proves()
