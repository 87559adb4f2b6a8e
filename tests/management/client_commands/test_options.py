"""From options to settings: what is sent is looked at in the broker, what is wrong in the words of the command."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trunkline.client.client import Client
from trunkline.client.session_client import SessionClient
from trunkline.management.cli import cli
from trunkline.management.client_commands.options import (
    ClientCommand,
    ConnectionOptions,
    connecting,
    connection_options,
)
from trunkline.management.client_commands.property_options import GivenProperties, property_option
from trunkline.mqtt.versions import Version

made: list[ConnectionOptions] = []


@click.command(cls=ClientCommand)
@property_option("connect", "publish", "disconnect", "will")
@connection_options
def probe(properties: GivenProperties, **options: object) -> None:
    made.append(connecting(options, properties))


def given(words: str, environ: dict[str, str] | None = None) -> ConnectionOptions:
    made.clear()
    result = CliRunner().invoke(probe, words.split(), env=environ, catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "")
    return made[0]


def refused(words: str, environ: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(probe, words.split(), env=environ, catch_exceptions=False)
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr


def test_nothing_given() -> None:
    settings = given("").settings
    assert settings.url == "mqtt://localhost"
    assert settings.version is Version.V5


def test_where_to_connect() -> None:
    assert given("-h h -p 99 -u n").settings.url == "mqtt://n@h:99"
    assert given("--unix /run/s").settings.url == "unix:///run/s"
    assert given("--url wss://u@h:4/mq").settings.url == "wss://u@h:4/mq"
    assert given("-L mqtt://h/a/b%20c -p 5").settings.url == "mqtt://h:5"
    assert given("-L mqtts://h/a/b%20c?keep_alive=7").topic == "a/b c"
    assert given("-L mqtts://h/a?keep_alive=7").settings.keep_alive == 7
    assert given("-L ws://h/a").topic is None


@pytest.mark.parametrize(
    ("words", "url"),
    [
        ("--tls", "mqtts://localhost"),
        ("--tls-use-os-certs -p 1", "mqtts://localhost:1"),
        ("--cafile ca.pem", "mqtts://localhost"),
        ("--insecure", "mqtts://localhost"),
        ("-p 8883", "mqtts://localhost"),
        ("--url ws://h --cafile ca.pem", "wss://h/mqtt"),
        ("--url wss://h --cafile ca.pem", "wss://h/mqtt"),
    ],
)
def test_what_means_tls(words: str, url: str) -> None:
    settings = given(words).settings
    assert settings.is_encrypted
    assert settings.url == url.removesuffix("/mqtt")


def test_what_of_a_certificate_is_verified() -> None:
    assert given("--tls").settings.verify
    insecure, careless = given("--insecure").settings, given("--no-verify").settings
    assert (insecure.verify, insecure.verify_name) == (True, False)
    assert careless.verify is False


@pytest.mark.parametrize(
    ("word", "version"),
    [("5", "5.0"), ("mqttv5", "5.0"), ("311", "3.1.1"), ("mqttv311", "3.1.1"), ("3.1.1", "3.1.1"), ("31", "3.1")],
)
def test_versions(word: str, version: str) -> None:
    assert str(given(f"-V {word}").settings.version) == version


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "mqtt.toml"
    file.write_text('host = "file"\nport = 1\nkeep_alive = 1\nusername = "file"\n')
    environ = {"TRUNKLINE_MQTT_PORT": "2", "TRUNKLINE_MQTT_KEEP_ALIVE": "2", "TRUNKLINE_MQTT_USERNAME": "environment"}
    settings = given(f"--settings {file} -L mqtt://url -k 4", environ).settings
    assert (settings.host, settings.port, settings.keep_alive) == ("url", None, 4)
    assert settings.username == "environment"


def test_passwords(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\n")
    environ = {"TRUNKLINE_MQTT_PASSWORD": "from environment"}
    assert given("-u n", environ).settings.read_password() == b"from environment"
    assert given(f"-u n --password-file {file}", environ).settings.read_password() == b"from file"
    in_file = {"TRUNKLINE_MQTT_PASSWORD_FILE": str(file)}
    assert given("-u n -P own", in_file).settings.read_password() == b"own"
    assert "exclu" not in refused(f"-u n -P secret --password-file {file}")
    assert "secret" not in refused(f"-u n -P secret --password-file {file} -p 0")
    assert "secret" not in refused("--url mqtt://u:secret@h:x/")


def test_sessions() -> None:
    assert isinstance(given("").client(), SessionClient)
    assert not given("").keeps_session
    assert given("").settings.session_expiry == 300
    kept = given("-c -i x")
    assert (kept.settings.clean_start, kept.settings.session_expiry, kept.keeps_session) == (False, 0xFFFF_FFFF, True)
    assert given("-c -i x -x 60").settings.session_expiry == 60
    for never in ("-1", "∞", "4294967295", "never"):
        assert given(f"-x {never}").settings.session_expiry == 0xFFFF_FFFF
    assert given("-x 60").keeps_session
    assert isinstance(given("-x 0").client(), Client)
    assert isinstance(given("-V 311").client(), Client)
    assert isinstance(given("-V 311 -c -i x").client(), SessionClient)
    assert re.fullmatch(r"dev-\d+", given("-I dev-").settings.client_id)


def test_wills() -> None:
    words = "--will-topic t --will-payload p --will-qos 1 --will-retain -D will will-delay-interval 9"
    will = given(f"{words} -D will content-type x").settings.will
    assert will is not None
    assert (will.topic, will.payload, will.qos, will.retain, will.delay) == ("t", "p", 1, True, 9)
    assert will.properties == {"content_type": "x"}
    assert "--will-topic" in refused("--will-payload p")


def test_properties_of_connect() -> None:
    words = "receive-maximum 7", "maximum-packet-size 99", "topic-alias-maximum 3", "user-property a b"
    settings = given(" ".join(f"-D connect {each}" for each in words)).settings
    assert (settings.receive_maximum, settings.max_packet_size, settings.topic_aliases_in) == (7, 99, 3)
    assert settings.user_properties == (("a", "b"),)
    assert given("-D connect request-problem-information 0").settings.request_problem_information is False


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-p 99999", "trunkline: -p/--port: 99999: accepted is a port"),
        ("-k x", 'trunkline: -k/--keepalive: "x": accepted is whole seconds'),
        ("-V 4", 'trunkline: -V/--protocol-version: "4": accepted is "5.0", "3.1.1" or "3.1"'),
        ("-x soon", 'trunkline: -x/--session-expiry-interval: "soon"'),
        ("-M 0", "trunkline: -M: 0"),
        ("-D connect receive-maximum 0", "trunkline: -D connect receive-maximum: 0"),
        ("-L http://h", "trunkline: --url: http is not a scheme: the form is"),
        ("-L mqtt://h?keep_alive=x", "trunkline: --url: keep_alive: "),
        ("--settings none.toml", "trunkline: none.toml: cannot be read: No such file"),
        ("--key k.pem", "key needs certificate"),
        ("-c", "-c needs a client id"),
        ("-i a -I b", "exclude each other"),
        ("--unix /s --tls", "a Unix socket has no TLS"),
        ("-V 311 -D publish content-type x", "-D needs MQTT 5.0"),
        ("-D publish content-type", "give PACKET NAME VALUE"),
        ("-dD publish content-type x", "give PACKET NAME VALUE"),
        ("-P only -V 311", "no password without a user name"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_command(words: str, text: str) -> None:
    assert text in refused(words)


def test_a_variable_that_is_wrong_is_named() -> None:
    assert "variable TRUNKLINE_MQTT_PORT: port: " in refused("", {"TRUNKLINE_MQTT_PORT": "x"})


def test_letters_mean_what_they_mean_to_mosquitto() -> None:
    help_text = CliRunner().invoke(cli, ["pub", "--help"]).output
    for letter, long in {
        "-h": "--host",
        "-p": "--port",
        "-u": "--username",
        "-P": "--pw",
        "-i": "--id",
        "-I": "--id-prefix",
        "-k": "--keepalive",
        "-c": "--disable-clean-session",
        "-V": "--protocol-version",
        "-L": "--url",
        "-D": "--property",
        "-t": "--topic",
        "-m": "--message",
        "-f": "--file",
        "-l": "--stdin-line",
        "-s": "--stdin-file",
        "-n": "--null-message",
        "-q": "--qos",
        "-r": "--retain",
        "-d": "--debug",
    }.items():
        assert f"{letter}, {long}" in help_text
