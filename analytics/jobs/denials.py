"""Clients and addresses that are denied more than usual, and logins that are guessed."""

from functools import partial
from typing import Final, Literal

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trunkline.analytics.jobs import alerts
from trunkline.analytics.jobs.alerts import Baseline, Burst, Limit, Occurrence, Surge
from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard
from trunkline.analytics.options import DAY, Amount, Calm, Factor, Limited, Positive, Share, UpToADay
from trunkline.events.schema import Flag
from trunkline.mqtt.reasons import Reason

#: CONNACKs that are about who the client is. Others are about what the broker cannot do.
_LOGINS: Final = (
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
    Reason.BANNED,
    Reason.BAD_AUTHENTICATION_METHOD,
)


class DenialOptions(StatefulOptions):
    window: UpToADay = 60.0
    """Seconds of a window in which denied requests are counted."""
    factor: Factor = 4.0
    """A client or address is denied too much above this times what is usual for it …"""
    minimum: Amount = 20.0
    """… and above this many denied requests a window."""
    learning: Share = 0.1
    """Share of the newest window in what is usual, a moving average."""
    calm: Calm = 120.0
    """Seconds without too much after which an alert ends, of any kind."""
    forget: Positive = DAY
    """Seconds without a denial after which what was usual is forgotten."""
    login_window: UpToADay = 300.0
    """Seconds in which failed logins of an address count."""
    login_limit: Limited = 20
    """More failed logins of an address within `login_window` are too many."""
    name_limit: Limited = 5
    """More user names that failed from an address in it are too many."""
    logins: Literal["client.connack", "client.authenticated"] = "client.connack"
    """The kind of events that records failed logins."""


def refused_message() -> Expression:
    """Each refused message is dropped, whereas decisions are cached and recorded once."""
    return (F.col("kind") == "message.dropped") & (F.col("reason") == "not_authorized")


def refused_subscription() -> Expression:
    """The decision is all that there is."""
    allowed = F.col("flags").bitwiseAND(int(Flag.ALLOWED)) != 0
    return (F.col("kind") == "client.acl_decided") & (F.col("action") == "subscribe") & ~allowed


def _kinds(options: DenialOptions) -> tuple[str, ...]:
    return ("message.dropped", "client.acl_decided", options.logins)


def _machine(options: DenialOptions, subject: Subject) -> Machine[Occurrence]:
    """A baseline of each client and each address, and two limits for failed logins."""
    calm = microseconds(options.calm)
    if subject.scope in ("client", "peer"):
        baseline = Baseline(
            window=microseconds(options.window),
            factor=options.factor,
            minimum=options.minimum,
            learning=options.learning,
            calm=calm,
            forget=microseconds(options.forget),
        )
        return Surge("denied", subject, baseline)
    names = subject.scope == "names"
    most = options.name_limit if names else options.login_limit
    limit = Limit(most, microseconds(options.login_window), calm, names)
    return Burst(subject.scope, Subject("peer", subject.name), limit)


@job(options=DenialOptions, kinds=_kinds, columns=alerts.COLUMNS, key=alerts.KEY)
def denials(events: DataFrame, options: DenialOptions) -> DataFrame:
    """Clients and addresses that are denied more than usual; guessed logins.

    Reports when a client or an address begins and ceases to be `denied` much more than usual: messages that it may
    not publish or get, and subscriptions that it may not make. What is usual is a moving average of its windows before,
    in which a flood counts no more than its threshold, so that a flood does not become usual soon.

    Reports also guessed passwords: `logins` are many failed logins from one address within the last `login_window`
    seconds, `names` are many different user names that failed.

    Exact, whatever the order in which events come, for all that are at most `lateness` seconds late.
    """
    code = F.col("reason_code")
    denied = refused_message() | refused_subscription()
    failed = (F.col("kind") == options.logins) & (
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
    return run(rows, events, Machines(Occurrence, partial(_machine, options)), denials.columns)
