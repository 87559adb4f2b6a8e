"""What `trunkline journal show` prints."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.conformance import raw
from trunkline.management.cli import cli
from trunkline.management.journal_file import (
    BrokerEnding,
    Closed,
    Entry,
    JournalHeader,
    Opened,
    Passed,
    pack_entry,
    pack_header,
)


def show(path: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["journal", "show", str(path), *options])


def write(path: Path, *entries: Entry) -> Path:
    path.write_bytes(b"".join([pack_header(JournalHeader(1000.0, "1.2.3")), *map(pack_entry, entries)]))
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two clients; one of them was there before."""
    return write(
        tmp_path / "journal",
        Opened(0.0, 4, "old", 4, ("127.0.0.1", 4711), whole=False),
        Opened(0.25, 5, "", 0, None, whole=True),
        Passed(0.5, 5, True, raw.connect("ann", username="ann", password="***"), masked=True),
        Passed(0.5, 5, False, raw.packet(raw.CONNACK, b"\0\0\0"), masked=False),
        Passed(1.0, 5, True, raw.publish("t/1", b"\xff\0", qos=1, packet_id=3, properties=raw.topic_alias(2)), False),
        Passed(1.0, 5, True, raw.publish("", b"hello", properties=raw.topic_alias(2)), masked=False),
        Passed(1.5, 5, False, raw.ack(raw.PUBACK, 3, 0x10), masked=False),
        Passed(2.0, 4, False, raw.publish("t/1", b"hello", version=4), masked=False),
        Passed(2.0, 5, True, raw.packet(raw.PUBACK, b"\0"), masked=False),
        Closed(2.5, 5, "broker", ""),
        Closed(3600.0, 4, "client", "connection lost"),
        BrokerEnding(3600.0, False, True, True),
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


def test_packets_topics_and_times_can_be_chosen(journal: Path) -> None:
    def shown(*options: str) -> list[str]:
        return [line.split()[3] + line.split()[4] for line in show(journal, *options).output.splitlines()]

    assert shown("--packet", "publish") == ["->PUBLISH", "->PUBLISH", "<-PUBLISH"]
    assert shown("--packet", "CONNECT", "--packet", "CONNACK") == ["->CONNECT", "<-CONNACK"]
    assert shown("--topic", "t/+", "--client", "ann") == ["->PUBLISH", "->PUBLISH"]
    assert shown("--topic", "u") == []
    assert shown("--after", "0.5", "--before", "1.0") == ["->CONNECT", "<-CONNACK", "->PUBLISH", "->PUBLISH"]
    for wrong, text in ((("--packet", "PUBAK"), "no packet is called"), (("--topic", "a/#/b"), "'#' is not alone")):
        result = show(journal, *wrong)
        assert (result.exit_code, text in result.output) == (2, True)


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


def test_what_cannot_be_shown_is_told_in_a_line(tmp_path: Path) -> None:
    missing = show(tmp_path / "missing")
    assert missing.exit_code == 1
    assert missing.stderr == f"trunkline: {tmp_path / 'missing'}: No such file or directory\n"
    other = tmp_path / "other"
    other.write_text("something else")
    assert show(other).exit_code == 1
    assert show(other).stderr == f"trunkline: {other} is not a journal of Trunkline\n"
