"""What `trunkline journal show` prints."""

import json
from pathlib import Path

from tests.management.journals import show, write
from trunkline.management.journal_file import (
    Opened,
    Passed,
)


def test_a_line_for_each_thing_that_happened(journal: Path) -> None:
    shown = show(journal)
    assert shown.exit_code == 0
    assert shown.output.splitlines() == [
        "    0.000000  #4 old           == there already, from 127.0.0.1:4711",
        "    0.250000  #5 ann           == opened in process",
        "    0.500000  #5 ann           -> CONNECT version=5.0 client_id=ann clean_start username=ann password='***'",
        "    0.500000  #5 ann           <- CONNACK",
        "    1.000000  #5 ann           -> PUBLISH t/1 id=3 qos=1 {topic_alias: 2} '\\xff\\x00'",
        "    1.000000  #5 ann           -> PUBLISH t/1 {topic_alias: 2} 'hello'",
        "    1.500000  #5 ann           <- PUBACK id=3 NO_MATCHING_SUBSCRIBERS",
        "    2.000000  #4 old           <- PUBLISH t/1 'hello'",
        "    2.000000  #5 ann           -> PUBACK that cannot be decoded: 40 01 00",
        "    2.500000  #5 ann           == closed by the broker",
        " 3600.000000  #4 old           == closed by the client: connection lost",
        " 3600.000000                   == the broker is killed, and keeps its sessions and its retained messages",
    ]


def test_one_client_alone(journal: Path) -> None:
    lines = show(journal, "--client", "old").output.splitlines()
    assert len(lines) == 4
    assert all("#4 old" in line for line in lines[:-1])
    assert len(show(journal, "--client", "nobody").output.splitlines()) == 1


def test_as_json(journal: Path) -> None:
    records = [json.loads(line) for line in show(journal, "--json").output.splitlines()]
    assert records[1] == {
        "at": 0.25,
        "time": "1970-01-01T00:16:40.250000+00:00",
        "connection": 5,
        "client": "ann",
        "event": "opened",
        "peer": None,
        "whole": True,
    }
    assert records[2]["masked"]
    assert records[4] == {
        "at": 1.0,
        "time": "1970-01-01T00:16:41.000000+00:00",
        "connection": 5,
        "client": "ann",
        "event": "packet",
        "from_client": True,
        "masked": False,
        "type": "PUBLISH",
        "topic": "t/1",
        "id": 3,
        "qos": 1,
        "properties": {"topic_alias": 2},
        "payload_base64": "/wA=",
    }
    assert records[5]["payload"] == "hello"
    assert records[8]["type"] == "PUBACK"
    assert records[8]["data"] == "@\x01\x00"
    assert records[-2]["by"] == "client"
    assert records[-1]["event"] == "ending"


def test_a_packet_that_might_hold_a_secret_is_not_shown(tmp_path: Path) -> None:
    path = write(tmp_path / "j", Opened(0.0, 1, "", 0, None, True), Passed(0.0, 1, True, b"\x10\x05", masked=True))
    assert "#1 ?             -> CONNECT that cannot be decoded, and may hold secrets" in show(path).output
