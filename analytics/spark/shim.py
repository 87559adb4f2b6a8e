"""A Java that Spark's own programs accept.

They pass `--add-modules=jdk.incubator.vector` to every Java that they start, and a Java without that module refuses to
run. Only some linear algebra would use it. So they get a Java home whose `bin/java` leaves that argument out.
"""

import os
import shlex
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trunkline.analytics.spark.java import VECTOR_MODULE, Java, JavaError

_SCRIPT: Final = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(java: Java, environ: Mapping[str, str] = os.environ) -> Path:
    """The value of JAVA_HOME for Spark's programs: the Java's own home, if that fits.

    Raises:
        JavaError: it does not fit, and this system runs no shell scripts.
    """
    if VECTOR_MODULE in java.modules:
        return java.home
    if os.name == "nt":
        raise JavaError(f"{java.executable} has no module {VECTOR_MODULE}, which Spark's own scripts need")
    home = _folder(environ) / f"java-{java.version}-{zlib.crc32(os.fsencode(java.executable)):08x}"
    script = _SCRIPT.format(module=VECTOR_MODULE, java=shlex.quote(str(java.executable)))
    target = home / "bin" / "java"
    if not target.exists() or target.read_text(encoding="utf-8") != script:
        target.parent.mkdir(parents=True, exist_ok=True)
        # another process may run it at this moment: it sees the old one or the new one
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)
        os.replace(file.name, target)
    return home


def _folder(environ: Mapping[str, str]) -> Path:
    """A folder that stays from one run to the next, and in which only this user can write."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    folder = Path(cache) / "trunkline"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="trunkline-"))
