"""Fuzz targets with atheris, one after the other: `python -m fuzz decoder --seconds 300`.

Each begins with the kept corpus; with `--keep`, the smallest set of inputs that reach the same code replaces that. An
input that fails is written to the current folder as crash-*, and tried again by `--try FILE`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz.corpus import keep, kept
from fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", choices=list(TARGETS), nargs="+")
    parser.add_argument("--seconds", type=int, default=60, help="how long each (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep what reaches new code")
    parser.add_argument("--try", dest="file", type=Path, metavar="FILE", help="run the targets once, with this input")
    given = parser.parse_args()
    if given.file is not None:
        for target in given.target:
            TARGETS[target](given.file.read_bytes())
        return 0
    return max(long_form(target, given.seconds, keeps=given.keep) for target in given.target)


def long_form(target: str, seconds: int, *, keeps: bool) -> int:
    """The exit code: not 0 if an input has failed."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        found, least = Path(folder, "found"), Path(folder, "least")
        found.mkdir()
        least.mkdir()
        for number, data in enumerate(kept(target)):
            (found / str(number)).write_bytes(data)
        code = fuzz(target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=4096", str(found))
        if keeps and not code:
            code = fuzz(target, "-merge=1", str(least), str(found))
            keep(target, [file.read_bytes() for file in least.iterdir()])
    return code


def fuzz(target: str, *options: str) -> int:
    """In a process of its own: libFuzzer ends the process that it runs in."""
    return subprocess.run([sys.executable, "-m", "fuzz.fuzzer", target, *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
