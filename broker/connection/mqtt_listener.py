"""What the MQTT connections of one listener share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.rate_limits import NodeLimits, RateLimits
from trunkline.hooks.client import IN_PROCESS
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.connection.negotiation import Draw
    from trunkline.broker.net.failure_log import FailureLog
    from trunkline.broker.session.directory import Directory
    from trunkline.broker.session.services import Services
    from trunkline.config.config import Config
    from trunkline.config.listener_settings import ListenerSettings


_ALL_VERSIONS: Final = frozenset(Version)


class MqttListener:
    __slots__ = (
        "_node_limits",
        "allow_anonymous",
        "authenticators",
        "config",
        "directory",
        "draw",
        "durable",
        "failures",
        "limits",
        "mountpoint",
        "name",
        "services",
        "versions",
    )

    def __init__(
        self,
        services: Services,
        directory: Directory,
        failures: FailureLog,
        node_limits: Callable[[Config], NodeLimits],
        config: Config,
        settings: ListenerSettings | None,
        draw: Draw | None = None,
    ) -> None:
        """`node_limits` gives the limits of all listeners together, `draw` chooses client ids that are assigned."""
        self.draw = draw
        self.services = services
        self.directory = directory
        self.failures = failures
        self._node_limits = node_limits
        self.configure(config, settings)

    def configure(self, config: Config, settings: ListenerSettings | None) -> None:
        """Without settings these are connections inside the process."""
        self.allow_anonymous = config.allows_anonymous(settings)
        limits = self._node_limits(config)
        if settings is None:
            self.name = IN_PROCESS
            #: The settings that hold here: those of the listener's zone before the general ones.
            self.config = config
            self.limits = RateLimits(limits)
            self.versions = _ALL_VERSIONS
            #: Whether what its clients get acknowledged is stored.
            self.durable = True
            #: The authenticators that it asks; None if it asks all.
            self.authenticators: tuple[str, ...] | None = None
            #: The template of its clients' topic prefix; empty if they have none.
            self.mountpoint = ""
        else:
            self.name = settings.label
            self.config = config.at(settings)
            self.limits = RateLimits(limits, settings.rate, self.config.rate, self.name)
            self.versions = frozenset(version for version in Version if str(version) in settings.versions)
            self.durable = settings.durability != "memory"
            self.authenticators = settings.authenticators
            self.mountpoint = settings.mountpoint
