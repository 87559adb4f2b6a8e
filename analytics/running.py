"""Runs a job: once over recorded events, or as a stream until it is stopped."""

import json
import re
import signal
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.inputs import Form, Input
from trunkline.analytics.outputs import Output
from trunkline.analytics.source.metrics import NAME, OBSERVED, Skipped, corrected, measures, skipped, told
from trunkline.events.layout import LogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

    from trunkline.analytics.jobs.job import Job, Options

#: The file of a checkpoint that names its job, input and options.
_OWNER: Final = "trunkline-job.json"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
#: Seconds that Spark's last events are waited for.
_LATE: Final = 10.0
#: Seconds until Spark is told again to stop.
_AGAIN: Final = 0.5


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
        if self.output.place and self.input.meets(self.output.place):
            raise RunError(f"--output {self.output.place}: is, holds or is in the --input, which it would damage")
        if self.stream:
            if self.checkpoint is None and self.output.lasting:
                raise RunError("--output of a stream needs --checkpoint, so that no result is missing or written twice")
            if self.checkpoint is not None:
                self._check_owner(self.checkpoint)
        elif self.checkpoint is not None or self.once:
            raise RunError(f"{'--once' if self.once else '--checkpoint'} goes with --stream")
        return form

    def start(self, spark: "SparkSession", form: Form, *, say: Callable[[str], None]) -> None:
        """Run it to its end. `say` is called when a stream has started, with rows that were not read, and with
        corrections of clocks.

        Raises:
            RunError: it was stopped before its end; streams have none.
            PySparkException, Py4JError: Spark, its source or its sink has failed.
        """
        from pyspark.sql import Observation

        skips = self.input.skips(form)
        noted = Observation()
        observation = (NAME if form == "log" else None) if self.stream else (noted if skips else None)
        kinds = self.job.kinds(self.options)
        events = self.input.read(spark, form, kinds, stream=self.stream, observation=observation)
        results = self.job(events, self.options)
        if self.stream:
            self._say_notices(form, say)
            with told_of_batches(spark, self._query_name, say) if observation else nullcontext():
                self._run_stream(results, say)
            return
        with interruptible(partial(_cancel, spark)), _adaptive(spark) if skips else nullcontext():
            self.output.write(results, self.job)
        if skips:
            for line in told(self._skipped(spark, form, noted)):
                say(line)
        self._say_notices(form, say)

    def _say_notices(self, form: Form, say: Callable[[str], None]) -> None:
        try:
            for line in self.input.notices(form, stream=self.stream):
                say(line)
        except (LogError, OSError) as error:
            say(f"what is missing in the log cannot be told: {error}")

    def _skipped(self, spark: "SparkSession", form: Form, noted: "Observation") -> list[Skipped]:
        from py4j.protocol import Py4JError

        try:
            return skipped(noted.get)
        except (Py4JError, KeyError):
            # Spark forgets what it has observed where the results turn out to be none: it is read once more
            rows = self.input.read(spark, form, OBSERVED, stream=False)
            [found] = rows.groupBy().agg(*measures()).collect()
            return skipped(found.asDict())

    @property
    def _query_name(self) -> str:
        return f"trunkline-{self.job.name}"

    def _run_stream(self, results: "DataFrame", say: Callable[[str], None]) -> None:
        writer = self.output.stream(results, self.job).queryName(self._query_name)
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
def told_of_batches(spark: "SparkSession", query: str, say: Callable[[str], None]) -> Generator[None, None, None]:
    """Says of each batch of the query of that name which rows could not be read, and where clocks were corrected."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    over = Event()

    class _Progress(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            self.run = event.runId if event.name == query else getattr(self, "run", None)

        def onQueryProgress(self, event: Any) -> None:
            if event.progress.runId == self.run and NAME in event.progress.observedMetrics:
                metrics = event.progress.observedMetrics[NAME].asDict()
                clocks = (f"{node}: {correction}" for node, correction in corrected(metrics))
                for line in (*told(skipped(metrics)), *clocks):
                    say(f"batch {event.progress.batchId}: {line}")

        def onQueryTerminated(self, event: Any) -> None:
            if event.runId == self.run:
                over.set()

    listener = _Progress()
    spark.streams.addListener(listener)
    try:
        yield
        # events come some time after what they tell of
        over.wait(_LATE)
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Generator[Event, None, None]:
    """Ctrl-C and SIGTERM call `stop`, in a thread of its own: the interrupted one is in the middle of a call of Java.
    The second signal ends the process. The yielded event is set by the first."""
    asked, woken, over = Event(), Event(), Event()

    def ask(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        asked.set()
        woken.set()

    def wait() -> None:
        woken.wait()
        while asked.is_set() and not over.is_set():
            # it may have ended meanwhile
            with suppress(Exception):
                stop()
            # it may have been between two jobs of Spark, when there was nothing to stop
            over.wait(_AGAIN)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    thread = Thread(target=wait, name="stops Spark", daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        woken.set()
        thread.join()
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Generator[None, None, None]:
    """Ctrl-C and SIGTERM call `stop`, with which all that waits for Spark fails.

    Raises:
        RunError: it was stopped before its end.
    """
    with stopped_by_signals(stop) as asked:
        try:
            yield
        except Exception as error:
            if not asked.is_set():
                raise
            raise RunError("stopped before its end") from error


@contextmanager
def _adaptive(spark: "SparkSession") -> Generator[None, None, None]:
    """Without it, Spark takes what it has observed for complete before `toLocalIterator` has read anything."""
    before = spark.conf.get(_ADAPTIVE)
    spark.conf.set(_ADAPTIVE, True)
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before or False)


def _cancel(spark: "SparkSession") -> None:
    """Cancel all jobs of the session."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def summary(error: BaseException) -> str:
    """A failure of Spark in a line, without the traces of Java and Python."""
    text = str(error)
    # Py4J's where Java said nothing; its module is not there where Spark Connect is alone
    is_cut_off = isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
    if is_cut_off or re.fullmatch(r"An error occurred while calling \S+", text):
        return "Spark's Java ended in the middle; where it had too little memory, --conf spark.driver.memory=4g helps"
    _, python, rest = text.rpartition("Traceback (most recent call last):\n")
    if python:
        lines = [line for line in rest.splitlines() if line and not line.startswith(" ")]
        text = re.sub(r"^[\w.]+: ", "", lines[0]) if lines else text
    elif text.startswith("An error occurred while calling "):  # Py4J's own words; Java's come behind them
        causes = re.findall(r"^(?:: |Caused by: )(?:[\w.$]+: )?(.+)$", text, re.MULTILINE)
        text = causes[-1] if causes else text
    line = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", line).strip()
