"""Starts Spark's Java process without Spark's launch scripts.

Those insist on a module that the Java from PyPI does without, need bash, and start a second Java only to print the
command line of the first. What they would do is little: a class path, a list of flags, and a file in which the Java
process says where Python can reach it.

Spark is told of a home that does not exist. With a real one, its Python workers import PySpark from a zip file, never
compiled, which costs each of them half a second and more; without it they find the installed package.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from trunkline.analytics.spark.java import VECTOR_MODULE, Java

#: Lines of what the Java process says that are kept, to be shown when it does not start.
KEPT_LINES: Final = 200
#: How lines begin that PySpark prints whenever a stateful stream starts, each with an empty one behind it.
_CHATTER: Final = (
    b"Starting Streaming TransformWithStateInPandas Python worker",
    b"Streaming TransformWithStateInPandas Python worker",
)
_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
#: What Spark's own launcher passes.
FLAGS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    # Spark looks through the texts of failures with patterns that recurse: a stream that is stopped in the middle of a
    # batch has one that is too long for the usual stack
    "-Xss8m",
)
#: Less optimizing and a simpler collector: what is short-lived starts and runs faster, what is long-lived is slower.
FAST_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Must not exist, and nobody else must be able to make it, since workers would import from there.
NO_HOME: Final = Path(__file__).parent / "no-spark-home"


class GatewayError(RuntimeError):
    """The Java process did not start; the text ends with what it said last."""


def spark_package() -> Path:
    """The folder of the installed PySpark.

    Raises:
        GatewayError: there is none, or only the client of Spark Connect, which brings no Spark.
    """
    package = importlib.util.find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        raise GatewayError("PySpark is not installed: pip install 'trunkline[spark]'")
    folder = Path(package.submodule_search_locations[0])
    if not (folder / "jars").is_dir():
        raise GatewayError(f"the PySpark in {folder} is the client of Spark Connect alone: pip install pyspark")
    return folder


def flags(java: Java, jars: Path, *first: str) -> list[str]:
    """What any program of Spark needs between `java` and the name of its class; `first` leads the class path."""
    conf = [folder for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if (folder := os.environ.get(name))]
    # several jars bring it, and this one must win
    logging = sorted(map(str, jars.glob("slf4j-api-*.jar")))
    return [
        *FLAGS,
        # Java itself does not look at TMPDIR
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",
        *([f"--add-modules={VECTOR_MODULE}"] if VECTOR_MODULE in java.modules else ()),
        "-cp",
        os.pathsep.join([*first, *conf, *logging, str(jars / "*")]),
    ]


def command(java: Java, jars: Path, properties: Path, settings: Mapping[str, str], *, fast_start: bool) -> list[str]:
    """The command line of a driver, with what of the settings only a starting Java can obey."""
    extra = settings.get("spark.driver.extraClassPath")
    return [
        str(java.executable),
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *(FAST_START if fast_start else ()),
        *flags(java, jars, *([extra] if extra else [])),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties),
        "--load-spark-defaults",
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]


def as_properties(settings: Mapping[str, str]) -> str:
    """A file of settings, since a command line can be read by everyone on the machine."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    units = (unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")))
    return "".join(
        chr(unit) if 0x20 < unit < 0x7F and chr(unit) not in "\\:=#!" else f"\\u{unit:04x}" for unit in units
    )


def _at_home(master: str) -> bool:
    """Whether all of Spark is on this machine."""
    return re.match(r"local\b|spark://(127\.|localhost(:|$))", master) is not None


class JavaProcess:
    """Spark's Java process. It ends with this one, even when this one is killed: it reads from a pipe that nobody
    writes to, until the pipe's other end is gone."""

    def __init__(self, java: Java, jars: Path, settings: Mapping[str, str], *, fast_start: bool = False) -> None:
        #: The last that it said.
        self.said: deque[str] = deque(maxlen=KEPT_LINES)
        self._quiet = True
        self._folder = Path(tempfile.mkdtemp(prefix="trunkline-spark-"))
        self._connection = self._folder / "connection"
        properties = self._folder / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text(as_properties(settings), encoding="ascii")
        environment = {
            **os.environ,
            "SPARK_HOME": str(NO_HOME),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
        }
        if _at_home(settings.get("spark.master", "")):
            # the machine's name may lead to an address that it no longer has
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self.process = subprocess.Popen(
            command(java, jars, properties, settings, fast_start=fast_start),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C is for Python, which may want to stop a query in good order
            process_group=0 if os.name == "posix" else None,
        )
        assert self.process.stdout is not None
        self._listener = threading.Thread(
            target=self._listen, args=(self.process.stdout,), daemon=True, name="spark-output"
        )
        self._listener.start()

    def _listen(self, output: IO[bytes]) -> None:
        chatter = False
        with output:
            for line in output:
                after, chatter = chatter, line.startswith(_CHATTER)
                if chatter or (after and not line.strip()):
                    continue
                self.said.append(line.decode(errors="replace").rstrip())
                if not self._quiet:
                    with contextlib.suppress(OSError):
                        os.write(2, line)

    def connect(self, within: float) -> tuple[int, str]:
        """The port and the secret by which Python reaches it, after at most `within` seconds.

        Raises:
            GatewayError: it ended, or it took longer.
        """
        deadline = time.monotonic() + within
        try:
            while not self._connection.exists():
                if self.process.poll() is not None:
                    self._listener.join(1.0)
                    raise GatewayError(f"Java ended with code {self.process.returncode}{self._last_words()}")
                if time.monotonic() > deadline:
                    raise GatewayError(f"Spark's Java did not start within {within:g} s{self._last_words()}")
                time.sleep(0.02)
            data = self._connection.read_bytes()
        except BaseException:
            self.kill()
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        (port, size) = struct.unpack_from(">ii", data)
        return port, data[8 : 8 + size].decode()

    def show(self) -> None:
        """From now on pass on what it says: what it says while it starts is of use only if it does not."""
        self._quiet = False

    def _last_words(self) -> str:
        return ", and said nothing" if not self.said else ":" + "".join(f"\n  {line}" for line in self.said)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
