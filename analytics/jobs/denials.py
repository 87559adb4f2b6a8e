"""Clients and addresses that are denied more than usual, and logins that are guessed."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import alerts
from trunkline.analytics.jobs.alerts import Occurrence, Teller
from trunkline.analytics.jobs.bursts import Burst, Count, Distinct
from trunkline.analytics.jobs.job import Seconds, job
from trunkline.analytics.jobs.machines import Machine, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.surges import Surge, SurgeRules
from trunkline.analytics.jobs.windows import heard
from trunkline.events.schema import Flag
from trunkline.mqtt.reasons import Reason

#: CONNACKs that say who the client is not. Others say what the broker cannot do.
_LOGINS: Final = (
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
    Reason.BANNED,
    Reason.BAD_AUTHENTICATION_METHOD,
)


class DenialOptions(StatefulOptions):
    window: Seconds = Field(
        default=60.0, gt=0, le=86400, description="Seconds of a window in which denied requests are counted."
    )
    factor: float = Field(
        default=4.0, ge=1, description="A client or address is denied too much above this times what is usual for it …"
    )
    minimum: float = Field(default=20.0, ge=0, description="… and above this many denied requests a window.")
    learning: float = Field(
        default=0.1, gt=0, le=1, description="Share of the newest window in what is usual, a moving average."
    )
    calm: Seconds = Field(
        default=120.0, ge=0, le=86400, description="Seconds without too much after which an alert ends, of any kind."
    )
    forget: Seconds = Field(
        default=86400.0, gt=0, description="Seconds without a denial after which what was usual is forgotten."
    )
    login_window: Seconds = Field(
        default=300.0, gt=0, le=86400, description="Seconds in which failed logins of an address count."
    )
    login_limit: int = Field(
        default=20, ge=1, le=1000, description="More failed logins of an address within `login_window` are too many."
    )
    name_limit: int = Field(
        default=5, ge=1, le=1000, description="More user names that failed from an address in it are too many."
    )
    logins: Literal["client.connack", "client.authenticated"] = Field(
        default="client.connack", description="The kind of events that tells of failed logins."
    )


def _kinds(options: DenialOptions) -> tuple[str, ...]:
    return ("message.dropped", "client.acl_decided", options.logins)


@dataclass(frozen=True)
class Denials:
    """The machines of the job: a baseline of each client and each address, and two limits for failed logins."""

    event: ClassVar[type[Occurrence]] = Occurrence
    options: DenialOptions

    def machine(self, subject: Subject, saved: list[Any] | None) -> Machine[Occurrence]:
        scope, name = subject
        options = self.options
        seen, *state = saved or (None,)
        calm = microseconds(options.calm)
        if scope in ("client", "peer"):
            rules = SurgeRules(
                window=microseconds(options.window),
                factor=options.factor,
                minimum=options.minimum,
                learning=options.learning,
                calm=calm,
                forget=microseconds(options.forget),
            )
            return Surge(Teller("denied", scope, name, seen), rules, *state)
        memory, alert = state or (None, None)
        window = microseconds(options.login_window)
        measure = (
            Count(options.login_limit, window, memory)
            if scope == "logins"
            else Distinct(options.name_limit, window, memory)
        )
        return Burst(Teller(scope, "peer", name, seen), measure, calm, alert)


@job(
    "denials",
    options=DenialOptions,
    kinds=_kinds,
    columns=alerts.COLUMNS,
    key=alerts.KEY,
    times=alerts.TIMES,
)
def denials(events: DataFrame, options: DenialOptions) -> DataFrame:
    """Tells when a client or an address begins and ceases to be `denied` much more than usual: messages that it may not
    publish or get, and subscriptions that it may not make. What is usual is a moving average of its windows before, in
    which a flood counts no more than its threshold, so that a flood does not become usual soon.

    Tells also of guessed passwords: `logins` are many failed logins from one address within the last `login_window`
    seconds, `names` are many different user names that failed.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    kind, code = F.col("kind"), F.col("reason_code")
    # Each refused message is dropped. Of a refused subscription the decision is all that there is.
    denied = ((kind == "message.dropped") & (F.col("reason") == "not_authorized")) | (
        (kind == "client.acl_decided")
        & (F.col("action") == "subscribe")
        & (F.col("flags").bitwiseAND(int(Flag.ALLOWED)) == 0)
    )
    failed = (kind == options.logins) & (
        code.isin(*map(int, _LOGINS)) if options.logins == "client.connack" else code >= int(Reason.UNSPECIFIED_ERROR)
    )
    rows = in_buckets(
        heard(events, _kinds(options), options.lateness).where(denied | failed),
        options.buckets,
        F.when(denied, subject("client", "client_id")),
        F.when(denied, subject("peer", "peer")),
        F.when(failed, subject("logins", "peer")),
        F.when(failed, subject("names", "peer")),
    )
    return run(rows, events, Denials(options), alerts.COLUMNS)
