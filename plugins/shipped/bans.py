"""Bans clients by client id, user name, address or network, temporarily or permanently; ids and names also by pattern.
A connected client that is banned is disconnected.

The plugin itself can ban a client that connects and disconnects too often (`flapping_detect`). Bans are kept in the
broker's store, but for those of the configuration.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import nsmallest
from math import inf, isfinite
from typing import Final, Self

import trio
from pydantic import model_validator

from trunkline.config.units import Duration, Flag, Text, Whole
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny
from trunkline.hooks.exchange import Exchange
from trunkline.hooks.priorities import BANS
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, Settings, Table, hook, setting
from trunkline.plugins.shipped.ban_exchange import CONFIG, BanExchange
from trunkline.plugins.shipped.ban_list import Ban, BanList, Kind, ListFull, normal_form
from trunkline.plugins.store import PluginStoreFull

#: Rows of one listing by default.
PAGE: Final = 1000


class ConfiguredBan(Table):
    """A ban that holds as long as the plugin runs."""

    kind: Kind = setting(..., "The kind of ban.")
    who: Text = setting(
        ...,
        'Which one; for `address` also a CIDR block such as "10.0.0.0/8", for a pattern text with `*`, `?` and '
        "`[0-9]`.",
    )
    reason: Text = setting("", "The reason, shown in the list of bans. Clients do not learn it.", max_length=200)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        normal_form(self.kind, self.who)
        return self


class FlappingDetect(Table):
    """A client id that disconnects more than `max_count` times within `window_time` is banned for `ban_time`."""

    enable: Flag = setting(False, "Whether clients that connect and disconnect too often are banned.")
    max_count: Whole = setting(15, "Disconnections that are tolerated.", "disconnections", ge=1, le=10_000)
    window_time: Duration = setting(60.0, "The time in which they are counted.", "seconds", gt=0)
    ban_time: Duration = setting(300.0, "How long the client id is banned.", "seconds", gt=0)
    max_tracked: Whole = setting(
        10_000, "Client ids whose disconnections are counted at the same time; those seen last are kept.", ge=1
    )


class BansSettings(Settings):
    """Clients that may not connect."""

    guards = ("client.authenticate", "client.enhanced_authenticate")

    bans: tuple[ConfiguredBan, ...] = setting((), "Bans that hold from the start.")
    max_bans: Whole = setting(10_000, "Bans at the same time, of all kinds.", "bans", ge=1)
    max_patterns: Whole = setting(
        100, ("Patterns among the bans: each is compared with each client that connects."), ge=0
    )
    flapping_detect: FlappingDetect = setting(
        FlappingDetect(), ("Bans of clients that connect and disconnect too often.")
    )

    @property
    def authenticates(self) -> bool:
        """It only refuses clients; it does not authenticate the others."""
        return False

    @model_validator(mode="after")
    def _room(self) -> Self:
        if len(self.bans) > self.max_bans:
            raise ValueError(f"{len(self.bans)} bans are configured, and max_bans is {self.max_bans}")
        patterns = sum(ban.kind.endswith("_pattern") for ban in self.bans)
        if patterns > self.max_patterns:
            raise ValueError(f"{patterns} patterns are configured, and max_patterns is {self.max_patterns}")
        return self


class Bans:
    def __init__(self, context: Context[BansSettings]) -> None:
        self._context = context
        self._list = BanList(context.settings.max_bans, context.settings.max_patterns)
        #: The bans that others than the configuration made, by kind and who: an earlier run may have left some.
        self._store = context.store
        self._timers = dict[Ban, Callable[[], None]]()
        #: Clients that are connected have not been compared with all bans; a task does it.
        self._unmet = self._walks = False
        self._flapping = context.settings.flapping_detect
        self._departures: OrderedDict[str, deque[float]] = context.kept.setdefault("departures", OrderedDict())
        self._refused = context.counter("refused", "Connections refused because of a ban.")
        self._kicked = context.counter("kicked", "Clients disconnected because of a ban.")
        self._flapped = context.counter("flapped", "Client ids banned because they came and went too often.")
        #: With other workers.
        self._exchange = BanExchange(context, self._list, self._follow, self._lift)
        context.gauge("count", "Bans in force.", self._count)
        context.command("list", self.rows)
        context.command("show", self.show)
        context.command("add", self.add)
        context.command("remove", self.remove)

    def start(self) -> None:
        now = self._store.now
        for entry in self._context.settings.bans:
            kind, who = normal_form(entry.kind, entry.who)
            self._enforce(Ban(kind, who, entry.reason, CONFIG, now))
        for key, fields in list(self._store.items()):
            of, _, who = key.partition(":")
            ban = Ban(*normal_form(of, who), *fields)
            if ban.until <= now:
                self._store.delete(key)
            elif self._list.get(ban.kind, ban.who) is None:  # the configuration's holds as long as it is there
                try:
                    self._enforce(ban)
                except ListFull as error:  # it holds again when there is room
                    self._context.logger.warning("%s; not banned now: %s %s", error, ban.kind, ban.who)
        self._exchange.start()

    def _count(self) -> int:
        """All workers have the same: the first that there is counts them."""
        workers = self._context.workers
        return 0 if min(workers.reached, default=workers.own) < workers.own else len(self._list)

    # Commands

    def rows(self, after: str = "", limit: int = PAGE) -> list[dict[str, str]]:
        """Bans in order of kind and who: the next ones behind `after`, which is the KIND:WHO of the last one seen."""
        if limit < 1:
            raise ValueError(f"limit is {limit!r}; it must be a number of bans")
        by_key = {_key(ban): ban for ban in self._list}
        return [self._row(by_key[key]) for key in nsmallest(limit, (key for key in by_key if key > after))]

    def show(self, kind: str, who: str) -> list[dict[str, str]]:
        """The ban of one client id, user name, address or network."""
        return [self._row(self._existing(kind, who))]

    def add(self, kind: str, who: str, seconds: str = "", reason: str = "") -> str:
        """Ban a client, permanently or for some seconds. An existing ban of the same client is replaced."""
        checked, who = normal_form(kind, who)
        now = self._store.now
        try:
            ban = Ban(checked, who, reason[:200], "command", now, now + _seconds(seconds))
            self._ban(ban)
        except ListFull as error:
            raise ValueError(str(error)) from None
        self._exchange.banned(ban)
        return f"banned {checked} {who}"

    def remove(self, kind: str, who: str) -> str:
        """Remove a ban."""
        ban = self._existing(kind, who)
        self._lift(ban)
        self._exchange.lifted(ban)
        return f"no longer banned: {ban.kind} {ban.who}"

    def _existing(self, kind: str, who: str) -> Ban:
        checked, who = normal_form(kind, who)
        ban = self._list.get(checked, who)
        if ban is None:
            raise LookupError(f"{checked} {who} is not banned")
        return ban

    def _row(self, ban: Ban) -> dict[str, str]:
        behind = self._context.wall - self._store.now
        return {
            "kind": ban.kind,
            "who": ban.who,
            "until": "" if ban.until == inf else _moment(ban.until + behind),
            "by": ban.by,
            "reason": ban.reason,
            "at": _moment(ban.at + behind),
        }

    # Refusing clients

    @hook("client.authenticate", priority=BANS)
    def check_client(self, client: ClientInfo, password: bytes | None) -> Deny | None:
        return self._check(client)

    @hook("client.enhanced_authenticate", priority=BANS)
    def check_exchange(self, client: ClientInfo, exchange: Exchange) -> Deny | None:
        return self._check(client)

    def _check(self, client: ClientInfo) -> Deny | None:
        if self._find(client) is None:
            return None
        self._refused.add()
        return Deny(Reason.BANNED)

    @hook("client.connected", priority=BANS)
    def check_name(self, client: ClientInfo) -> None:
        """An authenticator may have set another user name than the client's."""
        if self._find(client) is not None:
            self._kick(client.client_id)

    def _find(self, client: ClientInfo) -> Ban | None:
        return self._list.find(client.client_id, client.username, client.peer and client.peer[0])

    # Bans

    def _ban(self, ban: Ban) -> None:
        """Raises ListFull, PluginStoreFull: there is no room for it."""
        self._store.put(_key(ban), [ban.reason, ban.by, ban.at, ban.until])
        try:
            self._enforce(ban)
        except ListFull:
            self._store.delete(_key(ban))
            raise

    def _follow(self, ban: Ban) -> None:
        """Another worker has banned it."""
        try:
            self._ban(ban)
        except (ListFull, PluginStoreFull) as error:
            self._context.logger.warning("%s; not banned here: %s %s", error, ban.kind, ban.who)

    def _enforce(self, ban: Ban) -> None:
        """Raises ListFull."""
        old = self._list.get(ban.kind, ban.who)
        self._list.add(ban)
        if old is not None:
            self._forget_timer(old)
        if ban.until < inf:
            self._timers[ban] = self._context.after(ban.until - self._store.now, self._lift, ban)
        if ban.kind == "client_id":
            if self._context.client(ban.who) is not None:
                self._kick(ban.who)
        else:
            self._unmet = True
            if not self._walks:
                self._walks = True
                self._context.nursery.start_soon(self._kick_all)

    def _lift(self, ban: Ban) -> None:
        self._list.remove(ban.kind, ban.who)
        self._store.delete(_key(ban))
        self._forget_timer(ban)
        self._context.clear_alarm("full")

    def _forget_timer(self, ban: Ban) -> None:
        cancel = self._timers.pop(ban, None)
        if cancel is not None:
            cancel()

    async def _kick_all(self) -> None:
        """Disconnect all banned clients, page by page, so that other work does not wait long. Bans that are made
        meanwhile take another walk, all of them together."""
        while self._unmet:
            self._unmet = False
            page = self._context.clients()
            while page:
                for client in page:
                    address = None if client.peer is None else client.peer.rpartition(":")[0]
                    if client.connected and self._list.find(client.client_id, client.username, address) is not None:
                        self._kick(client.client_id)
                await trio.lowlevel.checkpoint()
                page = self._context.clients(page[-1].client_id)
        self._walks = False

    def _kick(self, client_id: str) -> None:
        # 0x8A is a reason for CONNACK alone
        if self._context.kick(client_id, Reason.ADMINISTRATIVE_ACTION, "banned"):
            self._kicked.add()

    # Flapping

    @hook("client.disconnected")
    def count_departure(self, client: ClientInfo, reason: Reason, text: str) -> None:
        flapping, client_id = self._flapping, client.client_id
        if not flapping.enable or self._list.get("client_id", client_id) is not None:
            return
        now = self._context.now
        times = deque(self._departures.pop(client_id, ()), maxlen=flapping.max_count + 1)
        times.append(now)
        if len(times) <= flapping.max_count or now - times[0] > flapping.window_time:
            self._departures[client_id] = times
            if len(self._departures) > flapping.max_tracked:
                self._departures.popitem(last=False)
            return
        at = self._store.now
        words = f"disconnected {len(times)} times within {now - times[0]:.0f} s"
        try:
            ban = Ban("client_id", client_id, words, "flapping", at, at + flapping.ban_time)
            self._ban(ban)
        except (ListFull, PluginStoreFull) as error:
            self._context.raise_alarm(
                "full", f"{error}; client ids that connect and disconnect too often are not banned"
            )
            return
        self._exchange.banned(ban)
        self._flapped.add()
        self._context.logger.warning("%s is banned for %g s: %s", client_id, flapping.ban_time, words)


def _key(ban: Ban) -> str:
    return f"{ban.kind}:{ban.who}"


def _seconds(text: str) -> float:
    if not text:
        return inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (isfinite(seconds) and seconds > 0):
        raise ValueError(f"seconds is {text!r}; it must be a number above 0, or left out for a permanent ban")
    return seconds


def _moment(seconds: float) -> str:
    """UTC, to the second. Times that a calendar cannot represent are in year 9999."""
    return datetime.fromtimestamp(min(seconds, 253402300799.0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
