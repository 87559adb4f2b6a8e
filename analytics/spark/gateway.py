"""Starts Spark's Java process without Spark's launch scripts.

The scripts insist on a module that the Java from PyPI does not have, need bash, and start a second Java only to print
the command line of the first. They do little: a class path, a list of flags, and a file in which the Java process
writes its port for Python.

SPARK_HOME names a folder that does not exist. With a real one, Spark's Python workers import PySpark from a zip file,
never compiled, which costs each of them half a second and more; without it they import the installed package.
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

from trunkline.analytics.spark.java import VECTOR_MODULE, Java, SparkError

#: Lines of the Java process's output that are kept, to be shown when it does not start.
MAX_LINES: Final = 200
#: Lines that Spark prints whenever a stream starts, and of which nobody can do anything; those of PySpark with an empty
#: one behind.
_CHATTER: Final = re.compile(
    rb"(Starting )?Streaming TransformWithStateInPandas Python worker"
    rb"|\S+ \S+ WARN ResolveWriteToStream: spark\.sql\.adaptive\.enabled is not supported in streaming"
    rb"|\S+ \S+ WARN MicroBatchExecution: Disabling AQE since"
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
    "sun.util.calendar",
)
#: Newer ones than this do not have the package any more, and warn.
_LAST_WITH_SECURITY_ACTION: Final = 24
#: The flags that Spark's own launcher passes.
FLAGS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    # Spark searches the texts of failures with recursive patterns: that of a stream which is stopped in the middle of a
    # batch is too long for the usual stack
    "-Xss8m",
)
#: Less optimizing and a simpler collector: short-lived programs start and run faster, long-lived ones are slower.
FAST_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Must not exist, and no other user must be able to create it, since workers would import from there.
NO_HOME: Final = Path(__file__).parent / "no-spark-home"


class GatewayError(SparkError):
    """The Java process did not start; the text ends with its last output."""


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
    """The arguments of any Spark program between `java` and the name of its class; `first` leads the class path."""
    conf = [folder for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR") if (folder := os.environ.get(name))]
    # several jars bring it, and this one must win
    logging = sorted(map(str, jars.glob("slf4j-api-*.jar")))
    old = int(java.version.partition(".")[0]) <= _LAST_WITH_SECURITY_ACTION
    return [
        *FLAGS,
        *(["--add-opens=java.base/sun.security.action=ALL-UNNAMED"] if old else ()),
        # Java itself does not look at TMPDIR
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",
        *([f"--add-modules={VECTOR_MODULE}"] if VECTOR_MODULE in java.modules else ()),
        "-cp",
        os.pathsep.join([*first, *conf, *logging, str(jars / "*")]),
    ]


def command(java: Java, jars: Path, properties: Path, settings: Mapping[str, str], *, fast_start: bool) -> list[str]:
    """The command line of a driver, with those settings that Java obeys only at its start."""
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
    """Settings go into a file, since every user of the machine can read a command line."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    units = (unit for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")))
    return "".join(
        chr(unit) if 0x20 < unit < 0x7F and chr(unit) not in "\\:=#!" else f"\\u{unit:04x}" for unit in units
    )


def _is_local(master: str) -> bool:
    """Whether all of Spark is on this machine."""
    return re.match(r"local\b|spark://(127\.|localhost(:|$))", master) is not None


class JavaProcess:
    """Spark's Java process. It ends with this process, even when that is killed: it reads from a pipe that nothing is
    written to, until the pipe's other end is closed."""

    def __init__(self, java: Java, jars: Path, settings: Mapping[str, str], *, fast_start: bool = False) -> None:
        #: Its last output.
        self.output: deque[str] = deque(maxlen=MAX_LINES)
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
        if _is_local(settings.get("spark.master", "")):
            # the machine's name may lead to an address that it no longer has
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self.process = subprocess.Popen(
            command(java, jars, properties, settings, fast_start=fast_start),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C is for Python, which stops queries in order
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
                after, chatter = chatter, _CHATTER.match(line) is not None
                if chatter or (after and not line.strip()):
                    continue
                self.output.append(line.decode(errors="replace").rstrip())
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
                    raise GatewayError(
                        f"Spark's Java did not start within {within:g} s; if this machine is busy, give it longer "
                        f"(within={2 * within:g}){self._last_words()}"
                    )
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
        """Pass its output on from now on: that of the start is of use only when it fails."""
        self._quiet = False

    def _last_words(self) -> str:
        # without the stack of Java's calls, which fills screens
        lines = [line for line in self.output if not re.match(r"\s+at |\s*\.\.\. \d+ more", line)]
        return ", and printed nothing" if not lines else ":" + "".join(f"\n  {line}" for line in lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
