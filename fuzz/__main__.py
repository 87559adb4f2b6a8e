"""Fuzz targets with atheris, one after the other: `python -m fuzz decoder --seconds 300`.

Each begins with the kept corpus; with `--keep`, the smallest set of inputs that reach the same code replaces that. An
input that fails is written to the current folder as crash-*, and tried again by `--try FILE`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from fuzz.corpus import CORPUS, keep, kept


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", choices=sorted(file.stem for file in CORPUS.iterdir()), nargs="+")
    parser.add_argument("--seconds", type=int, default=60, help="how long each (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep what reaches new code")
    parser.add_argument("--try", dest="file", type=Path, metavar="FILE", help="run the targets once, with this input")
    given = parser.parse_args()
    if given.file is not None:
        from fuzz.targets import TARGETS  # after atheris, where that is used

        for target in given.target:
            TARGETS[target](given.file.read_bytes())
        return 0
    return max(long_form(target, given.seconds, keeps=given.keep) for target in given.target)


def long_form(target: str, seconds: int, *, keeps: bool) -> int:
    """The exit code: not 0 if an input has failed."""
    from fuzz.fuzzer import fuzz

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


if __name__ == "__main__":
    sys.exit(main())
