"""The sections about the broker's process: what it stores, what it reports of itself, and how it is operated."""

from math import inf
from typing import Literal

from trunkline.config.section import Section, key
from trunkline.config.units import (
    Duration,
    FileMarkText,
    MarkText,
    OptionalDurability,
    OptionalDuration,
    OptionalFlag,
    OptionalPath,
    Size,
    Text,
    TopicFilter,
    Whole,
    Workers,
)


class NodeSettings(Section):
    """The broker process itself."""

    name: Text = key("trunkline", "Name of this node in logs, metrics and `$SYS` topics.", min_length=1, max_length=64)
    workers: Workers = key(
        1,
        "Processes that share the work, each on a core of its own ([Cores](cores.md)). `auto` is as many as there are "
        "cores that the broker may use. A broker inside another process is in that one.",
        "processes",
    )
    worker_timeout: OptionalDuration = key(
        None,
        "A worker whose event loop does not come round for this long is killed, and started again. 0 turns this off. "
        "When it is not set: `WatchdogSec=` of a service of systemd, or else 30 s.",
        "seconds",
        ge=0,
    )
    watchdog: OptionalDuration = key(
        None,
        "When something blocks the broker for this long, the log names the actor, the callback, its plugin and "
        "the line of code. 0 turns this off. When it is not set: 1 s in a standalone broker, off in a broker "
        "inside another process.",
        "seconds",
        ge=0,
    )
    busy_poll: OptionalDuration = key(
        None,
        "How long the broker asks its sockets for the next bytes without a pause, before it sleeps until they come. "
        "Clients that answer at once get shorter round trips; each pause in the traffic costs so much processor time. "
        "When it is not set: 50 µs in a standalone broker with more processors than workers, 0 elsewhere.",
        "seconds",
        ge=0,
        le=0.01,
    )

    @property
    def worker_count(self) -> int:
        """`workers` as it is applied."""
        if self.workers != "auto":
            return self.workers
        # imported here: few ask for it
        from trunkline.config.cores import usable_cores

        return usable_cores()


class StoreSettings(Section):
    """What outlives the broker's process, and where it is kept."""

    path: OptionalPath = key(
        None,
        "The store's file, in a folder that is there. When it is not set, `NODE.db` in the state folder of the system: "
        "`$STATE_DIRECTORY` as systemd sets it; else `trunkline` in `$XDG_STATE_HOME`; else `/var/lib/trunkline` for "
        "root, `~/.local/state/trunkline` for others (macOS: `~/Library/Application Support/trunkline`, Windows: "
        "`%LOCALAPPDATA%\\trunkline`).",
    )
    durability: OptionalDurability = key(
        None,
        "What a commit survives: `fsync` a power cut, `os` the end of the process, `memory` neither; then there is no "
        "file. When it is not set: `fsync` in a standalone broker, `memory` in a broker inside another process.",
    )
    max_size: Size = key(
        0,
        "Bytes that the store's file may take. Its log beside it takes some 16 MiB more, and while a backup is "
        "made as much as is written meanwhile. When the file is full, acknowledgements that need the store wait. "
        "0 sets no limit besides the disk.",
        "bytes",
        ge=0,
    )
    max_uncommitted_bytes: Size = key(
        67_108_864,
        "Bytes of all clients together that may wait for the store, such as while the disk is full: from half of them "
        "on, nothing more is read from a client whose messages are among them, and beyond, no new client is accepted. "
        "A quarter of `max_size`, if that is less: what waits must fit. 0 means no limit.",
        "bytes",
        ge=0,
    )
    max_plugin_bytes: Size = key(
        134_217_728, "What one plugin may keep in the store, keys and values. 0 means no limit.", "bytes", ge=0
    )
    heartbeat: Duration = key(
        10.0,
        "Time between two notes in the store that the broker runs. After a crash, sessions and messages have aged "
        "from the last one on.",
        "seconds",
        ge=1,
    )

    @property
    def max_uncommitted(self) -> float:
        """`max_uncommitted_bytes` as it is applied."""
        return min(self.max_uncommitted_bytes or inf, self.max_size // 4 or inf)


class SysSettings(Section):
    """The broker's own metrics, published below `$SYS`."""

    interval: Duration = key(10.0, "Time between two publications. 0 publishes none.", "seconds")


class LogSettings(Section):
    """The broker's log. It holds no payloads and no passwords."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "The least important records that are written.")
    format: Literal["text", "json"] = key("text", "A line of text or a JSON object for each record.")
    file: OptionalPath = key(None, "File that the log is appended to. Standard error when it is not set.")


class ControlSettings(Section):
    """The control socket, through which `trunkline ctl` reaches a running broker."""

    enabled: OptionalFlag = key(
        None,
        "Whether there is a control socket. When it is not set: yes if `path` is set, no in a broker inside "
        "another process, and yes in a standalone broker, which runs without one if the default place cannot be "
        "used.",
    )
    path: OptionalPath = key(
        None,
        "Its path. When it is not set, `trunkline/NODE.sock` in `$XDG_RUNTIME_DIR`, or else "
        "`trunkline-UID/NODE.sock` in the system's folder for temporary files; `NODE-2.sock` when another broker "
        "has that.",
    )
    transport: Literal["auto", "unix", "tcp"] = key(
        "auto",
        "A Unix socket, or a loopback TCP port that is written to the file together with a token. `auto` is a "
        "Unix socket where the system has them.",
    )
    max_connections: Whole = key(
        16, "Connections at the same time; further connections are refused.", "connections", ge=1
    )
    max_body_size: Size = key(16_777_216, "Largest request, and largest answer.", "bytes", ge=65_536, le=1_073_741_824)
    idle_timeout: Duration = key(
        300.0, "A connection that sends or reads nothing for this long is closed.", "seconds", gt=0
    )


class TraceSettings(Section):
    """Messages whose way through the broker is recorded. Tracing is off while both `clients` and `topics` are empty;
    `trunkline ctl` starts and stops it in a running broker too."""

    clients: tuple[Text, ...] = key((), "Client ids: messages that they publish, and messages for them.")
    topics: tuple[TopicFilter, ...] = key((), "Topic filters: all messages with a matching topic.")
    max_messages: Whole = key(1000, "Messages kept; the oldest is forgotten.", "messages", ge=1, le=100_000)
    max_steps: Whole = key(1000, "Steps kept for one message.", "steps", ge=1)
    payload_bytes: Size = key(256, "Bytes kept of each payload, from its beginning. 0 keeps none.", "bytes", ge=0)
    max_bytes: Size = key(67_108_864, "Memory that the trace may take, roughly.", "bytes", ge=0)

    @property
    def on(self) -> bool:
        return bool(self.clients or self.topics)


class OverloadSettings(Section):
    """Marks above which the broker defends itself, until it is below the low one again: it refuses new clients, drops
    QoS 0 messages that would have to wait, and reads from publishers for a fifth of the time. 0 as a high mark turns
    it off."""

    interval: OptionalDuration = key(
        None,
        "How often memory, lag and open files are measured. 0 turns this off. When it is not set: every second in a "
        "standalone broker, never in a broker inside another process.",
        "seconds",
        ge=0,
    )
    memory_high: MarkText = key(
        "80%", "Memory of the process, as a share of the machine's or of its control group's limit, or in bytes."
    )
    memory_low: MarkText = key("70%", "The same, when it is over.")
    lag_high: Duration = key(
        0.5, "How late the event loop is, as the least of three measurements in a row.", "seconds", ge=0
    )
    lag_low: Duration = key(0.1, "The same, when it is over.", "seconds", ge=0)
    files_high: FileMarkText = key(
        "90%", "Open file descriptors, as a share of the limit (RLIMIT_NOFILE), or as a number."
    )
    files_low: FileMarkText = key("80%", "The same, when it is over.")
