"""What a service's answers mean, and how long they are remembered."""

from typing import Any

import pytest

from tests.plugins.shipped.server import as_json
from trunkline.plugins.shipped.http_answers import Remembered, Verdict, read_verdict
from trunkline.plugins.shipped.http_client import HttpAnswer, HttpFailure
from trunkline.plugins.shipped.http_template import Prepared


def read(status: int, body: bytes = b"", content_type: str = "application/json") -> Verdict:
    return read_verdict(HttpAnswer(status, content_type, body))


@pytest.mark.parametrize(
    ("status", "result"), [(204, "allow"), (200, "allow"), (400, "deny"), (401, "deny"), (403, "deny"), (404, "deny")]
)
def test_a_status_alone(status: int, result: str) -> None:
    assert read(status, content_type="").result == result


@pytest.mark.parametrize("status", [100, 201, 301, 302, 408, 425, 429, 500, 503])
def test_a_status_that_says_nothing_of_the_client(status: int) -> None:
    with pytest.raises(HttpFailure, match=f"status {status}"):
        read(status, b'{"result": "allow"}')


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ({"result": "allow"}, Verdict("allow")),
        ({"result": "deny", "why": "because"}, Verdict("deny")),
        ({"result": "ignore", "is_superuser": "true"}, Verdict("ignore")),
        (
            {"result": "allow", "is_superuser": True, "client_attrs": {"a": "b", "n": 1}, "expire_at": 7, "acl": [1]},
            Verdict("allow", True, {"a": "b"}, [1], 7),
        ),
        ({"result": "allow", "client_attrs": "x", "expire_at": None, "acl": None}, Verdict("allow")),
    ],
)
def test_an_answer_in_json(value: dict[str, Any], verdict: Verdict) -> None:
    assert read(200, as_json(value).body) == verdict


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b"<html>log in here</html>", "text/html", "'text/html', not with application/json"),
        (b'{"result": "allow"}', "", "not with application/json"),
        (b"{", "application/json", "invalid JSON"),
        (b"\xff", "application/json", "invalid JSON"),
        (b"[" * 50_000, "application/json", "invalid JSON"),
        (b'{"result": "deny", "result": "allow"}', "application/json", "a key twice"),
        (b'["allow"]', "application/json", "JSON that is not an object"),
        (b"{}", "application/json", "none of allow, deny and ignore"),
        (b'{"result": true}', "application/json", "none of allow, deny and ignore"),
        (b'{"result": "allow", "expire_at": "7"}', "application/json", "expire_at"),
        (b'{"result": "allow", "expire_at": true}', "application/json", "expire_at"),
    ],
)
def test_what_is_no_answer(body: bytes, content_type: str, words: str) -> None:
    with pytest.raises(HttpFailure, match=words):
        read(200, body, content_type)


def asking(number: int) -> Prepared:
    return Prepared("GET", f"http://h/{number}", None, "")


def test_a_verdict_is_remembered_for_its_time() -> None:
    remembered = Remembered(10.0, 100)
    assert remembered.find(asking(1), 0.0) is None
    assert remembered.keep(asking(1), Verdict("deny"), 0.0) == 10.0
    assert remembered.find(asking(1), 9.9) == (Verdict("deny"), 10.0)
    assert remembered.find(asking(1), 10.0) is None
    assert remembered.find(asking(2), 0.0) is None
    assert remembered.find(Prepared("POST", "http://h/1", b"", ""), 0.0) is None


def test_there_are_never_more_than_there_may_be() -> None:
    remembered = Remembered(10.0, 3)
    for number in range(10):
        remembered.keep(asking(number), Verdict("allow"), number / 100)
    assert len(remembered) == 3
    assert remembered.find(asking(6), 1.0) is None
    assert remembered.find(asking(7), 1.0) is not None
    remembered.keep(asking(7), Verdict("deny"), 5.0)
    remembered.keep(asking(11), Verdict("deny"), 11.0)
    assert len(remembered) == 2


@pytest.mark.parametrize(("time_to_live", "size"), [(0.0, 3), (10.0, 0)])
def test_remembering_can_be_turned_off(time_to_live: float, size: int) -> None:
    remembered = Remembered(time_to_live, size)
    remembered.keep(asking(1), Verdict("allow"), 0.0)
    assert len(remembered) == 0


def test_no_request_stays_in_memory() -> None:
    remembered = Remembered(10.0, 3)
    remembered.keep(Prepared("POST", "http://h/", b"hush", ""), Verdict("allow"), 0.0)
    assert b"hush" not in b"".join(remembered._entries)
