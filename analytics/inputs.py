"""The inputs of jobs: an event log, or a copy of it as Parquet files or as a Delta table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, Literal

from trunkline.events.layout import local_root, places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

Form = Literal["log", "parquet", "delta"]
#: Rows of one batch of a stream, unless the options say otherwise: jobs hold rows until a later batch confirms them,
#: and the first batch would else hold a whole log.
ROWS_PER_TRIGGER: Final = 250_000
#: A Parquet file begins so.
_PARQUET: Final = b"PAR1"


class InputError(ValueError):
    """There are no events, or they cannot be read in this way."""


@dataclass(frozen=True, slots=True)
class Input:
    """Events of these nodes (all if there are none), from `since` on and before `until`."""

    place: str
    since: datetime | None = None
    until: datetime | None = None
    nodes: tuple[str, ...] = ()
    #: Further options of the source, by its names for them.
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def identity(self) -> str:
        """The place, however it is written."""
        return _canonical(self.place)

    def meets(self, place: str) -> bool:
        """Whether events are at a place or below it, or it is below theirs."""
        other = PurePath(_canonical(place))
        owns = [PurePath(_canonical(each)) for each in places(self.place)]
        return any(own.is_relative_to(other) or other.is_relative_to(own) for own in owns)

    def check(self, *, stream: bool) -> Form:
        """Find out without Spark which form the events have.

        Raises:
            InputError: there are no events, or they cannot be read as a stream.
        """
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InputError("--since must be before --until")
        form = self._form(stream)
        if form != "log" and self.options:
            raise InputError(f"{self.place}: is not an event log, so it does not take the option {min(self.options)}")
        if form == "delta" and stream:
            raise InputError(f"{self.place}: a Delta table cannot be read as a stream; the event log can")
        return form

    def _form(self, stream: bool) -> Form:
        folder = local_root(self.place)
        if folder is not None:
            if not any(Path(each).exists() for each in places(folder)):
                raise InputError(f"{self.place}: there is no such file or folder")
            if (folder / "_delta_log").is_dir():
                return "delta"
            if folder.is_file():
                self._check_file(folder, stream)
                return "parquet"
            if any(folder.glob("*.parquet")):
                return "parquet"
        elif self.place.rstrip("/").endswith(".parquet"):
            return "parquet"
        self._check_log(stream)
        return "log"

    def _check_file(self, file: Path, stream: bool) -> None:
        try:
            with file.open("rb") as opened:
                magic = opened.read(len(_PARQUET))
        except OSError as error:
            raise InputError(f"{self.place}: {error.strerror}") from None
        if magic != _PARQUET:
            raise InputError(f"{self.place}: is no Parquet file; an event log is a folder")
        if stream:
            raise InputError(f"{self.place}: a single file cannot be read as a stream; its folder can")

    def _check_log(self, stream: bool) -> None:
        from pyarrow import ArrowException

        from trunkline.analytics.options import OptionError
        from trunkline.analytics.source.options import understood
        from trunkline.analytics.source.places import open_log
        from trunkline.events.layout import LogError

        try:
            nodes = open_log(understood(self._source_options(()), "stream" if stream else "batch")).nodes()
        except OptionError as error:
            raise InputError(str(error)) from None
        except (LogError, ArrowException, OSError) as error:
            raise InputError(f"{self.place}: {error}") from None
        if not nodes:
            raise InputError(f"{self.place}: there is no event log, nor Parquet files")
        names = {key.rpartition("@")[0] for key in nodes}
        unknown = [node for node in self.nodes if node not in names and node not in nodes]
        if unknown:
            raise InputError(f"{self.place}: has no node {unknown[0]}, only {', '.join(sorted(names))}")

    def read(
        self,
        spark: "SparkSession",
        form: Form,
        kinds: tuple[str, ...],
        *,
        stream: bool,
        observation: "str | Observation | None" = None,
    ) -> "DataFrame":
        """The events, from a log those of these kinds alone; `form` is the result of `check`. What there is to say
        about a log's rows is noted in the observation."""
        from pyspark.sql import functions as F

        from trunkline.analytics.source.metrics import OBSERVED, observed
        from trunkline.events.schema import SPARK_SCHEMA

        reader = spark.readStream if stream else spark.read
        if form == "log":
            limit = {"maxRowsPerTrigger": str(ROWS_PER_TRIGGER)} if stream else {}
            more = OBSERVED if kinds and observation is not None else ()
            events = reader.format("trunkline").options(**limit | self._source_options((*kinds, *more))).load()
            if observation is not None:
                events = observed(events, observation)
            unwanted = [kind for kind in more if not any(fnmatchcase(kind, wanted) for wanted in kinds)]
            return events.where(~F.col("kind").isin(*unwanted)) if unwanted else events
        if form == "delta":
            from deltalake import DeltaTable

            events = spark.read.schema(SPARK_SCHEMA).parquet(*DeltaTable(self.place).file_uris())
        else:
            events = reader.schema(SPARK_SCHEMA).parquet(self.place)
        if self.nodes:
            key = F.concat_ws("@", "node", "incarnation")
            events = events.where(F.col("node").isin(*self.nodes) | key.isin(*self.nodes))
        if self.since is not None:
            events = events.where(F.col("time") >= F.lit(self.since))
        if self.until is not None:
            events = events.where(F.col("time") < F.lit(self.until))
        return events

    def skips(self, form: Form) -> bool:
        """Whether the reader passes over rows that it cannot read."""
        from trunkline.analytics.source.options import understood

        if form != "log":
            return False
        settings = understood(self._source_options(()))
        return settings.on_corrupt == "skip" or not settings.fail_on_data_loss

    def notices(self, form: Form, *, stream: bool) -> list[str]:
        """Lines for people about rows of a log that no reader finds, and about corrections of clocks, which a stream
        observes as it reads on.

        Raises:
            LogError, OSError: the log cannot be read.
        """
        from trunkline.analytics.source.options import understood
        from trunkline.analytics.source.view import View
        from trunkline.events.notices import notices

        if form != "log":
            return []
        view = View(understood(self._source_options(()), "stream" if stream else "batch"))
        return notices(view.log, self.nodes, lambda time: not stream and view.window.holds(time))

    def _source_options(self, kinds: tuple[str, ...]) -> dict[str, str]:
        times = {"startingTimestamp": self.since, "endingTimestamp": self.until}
        chosen = {name: time.isoformat() for name, time in times.items() if time is not None}
        if self.nodes:
            chosen["nodes"] = ",".join(self.nodes)
        if kinds:
            chosen["kinds"] = ",".join(kinds)
        return {"path": self.place, **chosen, **self.options}


def _canonical(place: str) -> str:
    local = local_root(place)
    return place.rstrip("/") if local is None else str(local.resolve())
