"""What a CONNECT is answered with, without anybody around it."""

import re
from typing import Any

import pytest

from trunkline.broker.connection.negotiation import Rejected, negotiate
from trunkline.config.config import Config
from trunkline.config.errors import ConfigError
from trunkline.config.reader import from_mapping
from trunkline.mqtt.packets import Connect, Will
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version


def config(**mqtt: Any) -> Config:
    return from_mapping({"mqtt": mqtt})


def reason(connect: Connect, **mqtt: Any) -> Reason:
    with pytest.raises(Rejected) as rejected:
        negotiate(connect, config(**mqtt))
    return rejected.value.reason


def test_a_client_is_told_what_differs_from_what_silence_would_mean() -> None:
    told = negotiate(Connect("a"), config(receive_maximum=65_535, max_topic_alias=0)).connack
    assert told == {"maximum_packet_size": 10_485_760}
    told = negotiate(Connect("a"), config(max_qos=1, retain_available=False, wildcard_subscriptions=False)).connack
    assert (told["maximum_qos"], told["retain_available"], told["wildcard_subscription_available"]) == (1, 0, 0)
    assert negotiate(Connect("a"), config(shared_subscriptions=False)).connack["shared_subscription_available"] == 0


def test_3x_is_told_nothing() -> None:
    assert negotiate(Connect("a", version=Version.V311), config(server_keep_alive=5)).connack == {}


@pytest.mark.parametrize(
    ("asked", "settings", "kept"),
    [
        (60, {}, 60),
        (0, {}, 0),
        (60, {"server_keep_alive": 30}, 30),
        (60, {"max_keep_alive": 100}, 60),
        (200, {"max_keep_alive": 100}, 100),
        (0, {"max_keep_alive": 100}, 100),
    ],
)
def test_keep_alive(asked: int, settings: dict[str, int], kept: int) -> None:
    terms = negotiate(Connect("a", keep_alive=asked), config(**settings))
    assert terms.keep_alive == kept
    assert terms.connack.get("server_keep_alive", asked) == kept
    assert negotiate(Connect("a", keep_alive=asked, version=Version.V311), config(**settings)).keep_alive == asked


def test_a_client_without_a_name_is_given_one_of_its_own() -> None:
    first, second = (negotiate(Connect(""), config()) for _ in range(2))
    assert first.client_id != second.client_id
    assert first.connack["assigned_client_identifier"] == first.client_id
    assert negotiate(Connect("", version=Version.V311), config()).client_id.startswith("auto-")


@pytest.mark.parametrize("prefix", ["", "edge/", "é" * 1000])
def test_the_name_begins_as_the_operator_wants_and_may_be_longer_than_a_clients_own(prefix: str) -> None:
    terms = negotiate(Connect(""), config(assigned_client_id_prefix=prefix, max_client_id_length=23))
    assert re.fullmatch(re.escape(prefix) + "[0-9a-f]{20}", terms.client_id)
    assert terms.connack["assigned_client_identifier"] == terms.client_id
    assert reason(Connect("a" * 24), max_client_id_length=23) == Reason.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize("key", ["assigned_client_id_prefix", "response_information", "server_reference"])
@pytest.mark.parametrize(
    ("text", "problem"),
    [("nul \0", r"U\+0000"), ("half a pair \ud800", "surrogates"), ("x" * 65_536, "longer than 65535")],
)
def test_what_could_not_be_sent_is_no_setting(key: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*{problem}"):
        config(**{key: text})


def test_when_a_client_must_bring_a_name() -> None:
    assert reason(Connect(""), allow_empty_client_id=False) is Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert reason(Connect("", version=Version.V31)) is Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert reason(Connect("", version=Version.V311, clean_start=False)) is Reason.CLIENT_IDENTIFIER_NOT_VALID


def test_names_are_measured_in_bytes() -> None:
    assert negotiate(Connect("é" * 16), config(max_client_id_length=32)).client_id == "é" * 16
    assert reason(Connect("é" * 17), max_client_id_length=32) is Reason.CLIENT_IDENTIFIER_NOT_VALID


def test_wills_that_cannot_be_kept() -> None:
    assert reason(Connect("a", will=Will("t", b"", qos=2)), max_qos=1) is Reason.QOS_NOT_SUPPORTED
    assert reason(Connect("a", will=Will("t", b"", retain=True)), retain_available=False) is Reason.RETAIN_NOT_SUPPORTED


def test_a_session_expiry_beyond_the_maximum_is_told() -> None:
    bounded = from_mapping({"session": {"max_expiry_interval": 100}})
    for asked, told in ((50, None), (100, None), (101, 100)):
        terms = negotiate(Connect("a", properties={"session_expiry_interval": asked}), bounded)
        assert terms.connack.get("session_expiry_interval") == told


def test_response_information_comes_to_those_who_ask() -> None:
    asking = Connect("a", properties={"request_response_information": 1})
    assert negotiate(asking, config(response_information="replies/")).connack["response_information"] == "replies/"
    assert "response_information" not in negotiate(Connect("a"), config(response_information="replies/")).connack
