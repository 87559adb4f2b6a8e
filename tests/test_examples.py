"""The README and the documentation show what is in examples/, and what the README shows works."""

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nats.servers import KINDS
from tests.nats.servers import running as nats_server

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

TESTING = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")

SHOWN = [
    shown
    for page in sorted((ROOT / "docs").glob("*.md"))
    for shown in re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
]
#: The README has the part of an example that matters.
PARTS = re.findall(r"<!-- (examples/\S+) -->\n```python\n(.*?)```", README, re.DOTALL)


#: Examples that are tests, by the plugin of pytest that they need.
TESTS = {
    "": [
        "faults_test.py",
        "restart_test.py",
        "shards_test.py",
        "test_django.py",
        "test_flask.py",
        "test_from_container.py",
        "test_greetings.py",
        "test_hook_errors.py",
        "test_paho.py",
        "test_settings.py",
        "test_time.py",
        "test_tls.py",
        "test_unittest.py",
    ],
    "asyncio": ["test_aiomqtt.py", "test_gmqtt.py"],
    "trio": ["plugin_away_test.py", "test_trio.py"],
}


def test_every_block_of_python_is_an_example() -> None:
    assert len(SHOWN) > TESTING.count("-->\n```python") == len(re.findall(r"<!-- examples/\S+ -->", TESTING))
    assert len(PARTS) == README.count("```python")


def test_every_example_that_is_a_test_is_run() -> None:
    found = {path.name for path in (ROOT / "examples").glob("*.py") if re.search("^test_|_test$", path.stem)}
    assert found == {name for names in TESTS.values() for name in names}


@pytest.mark.parametrize(("plugin", "names"), TESTS.items())
def test_examples_that_are_tests_pass(plugin: str, names: list[str], tmp_path: Path) -> None:
    """As in somebody's project, whose configuration is not ours."""
    configuration = tmp_path / "pytest.ini"
    own = {"trio": "trio_mode = true\n", "asyncio": "asyncio_default_fixture_loop_scope = function\n"}.get(plugin, "")
    configuration.write_text(f"[pytest]\nfilterwarnings = error\n{own}")
    command = [sys.executable, "-m", "pytest", "-v", "-c", str(configuration), "-p", "no:cacheprovider"]
    for other in {"trio", "asyncio", "anyio", "xdist"} - {plugin}:
        command += ["-p", f"no:{other}"]
    examples = [str(ROOT / "examples" / name) for name in names]
    command += ["--rootdir", str(ROOT), *examples]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^=+ \d+ passed in", done.stdout, re.MULTILINE), done.stdout
    passed = set(re.findall(r"^examples/(\w+\.py)::.* PASSED", done.stdout, re.MULTILINE))
    assert passed == {*names}, done.stdout


@pytest.mark.parametrize(("name", "block"), SHOWN)
def test_block_is_its_example(name: str, block: str) -> None:
    assert block == (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "block"), PARTS)
def test_block_of_the_readme_is_part_of_its_example(name: str, block: str) -> None:
    lines = [line.strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    part = [line.strip() for line in block.splitlines()]
    assert any(lines[start : start + len(part)] == part for start in range(len(lines)))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a broker that runs as the README says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", "serve", "--listen", "tcp://127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    found = next(filter(None, (re.search(r"listening on .* port (\d+)", line) for line in process.stderr)))
    yield int(found[1])
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nats_client.py", "kitchen 21.5\n"),
        ("nats_sync.py", "hello\nexample.new 0\nexample.new 1\nexample.new 2\nkitchen is warm\n"),
        ("nats_asyncio.py", "21.5\n21.5\n"),
        ("nats_service.py", "apple 0.30\nplum 404:no such fruit\n[('price', 2, 1), ('count', 0, 0)]\n"),
    ],
)
def test_nats(tmp_path: Path, name: str, expected: str) -> None:
    with nats_server(KINDS[0], tmp_path, "-js", "-sd", str(tmp_path / "js")) as server:
        command = [sys.executable, str(ROOT / "examples" / name), server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == expected


def test_nats_key_value(tmp_path: Path) -> None:
    with nats_server(KINDS[0], tmp_path, "-js", "-sd", str(tmp_path / "js")) as server:
        command = [sys.executable, str(ROOT / "examples" / "nats_key_value.py"), server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == ("somebody was faster\nkitchen is off\nnow kitchen off\nthen kitchen DELETE\nblack 1000000\n")


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto_sub (Debian: mosquitto-clients)")
def test_mosquittos_commands(port: int) -> None:
    base = ["-h", "127.0.0.1", "-p", str(port)]
    subscriber = subprocess.Popen(
        ["mosquitto_sub", *base, "-t", "greetings/#", "-v", "-C", "1", "-W", "20"], stdout=subprocess.PIPE, text=True
    )
    # retained, because nobody knows when the other one has subscribed
    subprocess.run(["mosquitto_pub", *base, "-t", "greetings/world", "-m", "hello", "-r"], timeout=120, check=True)
    out, _ = subscriber.communicate(timeout=120)
    assert out == "greetings/world hello\n"


def test_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "virtual_time.py"), run_name="__main__")
    assert capsys.readouterr().out == "keep_alive_timeout after 5400 s\n"
