"""The configuration of a node: all sections together, and the checks between them."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Final, Self, cast

from pydantic import InstanceOf, SerializeAsAny, model_validator
from pydantic_core import PydanticCustomError

from trunkline.config.addresses import TakenAddresses
from trunkline.config.declared_streams import StreamSettings, conflicts
from trunkline.config.key_path import KeyPath, Keys, dotted, nearest
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import (
    LimitSettings,
    MqttSettings,
    RateSettings,
    RetainedSettings,
    SessionSettings,
    SharedSettings,
    ZoneSettings,
)
from trunkline.config.nats_settings import NatsSettings
from trunkline.config.node_settings import (
    ControlSettings,
    LogSettings,
    NodeSettings,
    OverloadSettings,
    StoreSettings,
    SysSettings,
    TraceSettings,
)
from trunkline.config.section import PluginSettings, Section
from trunkline.config.security_settings import (
    PASSWORDS,
    SCRAM,
    AclSettings,
    AuthSettings,
    CredentialFiles,
    FlappingSettings,
    PasswordSettings,
)
from trunkline.config.units import Accepts, Durability, ZoneName, parse_mark

#: Sections that are lists of tables.
LISTS: Final = ("listeners", "streams")
#: Sections whose value is taken as a whole: lists, and tables by name.
WHOLE: Final = (*LISTS, "zones")
#: Variables of this form set a key: TRUNKLINE_SECTION__KEY, TRUNKLINE_LISTENERS and TRUNKLINE_STREAMS.
PREFIX: Final = "TRUNKLINE_"

#: Sections with limits.
_LIMITING: Final = ("mqtt", "session", "retained", "limits", "store")
_KEEP_ALIVES: Final = frozenset({"max_keep_alive", "server_keep_alive"})


class Config(Section):
    """All settings. `Config()` holds the defaults.

    A `Config` made by hand is checked like one that is read, but raises pydantic's own error.
    """

    node: NodeSettings = NodeSettings()
    listeners: Annotated[
        tuple[ListenerSettings, ...], Accepts("a list of listeners, [[listeners]], or of their URLs")
    ] = (ListenerSettings(),)
    mqtt: MqttSettings = MqttSettings()
    session: SessionSettings = SessionSettings()
    nats: NatsSettings = NatsSettings()
    retained: RetainedSettings = RetainedSettings()
    store: StoreSettings = StoreSettings()
    streams: Annotated[tuple[StreamSettings, ...], Accepts("a list of streams, [[streams]]")] = ()
    shared: SharedSettings = SharedSettings()
    auth: AuthSettings = AuthSettings()
    passwords: PasswordSettings = PasswordSettings()
    acl: AclSettings = AclSettings()
    flapping: FlappingSettings = FlappingSettings()
    sys: SysSettings = SysSettings()
    log: LogSettings = LogSettings()
    trace: TraceSettings = TraceSettings()
    limits: LimitSettings = LimitSettings()
    rate: RateSettings = RateSettings()
    overload: OverloadSettings = OverloadSettings()
    zones: Mapping[ZoneName, ZoneSettings] = {}
    control: ControlSettings = ControlSettings()
    #: By name. Read by each plugin's own model.
    plugins: Mapping[str, SerializeAsAny[InstanceOf[PluginSettings]]] = {}

    def at(self, listener: ListenerSettings) -> Self:
        """The settings for a listener's clients: those of its zone before the general ones."""
        return self._in(self.zones[listener.zone]) if listener.zone else self

    def _in(self, zone: ZoneSettings) -> Self:
        sections = {name: getattr(self, name) for name in Config.model_fields}
        own = {
            "mqtt": zone.applied_to(self.mqtt),
            "session": zone.applied_to(self.session),
            "rate": zone.applied_to(self.rate),
        }
        return self.model_construct(None, **{**sections, **own})

    def allows_anonymous(self, listener: ListenerSettings | None = None) -> bool:
        """Whether clients may connect without credentials; None stands for in-process connections."""
        if listener is not None and listener.allow_anonymous is not None:
            return listener.allow_anonymous
        if self.auth.allow_anonymous is not None:
            return self.auth.allow_anonymous
        return not self.authenticates(listener) and (listener is None or listener.loopback)

    def credentials_at(self, listener: ListenerSettings | None) -> CredentialFiles:
        """The files with the credentials of a listener's clients; None stands for in-process connections."""
        if listener is None:
            return self.auth.files
        pairs = zip(listener.files, self.auth.files, strict=True)
        return CredentialFiles(*[general if own is None else own for own, general in pairs])

    def authenticates(self, listener: ListenerSettings | None = None) -> bool:
        """Whether clients can authenticate there."""
        if listener is not None and listener.names_clients:
            return True
        usable = self.authenticators_at(listener)
        return bool(usable if listener is None or listener.authenticators is None else listener.authenticators)

    def authenticators_at(self, listener: ListenerSettings | None) -> list[str]:
        """Those that can let clients in there, if the listener asks all."""
        files = self.credentials_at(listener)
        passwords = [PASSWORDS] if files.password_file or files.client_id_file else []
        scram = [SCRAM] if files.scram_file else []
        return [*passwords, *scram, *[name for name, plugin in self.plugins.items() if plugin.authenticates]]

    def durability(self, *, standalone: bool) -> Durability:
        return self.store.durability or ("fsync" if standalone else "memory")

    @cached_property
    def refuses_over_rates(self) -> bool:
        """Whether messages over a rate may be refused, at any listener."""
        zones, listeners = self.zones.values(), self.listeners
        return "refuse" in (self.rate.over, *[zone.over for zone in zones], *[each.rate.over for each in listeners])

    @cached_property
    def queue_bytes(self) -> int:
        """The limit in bytes for messages that wait for a client; 0 means no limit."""
        asked = self.session.max_queue_bytes
        return max(2 * self.mqtt.max_packet_size, 16_777_216) if asked is None else asked

    def all_limits(self) -> dict[str, int]:
        """The numbers that bound what clients may have or send, by key; those that a zone sets begin with its name."""
        sections: dict[str, Section] = {name: getattr(self, name) for name in _LIMITING}
        keys = [(name, section, key) for name, section in sections.items() for key in type(section).model_fields]
        keys += [(f"zones.{name}", zone, key) for name, zone in self.zones.items() for key in zone.model_fields_set]
        values = {f"{name}.{key}": getattr(section, key) for name, section, key in keys if key.startswith("max_")}
        return {name: value for name, value in values.items() if isinstance(value, int)}

    @property
    def largest_queue(self) -> tuple[int, int]:
        """What may wait for a client in the zone that allows the most: messages and bytes; 0 means no limit."""
        zones = [self, *map(self._in, self.zones.values())]
        lengths = [zone.session.max_queue_length for zone in zones]
        sizes = [zone.queue_bytes for zone in zones]
        return min(lengths) and max(lengths), min(sizes) and max(sizes)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if found := list(_conflicts(self)):
            # the locations go along as data, so that a reader can name each one's source
            text = "; ".join(text for _, text in found)
            raise PydanticCustomError("conflicts", "{text}", {"text": text, "found": found})
        return self


def _conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Checks that concern several keys."""
    labels: dict[str, int] = {}
    taken = TakenAddresses[int]()
    taken_paths: dict[str, int] = {}
    for index, listener in enumerate(config.listeners):
        path = ("listeners", index)
        first = labels.setdefault(listener.label, index)
        if first != index:
            if config.listeners[first].url == listener.url and listener.port:
                yield path, f"listeners[{first}] is at {listener.url}, too"
            else:
                yield path, f'listeners[{first}] is called "{listener.label}" too: give one a name of its own'
        if not (listener.loopback or config.authenticates(listener) or config.allows_anonymous(listener)):
            text = (
                f"other machines can reach {listener.url} without logging in: set auth.password_file, "
                "auth.client_id_file or auth.scram_file, or the same keys of this listener, or enable a plugin that "
                "authenticates, or set allow_anonymous = true in [auth] or for this listener to let every client "
                "connect"
            )
            yield path, text
        if listener.zone and listener.zone not in config.zones:
            yield (*path, "zone"), f"no zone is called {listener.zone!r}{nearest(listener.zone, config.zones)}"
        known = listener.names_clients or config.allows_anonymous(listener)
        if listener.authenticators == () and listener.loopback and not known:
            yield (*path, "authenticators"), "is empty, and allow_anonymous is not true: nobody could connect"
        usable = config.authenticators_at(listener)
        for name in listener.authenticators or ():
            if name not in usable:
                yield (*path, "authenticators"), _unusable_authenticator(name, config, usable)
        if listener.durability not in (None, "memory", config.store.durability):
            text = (
                f'"{listener.durability}" is not the level of the store, which all sessions share: set '
                f'store.durability = "{listener.durability}" for all, or "memory" or nothing here'
            )
            yield (*path, "durability"), text
        if listener.systemd_socket:
            continue
        socket_path = listener.address.path if listener.address.scheme == "unix" else ""
        owner = (
            taken_paths.setdefault(socket_path, index)
            if socket_path
            else taken.take([listener.host], listener.port, index)
        )
        if owner not in (None, index) and config.listeners[owner].label != listener.label:
            what = "that path" if socket_path else f"port {listener.port} of that address"
            yield path, f"listeners[{owner}] takes {what}: {config.listeners[owner].url}"
    yield from conflicts(config.streams)
    yield from _mark_conflicts(config.overload)
    if 0 < config.mqtt.max_keep_alive < config.mqtt.server_keep_alive:
        yield ("mqtt", "server_keep_alive"), "is longer than mqtt.max_keep_alive"
    for name, zone in config.zones.items():
        mqtt = zone.applied_to(config.mqtt)
        if 0 < mqtt.max_keep_alive < mqtt.server_keep_alive and zone.model_fields_set & _KEEP_ALIVES:
            yield ("zones", name), "server_keep_alive is longer than max_keep_alive"


def _unusable_authenticator(name: str, config: Config, usable: list[str]) -> str:
    if name == PASSWORDS:
        return f'"{name}" needs a password_file or client_id_file, here or in [auth]'
    if name == SCRAM:
        return f'"{name}" needs a scram_file, here or in [auth]'
    if name in config.plugins:
        return f'the plugin "{name}" authenticates nobody as it is configured'
    known = nearest(name, usable) or f"; configured are {', '.join(usable) or 'none'}"
    return f"no authenticator is called {name!r}{known}"


def _mark_conflicts(overload: OverloadSettings) -> Iterator[tuple[KeyPath, str]]:
    memory = parse_mark(overload.memory_low), parse_mark(overload.memory_high)
    files = parse_mark(overload.files_low), parse_mark(overload.files_high)
    for name, (low, high) in (("memory", memory), ("files", files)):
        if high.amount and low.is_share != high.is_share:
            yield ("overload", f"{name}_low"), f"must be a share if overload.{name}_high is one, and only then"
        elif high.amount and low.amount > high.amount:
            yield ("overload", f"{name}_low"), f"is more than overload.{name}_high"
    if 0 < overload.lag_high < overload.lag_low:
        yield ("overload", "lag_low"), "is more than overload.lag_high"


def model_of(section: str) -> type[Section]:
    return cast("type[Section]", Config.model_fields[section].annotation)


def key_paths() -> Iterator[Keys]:
    """Every key of the broker's own, section by section."""
    for section in Config.model_fields:
        if section in WHOLE:
            yield (section,)
        elif section != "plugins":
            yield from ((section, key) for key in model_of(section).model_fields)


_QUEUES: Final = "Messages that wait are in the store in the order, and with the QoS, that these settings give them."
_CONTROL: Final = "The answer to the reload goes through this socket, and programs look for the broker there."

#: The keys whose change needs a restart, and why. A reload applies all others.
NEED_RESTART: Final[Mapping[Keys, str]] = {
    ("node", "name"): "Message ids, the store's place and the event log begin with it.",
    ("node", "workers"): "Each session is in the store of one of them.",
    ("node", "worker_timeout"): "The supervisor and the workers agree on it at their start.",
    ("store", "path"): "What the broker holds in memory is in this store.",
    ("store", "durability"): "Acknowledgements have promised it.",
    ("streams",): "Streams are made when the broker starts; `trunkline streams` changes those of a running one.",
    ("session", "priorities"): _QUEUES,
    ("session", "default_priority"): _QUEUES,
    ("session", "overflow"): _QUEUES,
    ("session", "upgrade_qos"): _QUEUES,
    ("control", "enabled"): _CONTROL,
    ("control", "path"): _CONTROL,
    ("control", "transport"): _CONTROL,
}


def reloaded(running: Config, new: Config) -> Config:
    """The configuration that runs after a reload."""
    values: dict[str, object] = {}
    for section in Config.model_fields:
        former, later = getattr(running, section), getattr(new, section)
        if section in WHOLE or section == "plugins":
            values[section] = former if (section,) in NEED_RESTART else later
        else:
            kept = [path[1] for path in NEED_RESTART if path[0] == section]
            values[section] = later.model_copy(update={name: getattr(former, name) for name in kept})
    return Config.model_construct(None, **values)


def variable(path: Keys) -> str:
    """The environment variable that sets a key."""
    return PREFIX + "__".join(path).upper()


def changes(old: Config, new: Config) -> list[str]:
    """The keys that differ; for plugins, their sections."""
    names = sorted(old.plugins.keys() | new.plugins.keys())
    return [
        dotted(path) for path in key_paths() if attrgetter(".".join(path))(old) != attrgetter(".".join(path))(new)
    ] + [dotted(("plugins", name)) for name in names if old.plugins.get(name) != new.plugins.get(name)]
