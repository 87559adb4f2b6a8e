"""The process that libFuzzer runs in: `python -m fuzz.fuzzer TARGET OPTIONS...`, with options of libFuzzer."""

import sys

import atheris

with atheris.instrument_imports(include=["trunkline"]):
    from fuzz.targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    command = f"{sys.executable} -m fuzz.fuzzer {sys.argv[1]}"  # libFuzzer runs it again for a merge
    atheris.Setup([command, *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
