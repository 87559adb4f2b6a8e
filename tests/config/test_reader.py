from pathlib import Path

import pytest

from tests.config.problems import problems, problems_of
from trunkline.config.addresses import PORTS
from trunkline.config.config import LISTS, Config
from trunkline.config.errors import ConfigError
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.reader import Override, load
from trunkline.config.units import accepted


def test_nothing_given_is_the_defaults() -> None:
    assert load(None, {}).config == Config()
    assert [listener.url for listener in Config().listeners] == ["tcp://127.0.0.1:1883"]


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_MQTT__MAX_QOS", "1")
    assert load().config.mqtt.max_qos == 1


def test_flags_win_over_variables_and_those_over_the_file(file: Path) -> None:
    file.write_text('[log]\nlevel = "error"\nformat = "json"\n[mqtt]\nmax_qos = 0\n')
    environ = {"TRUNKLINE_LOG__LEVEL": "warning", "TRUNKLINE_MQTT__MAX_QOS": "1"}
    loaded = load(file, environ, {"log.level": Override("--log-level", "debug")})
    assert (loaded.config.log.level, loaded.config.log.format, loaded.config.mqtt.max_qos) == ("debug", "json", 1)
    assert loaded.sources == {
        "log.level": "flag --log-level",
        "log.format": str(file),
        "mqtt.max_qos": "variable TRUNKLINE_MQTT__MAX_QOS",
    }


def test_relative_paths_start_at_the_file(file: Path) -> None:
    (file.parent / "users").touch()
    file.write_text('[auth]\npassword_file = "users"\n')
    assert load(file, {}).config.auth.password_file == file.parent / "users"


def test_paths_in_variables_start_at_the_working_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "rules").touch()
    monkeypatch.chdir(file.parent)
    assert load(None, {"TRUNKLINE_ACL__FILE": "rules"}).config.acl.file == Path("rules")


def test_all_problems_at_once_each_with_its_source(file: Path) -> None:
    file.write_text(
        'foo = 1\nnode = 3\nlisteners = [{ url = "udp://x", backlg = 1 }, "tcp://0.0.0.0:1"]\n'
        '[mqtt]\nmax_qso = 1\nmax_inflight = 2\nallow_anonymous = true\nretain_available = "yes"\n'
        '[acl]\nfile = "nope"\n'
    )
    environ = {"TRUNKLINE_MQTT__MAX_QOS": "3", "TRUNKLINE_MQTT__MAX_QOSS": "1", "TRUNKLINE_LOG_LEVEL": "debug"}
    found = problems(file, environ, {"log.level": Override("--log-level", "loud")})
    url, schemes = accepted(ListenerSettings.model_fields["url"]), ", ".join(PORTS)
    exposed = next(line for line in found if "other machines can reach" in line)
    assert exposed.startswith(f"{file}: listeners[1]: other machines can reach tcp://0.0.0.0:1 without logging in")
    found.remove(exposed)
    assert sorted(found) == sorted(
        [
            f"{file}: foo: unknown section; known are {', '.join(Config.model_fields)}",
            f"{file}: node: 3: accepted is a table, [node]",
            f'{file}: listeners[0].url: "udp://x": udp is none of {schemes}; accepted is {url}',
            f"{file}: listeners[0].backlg: unknown key; did you mean backlog?",
            f"{file}: mqtt.max_qso: unknown key; did you mean max_qos?",
            f"{file}: mqtt.max_inflight: unknown key; did you mean session.max_inflight?",
            f"{file}: mqtt.allow_anonymous: unknown key; did you mean auth.allow_anonymous?",
            f'{file}: mqtt.retain_available: "yes": accepted is true or false',
            "variable TRUNKLINE_MQTT__MAX_QOS: mqtt.max_qos: 3: accepted is a whole number, 0 to 2",
            "variable TRUNKLINE_MQTT__MAX_QOSS: unknown key; did you mean TRUNKLINE_MQTT__MAX_QOS?",
            "variable TRUNKLINE_LOG_LEVEL: sets nothing; did you mean TRUNKLINE_LOG__LEVEL?",
            'flag --log-level: log.level: "loud": accepted is "debug" or "info" or "warning" or "error"',
        ]
    )


@pytest.mark.parametrize(
    "line", ['listeners = ["tcp://127.0.0.1:1883"]', "session.max_inflight = 2", "plugins.bans = {}"]
)
def test_what_stands_below_the_head_of_another_section_is_told_where_it_belongs(tmp_path: Path, line: str) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text(f'[acl]\nno_match = "deny"\n{line}\n')
    (said,) = problems(file, {}, {})
    key = line.partition(" ")[0].partition(".")[0]
    assert said == f"{file}: acl.{key}: unknown key; {key} is none of [acl]: write it above the first [section]"


def test_a_missing_file_is_a_problem(file: Path) -> None:
    file.write_text('[auth]\nscram_file = "gone"\n[log]\nfile = "no/where.log"\n')
    assert problems(file) == [
        f"{file}: auth.scram_file: no file {file.parent / 'gone'}",
        f"{file}: log.file: no folder {file.parent / 'no'}",
    ]


def test_configuration_file_that_cannot_be_read(file: Path) -> None:
    assert problems(file) == [f"{file}: cannot be read: No such file or directory"]
    file.write_text("mqtt = {\n")
    (line,) = problems(file)
    assert line.startswith(f"{file}: is not TOML: ")
    file.write_bytes(b"\xff")
    assert problems(file) == [f"{file}: is not UTF-8 text"]


@pytest.mark.parametrize("name", LISTS)
def test_a_table_of_what_is_a_list_is_told_how_it_begins(file: Path, name: str) -> None:
    file.write_text(f'{name} = ["tcp://127.0.0.1:1"]\n[{name}.tls]\ncert = "a"\n')
    (line,) = problems(file)
    assert line.endswith(f"; {name} is a list, in which each table begins with [[{name}]]")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "[mqtt]\nmax_qos = " + "9" * 5000])
def test_a_configuration_file_that_cannot_be_parsed(file: Path, text: str) -> None:
    file.write_text(text)
    (line,) = problems(file)
    assert line.startswith(f"{file}: is not TOML: ")


def test_bytes_that_are_no_text(file: Path) -> None:
    """From the environment and the command line they come as surrogates."""
    environ = {"TRUNKLINE_NODE__NAME": "a\udcff"}
    overrides = {"log.format": Override("--log-format", "\udcfe")}
    with pytest.raises(ConfigError) as caught:
        load(None, environ, overrides)
    assert sorted(map(str, caught.value.problems)) == [
        "flag --log-format: is not UTF-8 text",
        "variable TRUNKLINE_NODE__NAME: is not UTF-8 text",
    ]


def test_a_variable_that_is_too_deep() -> None:
    (line,) = problems(None, {"TRUNKLINE_LISTENERS": "[" * 5000 + "]" * 5000})
    assert line.startswith("variable TRUNKLINE_LISTENERS: ")


def test_a_path_that_no_file_can_have(file: Path) -> None:
    file.write_text('[log]\nfile = "a\\u0000b"\n[control]\npath = "a\\u0000b"\n')
    assert [line.split(": ")[1] for line in problems(file)] == ["log.file", "control.path"]


def test_variables_that_are_not_meant_for_the_broker_are_let_be() -> None:
    service = {"TRUNKLINE_PORT": "tcp://10.0.0.1:1883", "TRUNKLINE_SERVICE_HOST": "10.0.0.1", "OTHER__KEY": "1"}
    assert load(None, {**service, "TRUNKLINE_CONFIG": "x.toml"}).config == Config()
    assert problems(None, {"TRUNKLINE_LISTENER": "tcp://127.0.0.1:1"}) == [
        "variable TRUNKLINE_LISTENER: unknown key; did you mean TRUNKLINE_LISTENERS?"
    ]


def test_values_of_unknown_keys_are_not_repeated(file: Path) -> None:
    file.write_text('[auth]\npassword = "hunter2"\n')
    assert "hunter2" not in "".join(problems(file, {"TRUNKLINE_AUTH__PASSWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"listeners": 3}, "listeners"),
        ({"listeners": [3]}, "listeners[0]"),
        ({"listeners": [{"url": "tcp://127.0.0.1:1", "access_rules": ["x"]}]}, "listeners[0].access_rules[0]"),
        ({"session": {"priorities": {"a/b": 0}}}, 'session.priorities."a/b"'),
        ({"mqtt": {"max_packet_size": "1GiB"}}, "mqtt.max_packet_size"),
        ({"mqtt": {"max_qos": True}}, "mqtt.max_qos"),
        ({"auth": {"allow_anonymous": "maybe"}, "listeners": ["tcp://0.0.0.0:1"]}, "auth.allow_anonymous"),
    ],
)
def test_one_problem(table: dict[str, object], key: str) -> None:
    (line,) = problems_of(table)
    assert line.startswith(f"{key}: ")
    assert "accepted is " in line


def test_a_validator_says_in_its_own_words_what_is_wrong() -> None:
    (line,) = problems_of({"session": {"priorities": {"a/#/b": 1}}})
    assert line.startswith("session.priorities.\"a/#/b\": '#' is not alone")


def test_a_network_that_is_none_is_told_apart_from_its_list() -> None:
    (line,) = problems_of(
        {"listeners": [{"url": "tcp://127.0.0.1:1", "access_rules": ["deny 10.0.0.0/33", "deny ::1"]}]}
    )
    assert line.startswith('listeners[0].access_rules[0]: "deny 10.0.0.0/33": accepted is ')


def test_some_sections_alone(file: Path) -> None:
    file.write_text("[mqtt]\nmax_qos = 3\n[node]\nname = 'plant'\n[plugins.nosuch]\n[nosuch]\n")
    environ = {"TRUNKLINE_MQTT__MAX_QOS": "4", "TRUNKLINE_CONTROL__ENABLED": "no", "TRUNKLINE_PLUGINS__NOSUCH__X": "1"}
    loaded = load(file, environ, sections=("node", "control"))
    assert (loaded.config.node.name, loaded.config.control.enabled) == ("plant", False)
    assert sorted(loaded.sources) == ["control.enabled", "node.name"]


def test_a_section_that_is_near_none_is_told_which_there_are() -> None:
    (problem,) = problems_of({"xyzzy": {}})
    assert problem.startswith("xyzzy: unknown section; known are node, listeners, mqtt, ")
    assert problems_of({"sesion": {}}) == ["sesion: unknown section; did you mean session?"]


@pytest.mark.parametrize("key", ["host", "port", "bind_address"])
def test_a_listener_has_a_url(key: str) -> None:
    (problem,) = problems_of({"listeners": [{"url": "tcp://127.0.0.1:0", key: 1883}]})
    assert problem == f'listeners[0].{key}: unknown key; a listener has a URL: url = "tcp://HOST:PORT"'


def test_a_folder_is_no_file(file: Path) -> None:
    file.write_text(f"[auth]\npassword_file = {str(file.parent)!r}\n")
    assert problems(file) == [f"{file}: auth.password_file: {file.parent} is a folder"]


def test_files_of_a_listener_stand_in_the_folder_of_the_configuration(file: Path) -> None:
    text = '[[listeners]]\nurl = "tcp://0.0.0.0:1"\npassword_file = "users"\n'
    file.write_text(text)
    (problem,) = problems(file)
    assert problem == f"{file}: listeners[0].password_file: no file {file.parent / 'users'}"
    (file.parent / "users").write_text("")
    config = load(file, {}).config
    assert config.listeners[0].password_file == file.parent / "users"
    assert config.authenticates(config.listeners[0])
    assert not config.authenticates()
    assert config.allows_anonymous()
    assert not config.allows_anonymous(config.listeners[0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('listeners = "tcp://a"', 'listeners: "tcp://a": accepted is a list'),
        ('[listeners]\nurl = "tcp://a"', 'listeners: { url = "tcp://a" }: accepted is a list'),
        ("[sys]\ninterval = 1979-05-27", "sys.interval: 1979-05-27: accepted is seconds"),
        ("[mqtt]\nkeep_alive_multiplier = nan", "mqtt.keep_alive_multiplier: nan: accepted is a number"),
        ("[mqtt]\nconnect_timeout = inf", "mqtt.connect_timeout: inf: accepted is seconds"),
        ("[log]\nfile = {a = 1}", "log.file: { a = 1 }: accepted is a file's path"),
        ('[overload]\nmemory_high = "120%"', 'overload.memory_high: "120%": a share is 100% at most'),
        ('[mqtt]\nresponse_information = "a\\u0000"', 'mqtt.response_information: "a\\u0000": a string holds U+0000'),
        ('[[listeners]]\nversions = ["4"]', 'listeners[0].versions[0]: "4": accepted is "3.1"'),
        ("[[listeners]]\nversions = []", "listeners[0].versions: []: accepted is a list of 1 or more entries"),
    ],
)
def test_a_value_is_shown_once_and_as_it_is_written(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    (found,) = problems(file)
    assert found.startswith(f"{file}: {problem}")


@pytest.mark.parametrize("section", ["session", "mqtt", "rate"])
def test_a_zone_has_no_sections(file: Path, section: str) -> None:
    file.write_text(f"[zones.far.{section}]\nmax_inflight = 1\n")
    assert problems(file) == [
        f"{file}: zones.far.{section}: unknown key; a zone has keys of [{section}] itself, in [zones.NAME]"
    ]


def test_a_variable_that_is_near_to_none_suggests_none() -> None:
    assert problems(None, {"TRUNKLINE_SESION__X": "1"}) == ["variable TRUNKLINE_SESION__X: unknown key"]
    assert problems(None, {"TRUNKLINE_SESION__MAX_INFLIGT": "1"}) == [
        "variable TRUNKLINE_SESION__MAX_INFLIGT: unknown key; did you mean TRUNKLINE_SESSION__MAX_INFLIGHT?"
    ]
