"""What is read of a request, and which of the results an answer has."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from trunkline.broker.nats.jetstream.requests import ApiRequest
from trunkline.nats.jetstream.replies import ApiError

ANYBODY: Any = None
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def request(payload: Any = b"") -> ApiRequest:
    return ApiRequest(ANYBODY, "s", "", "", payload if isinstance(payload, bytes) else json.dumps(payload).encode())


@pytest.mark.parametrize("payload", [b"", b"  ", b"\r\n"])
def test_a_request_without_anything(payload: bytes) -> None:
    asked = request(payload)
    assert asked.body == {}
    asked.empty()
    with pytest.raises(ApiError) as refused:
        asked.needed()
    assert refused.value.err_code == 10003


def test_an_object_that_says_nothing_is_as_empty() -> None:
    request(b" {} ").empty()
    request(b"{}").needed()
    assert request(b" null").body == {}


@pytest.mark.parametrize("payload", [b"x", b'{"a": 1}', b"[]"])
def test_a_request_that_should_be_empty(payload: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        request(payload).empty()
    assert refused.value.err_code == 10038
    request(payload).needed()


def test_the_body_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request({"offset": 1, "subject": "x"})
    assert asked.body is asked.body
    assert asked.value("offset", int, 0) == 1
    monkeypatch.setattr(json, "loads", None)
    assert asked.value("subject", str, "") == "x"


@pytest.mark.parametrize(
    ("said", "kind", "default", "value"),
    [
        ({"a": 5}, int, 0, 5),
        ({}, int, 7, 7),
        ({"a": None}, int, 7, 7),
        ({"a": "x"}, str, "", "x"),
        ({"a": True}, bool, False, True),
    ],
)
def test_values(said: dict[str, Any], kind: type[Any], default: Any, value: Any) -> None:
    assert request(said).value("a", kind, default) == value


@pytest.mark.parametrize(
    ("said", "kind"),
    [("x", int), (5, str), (1.0, int), (True, int), (1, bool), ([], str), ({}, int), ("y" * 9999, int)],
)
def test_values_of_another_type(said: Any, kind: type[Any]) -> None:
    with pytest.raises(ApiError) as refused:
        request({"a": said}).value("a", kind, kind())
    assert refused.value.err_code == 10025
    assert len(refused.value.description) < 100


def test_numbers_that_are_not_negative() -> None:
    assert request({"seq": 5}).natural("seq") == 5
    assert request({"seq": 0}).natural("seq") == request().natural("seq") == 0
    for bad in (-1, "1", LEAST):
        with pytest.raises(ApiError) as refused:
            request({"seq": bad}).natural("seq")
        assert refused.value.err_code == 10025


@pytest.mark.parametrize(
    ("offset", "page", "begins"),
    [
        (None, [0, 1, 2], 0),
        (0, [0, 1, 2], 0),
        (1, [1, 2, 3], 1),
        (3, [3, 4], 3),
        (5, [], 5),
        (99, [], 5),
        (-7, [0, 1, 2], 0),
    ]
    + [(MOST, [], 5), (LEAST, [0, 1, 2], 0)],
)
def test_pages(offset: int | None, page: list[int], begins: int) -> None:
    found, said = request({} if offset is None else {"offset": offset}).page(range(5), 3)
    assert (list(found), said) == (page, {"total": 5, "offset": begins, "limit": 3})


def test_pages_together_are_all_there_is() -> None:
    seen: list[int] = []
    while len(seen) < 10:
        page, said = request({"offset": len(seen)}).page(range(10), 3)
        assert page
        seen += cast("list[int]", page)
        assert said["total"] == 10
    assert seen == list(range(10))


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"a": NaN}', b'{"a": "\\ud800"}', b"[" * 100_000])
def test_what_is_no_object(payload: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        _ = request(payload).body
    assert (refused.value.code, refused.value.err_code) == (400, 10025)
    refused.value.description.encode()  # it can be sent
