"""What clients say of themselves stays a value, wherever it is put."""

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest
from pydantic import ValidationError

from trunkline.hooks.client import ClientInfo
from trunkline.mqtt.versions import Version
from trunkline.plugins.shipped.http_template import CLIENT_WORDS, Prepared, RequestTemplate, Unfit, client_values

NASTY = 'a/../b?x=1&y#z"\\,{}%00\r\n é ${username}'


def fill(client_id: str = "c", username: str | None = "u", **settings: Any) -> Prepared:
    client = ClientInfo(client_id, username, ("10.0.0.1", 4321), version=Version.V311)
    return RequestTemplate(**{"url": "http://h/", **settings}).fill(client_values(client))


def test_a_json_body() -> None:
    body = {
        "id": "${clientid}",
        "mix": "${clientid}-${username}!",
        "v": "${proto_ver}",
        "port": "${peerport}",
        "x": "y",
    }
    prepared = fill(NASTY, None, body=body)
    assert (prepared.method, prepared.url, prepared.content_type) == ("POST", "http://h/", "application/json")
    assert prepared.content is not None
    assert json.loads(prepared.content) == {"id": NASTY, "mix": f"{NASTY}-!", "v": 4, "port": 4321, "x": "y"}
    assert json.loads(fill(username=None, body={"u": "${username}"}).content or b"") == {"u": None}


def test_a_form() -> None:
    prepared = fill(NASTY, body={"id": "${clientid}", "u": "${username}"}, body_format="form")
    assert prepared.content_type == "application/x-www-form-urlencoded"
    assert prepared.content is not None
    assert parse_qsl(prepared.content.decode(), strict_parsing=True) == [("id", NASTY), ("u", "u")]


def test_a_query() -> None:
    prepared = fill(
        NASTY, url="http://h/p?id=${clientid}&a=%c3%a9", method="get", body={"u": "${username}", "k": "${keepalive}"}
    )
    path, _, query = prepared.url.partition("?")
    assert (prepared.method, path, prepared.content) == ("GET", "http://h/p", None)
    assert parse_qsl(query, strict_parsing=True) == [("id", NASTY), ("a", "é"), ("u", "u"), ("k", "0")]
    assert fill(method="get", body={"u": "${username}"}).url == "http://h/?u=u"
    assert fill(method="get").url == "http://h/"


def test_a_path() -> None:
    url = fill(NASTY, url="http://h/users/${clientid}/x-${username}").url
    assert url.startswith("http://h/users/a%2F..%2Fb%3Fx%3D1%26y%23z%22")
    assert url.endswith("%24%7Busername%7D/x-u")
    assert url.isascii()
    assert fill("..", url="http://h/u/x${clientid}").url == "http://h/u/x.."


@pytest.mark.parametrize("client_id", ["", ".", ".."])
def test_what_would_change_the_path_goes_nowhere(client_id: str) -> None:
    with pytest.raises(Unfit, match="a URL's path cannot contain"):
        fill(client_id, url="http://h/users/${clientid}/rights")
    assert fill(client_id, url="http://h/?u=${clientid}").url == f"http://h/?u={client_id}"


def test_two_that_become_dots_together() -> None:
    with pytest.raises(Unfit):
        fill(".", ".", url="http://h/a/${clientid}${username}/b")


def test_every_word_has_a_value() -> None:
    assert set(client_values(ClientInfo("c"))) == set(CLIENT_WORDS)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "http://${clientid}.example/"}, "host name cannot depend"),
        ({"url": "http://h/${who}"}, r"\$\{who\} is unknown; there are \$\{clientid\}, "),
        ({"body": {"p": "${password}"}}, r"\$\{password\} is unknown"),
        ({"url": "ftp://h/"}, "not an http or https URL"),
        ({"url": "h/x"}, "not an http or https URL"),
        ({"url": "http://u:p@h/"}, "credentials into headers"),
        ({"url": "http://h:99999/"}, "Port out of range"),
        ({"url": "http://h/a b"}, "percent-encoded"),
        ({"url": "http://h/é"}, "percent-encoded"),
        ({"url": "http://h/#x"}, "not an http or https URL"),
        ({"url": 3}, "not an http or https URL"),
    ],
)
def test_what_cannot_be_a_template(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RequestTemplate(**settings)
