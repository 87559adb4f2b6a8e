"""Options are understood, and what is wrong with them is said by name."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from trunkline.analytics.options import OptionError, by_option
from trunkline.analytics.sinks.settings import SinkError, SinkSettings, parse


def test_without_options_everything_has_its_default() -> None:
    assert parse({}) == SinkSettings()
    assert parse({}).address == ("127.0.0.1", 1883)
    assert parse({"tls": "true"}).address[1] == 8883


def test_names_are_taken_in_any_case_and_sparks_own_are_left_alone() -> None:
    settings = parse({"MAXINFLIGHT": "9", "queryName": "q", "checkpointLocation": "/c", "clientidprefix": "jobs"})
    assert settings == SinkSettings(max_inflight=9, client_id_prefix="jobs")


def test_each_option_becomes_its_setting() -> None:
    texts = dict.fromkeys(by_option(SinkSettings), "x") | {
        "port": "1884",
        "tls": "true",
        "columns": "a, b",
        "qos": "0",
        "retain": "TRUE",
        "escape": "true",
        "invalid": "skip",
        "maxInflight": "10",
        "timeout": "1m",
        "retryFor": "1h",
    }
    for left_out in ("passwordFile", "passwordEnv", "payload"):
        del texts[left_out]
    assert parse(texts) == SinkSettings(
        host="x",
        port=1884,
        tls=True,
        ca="x",
        cert="x",
        key="x",
        username="x",
        password=SecretStr("x"),
        client_id_prefix="x",
        topic="x",
        columns=("a", "b"),
        qos=0,
        retain=True,
        id="x",
        escape=True,
        invalid="skip",
        max_inflight=10,
        timeout=60.0,
        retry_for=3600.0,
        query="x",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"qos": "2"}, "option qos='2': expected a whole number, 0 to 1"),
        ({"port": "0"}, "option port='0': expected a whole number, 1 to 65535"),
        ({"port": "mqtt"}, "option port"),
        ({"retain": "maybe"}, "option retain='maybe': expected true or false"),
        ({"timeout": "0"}, "option timeout"),
        ({"timeout": "soon"}, "option timeout"),
        ({"maxInflight": "65536"}, "option maxInflight"),
        ({"columns": ","}, "option columns"),
        ({"host": " "}, "option host"),
        ({"invalid": "ignore"}, 'option invalid=\'ignore\': expected "fail" or "skip"'),
        ({"maxInfligth": "1"}, "unknown option maxInfligth; did you mean maxInflight\\?"),
        ({"xyz": "1"}, "unknown option xyz; there are host"),
        ({"password": "a", "passwordEnv": "b"}, "one of the options password, passwordFile and passwordEnv"),
        ({"payload": "a", "columns": "b"}, "one of the options payload and columns"),
        ({"ca": "a"}, "with tls=true only"),
        ({"tls": "true", "key": "a"}, "option cert"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(options)


def test_a_password_is_found_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("from a file\n", encoding="utf-8")
    monkeypatch.setenv("THE_PASSWORD", "from a variable")
    assert parse({}).secret() is None
    assert parse({"passwordFile": str(tmp_path / "password")}).secret() == b"from a file"
    assert parse({"passwordEnv": "THE_PASSWORD"}).secret() == b"from a variable"
    given = parse({"password": "hunter2"})
    assert given.secret() == b"hunter2"
    assert "hunter2" not in repr(given)
    with pytest.raises(SinkError, match="passwordFile .*missing: No such file"):
        parse({"passwordFile": str(tmp_path / "missing")}).secret()
    with pytest.raises(SinkError, match="passwordEnv NOT_SET"):
        parse({"passwordEnv": "NOT_SET"}).secret()
