"""Every package that an installation brings has been looked at: .ci/dependencies.toml."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REVIEWED: dict[str, Any] = tomllib.loads((ROOT / ".ci" / "dependencies.toml").read_text(encoding="utf-8"))["packages"]
EXTRAS = ["core", *PROJECT["optional-dependencies"]]


def required(extra: str) -> Iterator[str]:
    """What this project itself asks for."""
    for text in PROJECT["dependencies"] if extra == "core" else PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                yield from required(other)
        else:
            yield text


def installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def closure(requirements: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """All packages that these bring here, each with the package that asks for it; and those that are not installed, of
    which it is not known what they bring."""
    found, missing, seen = dict[str, str](), list[str](), set[tuple[str, str]]()
    ahead = [(text, "", "pyproject.toml") for text in requirements]
    while ahead:
        text, extra, holder = ahead.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.setdefault(name, holder)
        here = installed(name)
        if here is None:
            missing.append(name)
        for asked in ("", *requirement.extras):
            if here is not None and (name, asked) not in seen:
                seen.add((name, asked))
                ahead += [(inner, asked, name) for inner in here.requires or ()]
    return found, missing


@pytest.mark.parametrize("extra", EXTRAS)
def test_nothing_is_installed_that_nobody_has_looked_at(extra: str) -> None:
    found, missing = closure(required(extra))
    new = {name: holder for name, holder in found.items() if name not in REVIEWED}
    assert not new, f"{extra} brings packages that are not in .ci/dependencies.toml, with the ones that ask for them"
    if missing:
        pytest.skip(f"not known what these bring, which are not installed: {', '.join(missing)}")


def test_the_core_brings_no_more_than_what_is_listed_for_it() -> None:
    found, missing = closure(required("core"))
    assert not missing
    assert {name for name in found if "core" not in REVIEWED[name]["extras"]} == set()


def test_the_list_has_nothing_that_is_not_brought() -> None:
    closures = {extra: closure(required(extra)) for extra in EXTRAS}
    known = {extra for extra, (_, missing) in closures.items() if not missing}
    brought = {name for found, _ in closures.values() for name in found}
    listed = {name for name, entry in REVIEWED.items() if "only" not in entry and known >= set(entry["extras"])}
    assert listed - brought == set()


def test_each_entry_says_its_licence_and_why_it_is_there() -> None:
    for name, entry in REVIEWED.items():
        assert entry["licence"], name
        assert entry["why"], name
        assert set(entry["extras"]) <= set(EXTRAS), name


def test_a_package_behind_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        def __init__(self, *requires: str) -> None:
            self.requires = requires

    packages = {
        "front": Made("Back_End[fast]>1", "old; python_version < '3'"),
        "back-end": Made("rust; extra == 'fast'"),
    }
    monkeypatch.setattr(sys.modules[__name__], "installed", packages.get)
    found, missing = closure(["front"])
    assert found == {"front": "pyproject.toml", "back-end": "front", "rust": "back-end"}
    assert missing == ["rust"]


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
@pytest.mark.parametrize(
    ("answer", "required", "code", "said"),
    [
        ('{"dependencies": []}', "", 0, "NOT AUDITED"),
        ('{"dependencies": []}', "required", 1, "NOT AUDITED"),
        ('{"dependencies": [{"vulns": [{"id": "X-1"}]}]}', "", 3, "strict"),
    ],
)
def test_an_audit_without_data_says_that_it_is_none(
    answer: str, required: str, code: int, said: str, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
*freeze*) echo trio==1 ;;
*--strict*) echo strict; exit 3 ;;
*) echo '{answer}' ;;
esac
"""
    )
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "audit"), str(python)],
        env={"PATH": "/usr/bin:/bin", "AUDIT": required},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, bool(re.search(said, done.stdout))) == (code, True), done.stdout + done.stderr
