"""The commands of the documented upgrade, as they are written, with another folder and another package."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
INSTALL = re.findall(r"^# (.*)$", PAGE[PAGE.index("## Install") : PAGE.index("# useradd")], re.MULTILINE)
UPGRADE = [
    line.removeprefix("# ")
    for block in re.findall(r"<!-- upgrade -->\n```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def package(folder: Path, version: str) -> Path:
    """One whose script is made by pip, as that of Trunkline is."""
    wheel = folder / f"trunkline-{version}-py3-none-any.whl"
    information = f"trunkline-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("trunkline.py", f"def main():\n    print('{version}')\n")
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: trunkline\nVersion: {version}\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/entry_points.txt", "[console_scripts]\ntrunkline = trunkline:main\n")
        archive.writestr(f"{information}/RECORD", "")
    return wheel


@pytest.mark.skipif(sys.platform != "linux", reason="the commands are those of a Linux system")
def test_an_upgrade_and_the_way_back(tmp_path: Path) -> None:
    opt, served = tmp_path / "opt", list[str]()

    def run(command: str, version: str) -> str:
        command = command.replace("/opt/trunkline", str(opt)).replace(
            " PATH", f" --no-index {package(tmp_path, version)}"
        )
        command = command.replace("python3 ", f"{sys.executable} ").removeprefix("runuser -u trunkline -- ")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def serve() -> str:
        return run("/opt/trunkline/current/bin/trunkline", "")

    for command in INSTALL:
        run(command, "0.1.0")
    assert serve() == "0.1.0\n"
    for command in UPGRADE:
        if command.startswith("systemctl restart"):
            served.append(serve())
        else:
            run(command, "0.2.0")
            assert serve() in ("0.1.0\n", "0.2.0\n"), command  # at any moment it could be started
    assert served == ["0.2.0\n", "0.1.0\n"]
    assert "ExecStart=/opt/trunkline/current/bin/trunkline " in PAGE
