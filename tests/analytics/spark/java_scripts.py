"""Programs that answer as a Java does, for what no installed Java would answer."""

from pathlib import Path


def java_script(folder: Path, body: str) -> Path:
    """`bin/java` in this folder, a shell script."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(0o755)
    return script


def java_that_lists(folder: Path, *modules: str) -> Path:
    return java_script(folder, "\n".join(f"echo {module}" for module in modules))
