"""Runs a job: once over recorded events, or as a stream until it is stopped."""

import json
import re
import signal
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.inputs import Form, Input
from trunkline.analytics.outputs import Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trunkline.analytics.jobs.job import Job, Options

#: The file of a checkpoint that names its job, input and options.
_OWNER: Final = "trunkline-job.json"


class RunError(ValueError):
    """A job cannot run with these options, or was stopped."""


@dataclass(frozen=True, slots=True)
class Run:
    job: "Job[Any]"
    options: "Options"
    input: Input
    output: Output
    stream: bool = False
    #: Where a stream keeps its position and state: a folder, or a URI that Spark can write to.
    checkpoint: str | None = None
    #: Minimum seconds from one batch to the next.
    every: float = 5.0
    #: A stream ends when it has read all events.
    once: bool = False

    def check(self) -> Form:
        """Find mistakes before Spark starts.

        Raises:
            InputError, OutputError, RunError: there is one.
        """
        form = self.input.check(stream=self.stream)
        self.output.check(self.job, stream=self.stream)
        if self.stream:
            if self.checkpoint is None and self.output.lasting:
                raise RunError("--output of a stream needs --checkpoint, so that no result is missing or written twice")
            if self.checkpoint is not None:
                self._check_owner(self.checkpoint)
        elif self.checkpoint is not None or self.once:
            raise RunError(f"{'--once' if self.once else '--checkpoint'} goes with --stream")
        return form

    def start(self, spark: "SparkSession", form: Form, *, say: Callable[[str], None]) -> None:
        """Run it to its end. `say` is called when a stream has started.

        Raises:
            RunError: it was stopped before its end; streams have none.
            PySparkException, Py4JError: Spark, its source or its sink has failed.
        """
        events = self.input.read(spark, form, self.job.kinds(self.options), stream=self.stream)
        results = self.job(events, self.options)
        if self.stream:
            self._run_stream(results, say)
        else:
            with stopped_by_signals(partial(_cancel, spark)) as asked:
                try:
                    self.output.write(results, self.job)
                except Exception as error:
                    if not asked.is_set():
                        raise
                    raise RunError("stopped before its end") from error

    def _run_stream(self, results: "DataFrame", say: Callable[[str], None]) -> None:
        writer = self.output.stream(results, self.job).queryName(f"trunkline-{self.job.name}")
        writer = (
            writer.trigger(availableNow=True) if self.once else writer.trigger(processingTime=f"{self.every} seconds")
        )
        with ExitStack() as stack:
            checkpoint = self.checkpoint
            if checkpoint is None:
                temporary = tempfile.TemporaryDirectory(prefix="trunkline-", ignore_cleanup_errors=True)
                checkpoint = stack.enter_context(temporary)
            self._own(checkpoint)
            query = writer.option("checkpointLocation", checkpoint).start()
            stack.enter_context(stopped_by_signals(query.stop))
            if not self.once:
                say("running until Ctrl-C")
            query.awaitTermination()

    @property
    def _owner(self) -> dict[str, Any]:
        options = self.options.model_dump(mode="json")
        return {"job": self.job.name, "input": self.input.identity, "options": options}

    def _check_owner(self, checkpoint: str) -> None:
        folder = Path(checkpoint)
        if "://" in checkpoint or not folder.exists():
            return
        if not folder.is_dir():
            raise RunError(f"--checkpoint {checkpoint}: is not a folder")
        if not any(folder.iterdir()):
            return
        try:
            owner = json.loads((folder / _OWNER).read_text(encoding="utf-8"))
            job, source, options = owner["job"], owner["input"], dict(owner["options"])
        except FileNotFoundError:
            raise RunError(f"--checkpoint {checkpoint}: the folder holds something else") from None
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"--checkpoint {checkpoint}: {_OWNER} in it cannot be read") from None
        mine = self._owner
        if job != mine["job"]:
            raise RunError(f"--checkpoint {checkpoint}: belongs to the job {job}")
        if source != mine["input"]:  # its positions mean nothing there: nothing would be read
            raise RunError(f"--checkpoint {checkpoint}: belongs to --input {source}")
        names = sorted(options.keys() | mine["options"].keys())
        changed = [name for name in names if options.get(name) != mine["options"].get(name)]
        if changed:
            was = ", ".join(f"{name}={options.get(name)}" for name in changed)
            raise RunError(f"--checkpoint {checkpoint}: was made with {was}; go on with that, or take another one")

    def _own(self, checkpoint: str) -> None:
        if "://" not in checkpoint:
            folder = Path(checkpoint)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _OWNER).write_text(json.dumps(self._owner, indent=2) + "\n", encoding="utf-8")


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Generator[Event, None, None]:
    """Ctrl-C and SIGTERM call `stop`, in a thread of its own: the interrupted one is in the middle of a call of Java.
    The second signal ends the process. The yielded event is set by the first."""
    asked, over = Event(), Event()

    def ask(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        asked.set()
        over.set()

    def wait() -> None:
        over.wait()
        if asked.is_set():
            # it may have ended meanwhile
            with suppress(Exception):
                stop()

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    thread = Thread(target=wait, name="stops Spark", daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()
        for each, handler in before.items():
            signal.signal(each, handler)


def _cancel(spark: "SparkSession") -> None:
    """Cancel all jobs of the session."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def summary(error: BaseException) -> str:
    """A failure of Spark in a line, without the traces of Java and Python."""
    text = str(error)
    _, python, rest = text.rpartition("Traceback (most recent call last):\n")
    if python:
        lines = [line for line in rest.splitlines() if line and not line.startswith(" ")]
        text = re.sub(r"^[\w.]+: ", "", lines[0]) if lines else text
    line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", line).strip()
