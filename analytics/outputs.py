"""The outputs of a job: the terminal, files, a table, or topics of a broker."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from trunkline.analytics.printing import UNLIMITED_WIDTH, Row, as_json, print_table, with_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from trunkline.analytics.jobs.job import Job

Format = Literal["table", "json", "parquet", "delta", "mqtt"]
_JSON: Final = (".json", ".jsonl", ".ndjson")
#: Files that somebody might expect by their names.
_OTHERS: Final = (".csv", ".tsv", ".txt", ".html", ".xlsx", ".avro", ".orc")
_SCHEMES: Final = ("mqtt", "mqtts")
#: Options of the sink that a URL has outside of its query.
_IN_URL: Final = ("host", "port", "tls", "username", "password", "topic")


class OutputError(ValueError):
    """Results cannot go there."""


@dataclass(frozen=True, slots=True)
class Output:
    form: Format
    #: The path or URI of files or of a table; empty for the terminal and for topics.
    place: str = ""
    #: Of the MQTT sink.
    options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    overwrite: bool = False
    #: Rows of a table on the terminal, at most.
    rows: int = 100
    #: Empty: all of them.
    columns: tuple[str, ...] = ()

    @property
    def lasting(self) -> bool:
        """Whether results stay, so that none may be written twice."""
        return bool(self.place) or self.form == "mqtt"

    def check(self, job: "Job[Any]", *, stream: bool) -> None:
        """Raises OutputError: the job's results cannot be written there."""
        names = [column.name for column in job.columns]
        if unknown := [name for name in self.columns if name not in names]:
            raise OutputError(f"--columns: job {job.name} has no column {unknown[0]}, only {', '.join(names)}")
        if self.columns and self.form not in ("table", "json"):
            raise OutputError(f"--columns: goes with tables and JSON, not with {self.form}")
        if self.form == "delta" and find_spec("deltalake") is None:
            raise OutputError("deltalake is not installed: pip install 'trunkline[lake]'")
        if self.form == "mqtt":
            from trunkline.analytics.options import OptionError
            from trunkline.analytics.sinks.settings import parse

            try:
                parse(self.options)
            except OptionError as error:
                raise OutputError(f"--output: {error}") from None
        if stream:
            if self.overwrite:
                raise OutputError("--overwrite: a stream goes on with what is there")
        elif self.form in ("json", "parquet") and self.place and not self.overwrite and Path(self.place).exists():
            raise OutputError(f"{self.place} exists already: give another place, or --overwrite")
        if self.place and "://" not in self.place:
            self._check_folder()
        if self.form == "delta" and self.overwrite:
            raise OutputError("--overwrite: a Delta table is added to")

    def _check_folder(self) -> None:
        """Before Spark starts, which would tell it only after the whole job."""
        place = Path(self.place)
        folder = place if place.is_dir() else place.parent
        if not folder.is_dir():
            raise OutputError(f"--output {place}: there is no folder {folder}")
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OutputError(f"--output {place}: nothing can be written in {folder}: {error.strerror}") from None

    def write(self, results: "DataFrame", job: "Job[Any]") -> None:
        """Write all results of recorded events."""
        match self.form:
            case "table":
                self._print(self._chosen(results, job), job.description[0])
            case "json":
                with self._lines("w") as lines:
                    _write_json(_rows(self._chosen(results, job)), lines)
            case "parquet":
                results.write.mode("overwrite" if self.overwrite else "errorifexists").parquet(self.place)
            case "delta":
                from trunkline.analytics.sinks.delta import delta_sink

                delta_sink(self.place, app_id=uuid4().hex)(results, 0)
            case "mqtt":
                results.write.format("trunkline").mode("append").options(**self.options).save()

    def stream(self, results: "DataFrame", job: "Job[Any]") -> "DataStreamWriter":
        """A query that is not yet started."""
        writer = results.writeStream.outputMode("append")
        match self.form:
            case "table":
                return writer.foreachBatch(partial(self._print_batch, job))
            case "json":
                return writer.foreachBatch(partial(self._append_batch, job))
            case "parquet":
                return writer.format("parquet").option("path", self.place)
            case "delta":
                from trunkline.analytics.sinks.delta import delta_sink

                return writer.foreachBatch(delta_sink(self.place))
            case "mqtt":
                return writer.format("trunkline").options(**self.options)

    def _print(self, frame: "DataFrame", title: str, *, empty: bool = True) -> None:
        from rich.console import Console

        rows = list(_rows(frame.limit(self.rows + 1)))
        if not rows and not empty:
            return
        console = Console()
        if not console.is_terminal:  # a file is as wide as it has to be
            console = Console(width=UNLIMITED_WIDTH)
        print_table(console, frame.columns, rows[: self.rows], title, more=len(rows) > self.rows)

    def _print_batch(self, job: "Job[Any]", frame: "DataFrame", batch: int) -> None:
        self._print(self._chosen(frame, job), f"{job.name}, batch {batch}", empty=False)
        sys.stdout.flush()

    def _append_batch(self, job: "Job[Any]", frame: "DataFrame", batch: int) -> None:
        with self._lines("a") as lines:
            _write_json(_rows(self._chosen(frame, job)), lines)

    def _chosen(self, results: "DataFrame", job: "Job[Any]") -> "DataFrame":
        """In order of time."""
        ordered = results.orderBy(*dict.fromkeys((*job.times[:1], *job.key)))
        return ordered.select(*self.columns) if self.columns else ordered

    def _lines(self, mode: str) -> AbstractContextManager[IO[str]]:
        """The file, or standard output, which stays open."""
        return open(self.place, mode, encoding="utf-8") if self.place else nullcontext(sys.stdout)


def _write_json(rows: Iterable[Row], file: IO[str]) -> None:
    for row in rows:
        file.write(as_json(row) + "\n")
    file.flush()


def _rows(frame: "DataFrame") -> Iterator[Row]:
    """One partition after the other, so that many results need little memory here."""
    for row in frame.toLocalIterator():
        yield with_zone(row.asDict(recursive=True))


def parse_output(place: str | None, form: str | None, job: str) -> Output:
    """The output of these options of the command line: without a format, it follows from the place.

    Raises:
        OutputError: they do not go together, or the address is invalid.
    """
    if place is None:
        if form in (None, "table"):
            return Output("table")
        if form == "json":
            return Output("json")
        raise OutputError(f"--format {form} needs --output")
    url = urlsplit(place)
    if url.scheme in _SCHEMES:
        if form not in (None, "mqtt"):
            raise OutputError(f"--output {url.scheme}://… does not go with --format {form}")
        return Output("mqtt", options=_of_url(place, job))
    if form == "table":
        raise OutputError("--format table goes to the terminal, without --output")
    if form == "mqtt":
        raise OutputError("--format mqtt needs an --output such as mqtt://127.0.0.1:1883/$analytics")
    suffix = Path(place).suffix.lower()
    if form is None and suffix in _OTHERS:
        raise OutputError(
            f"{place}: {suffix} is not written; results go to {_JSON[0]} files, or to a folder of Parquet"
        )
    if form is None:
        form = "json" if place.endswith(_JSON) else "delta" if (Path(place) / "_delta_log").is_dir() else "parquet"
    if "://" in place and form == "json":
        raise OutputError(f"{place}: JSON lines are written to local files")
    known: dict[str, Format] = {"json": "json", "parquet": "parquet", "delta": "delta"}
    return Output(known[form], place)


def _of_url(text: str, job: str) -> dict[str, str]:
    """`mqtt://name:password@host:port/topic/{column}?qos=1&retain=true` as options of the sink."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise OutputError(f"--output {text.split('@')[-1]}: {error}") from None
    if not url.hostname:
        raise OutputError("--output: the broker's address is missing, as in mqtt://127.0.0.1:1883/$analytics")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    doubled = [name for name in options if name.lower() in _IN_URL[:3] or name == "topic"]
    if doubled:
        raise OutputError(f"--output: {doubled[0]} belongs into the address itself, not behind the ?")
    options["host"] = url.hostname
    if url.scheme == "mqtts":
        options["tls"] = "true"
    for name, value in (("port", port), ("username", url.username), ("password", url.password)):
        if value is not None:
            options[name] = unquote(str(value))
    if "#" in text:
        raise OutputError("--output: a topic to publish to cannot contain #")
    options["topic"] = unquote(url.path.removeprefix("/")) or f"$analytics/{job}"
    # columns hold what clients chose, which may be no part of a topic
    options.setdefault("escape", "true")
    return options
