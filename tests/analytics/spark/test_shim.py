"""The Java home that Spark's own scripts are given."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.analytics.spark.java_scripts import java_script
from trunkline.analytics.spark.java import VECTOR_MODULE, Java, JavaError
from trunkline.analytics.spark.shim import java_home

pytestmark = pytest.mark.skipif("os.name == 'nt'", reason="a shell script")


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """It prints its arguments, a line each."""
    executable = java_script(tmp_path / "it's Java", 'printf "%s\\n" "$@"')
    return Java(executable, "named", "25.0.2", frozenset({"java.base"}))


def test_a_whole_java_is_used_as_it_is(tmp_path: Path) -> None:
    executable = java_script(tmp_path, "exit 0")
    whole = Java(executable, "named", "17", frozenset({"java.base", VECTOR_MODULE}))
    assert java_home(whole, {}) == tmp_path.resolve()


def test_the_argument_is_left_out(java: Java, tmp_path: Path) -> None:
    home = java_home(java, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    arguments = ["-cp", "a b", f"--add-modules={VECTOR_MODULE}", "", "*", '"q"']
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-cp", "a b", "", "*", '"q"']


def test_it_is_written_once(java: Java, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    home = java_home(java, environ)
    assert home.parent == tmp_path / ".cache" / "trunkline"
    script = home / "bin" / "java"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    before = script.stat().st_ino
    assert java_home(java, environ) == home
    assert script.stat().st_ino == before
    script.write_text("something else", encoding="utf-8")
    java_home(java, environ)
    assert "something else" not in script.read_text(encoding="utf-8")
    assert os.listdir(script.parent) == ["java"]


def test_the_cache_cannot_be_written(java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    home = java_home(java, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert home.is_relative_to(tmp_path / "temporary")
    assert (home / "bin" / "java").exists()


def test_where_no_shell_script_runs(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.analytics.spark.shim.os.name", "nt")
    with pytest.raises(JavaError, match=f"has no module {VECTOR_MODULE}"):
        java_home(java, {})
