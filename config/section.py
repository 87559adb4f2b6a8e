"""What the sections of the configuration have in common. A section holds each key's name, default, limits, unit and
meaning; docs/configuration.md is written from them (`python -m trunkline.management.config_docs`). The models are
immutable, so that a part of the broker may keep the section that it read. Changing a setting means a new `Config`.
"""

from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trunkline.config.units import Duration, Flag, Whole

#: What a plugin runs once for.
Scope: TypeAlias = Literal["worker", "node"]


def key(default: Any, text: str, unit: str = "", **limits: Any) -> Any:
    """A setting: its meaning and its unit."""
    return Field(default, description=text, json_schema_extra={"unit": unit}, **limits)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def expanded(cls, value: object) -> object:
        """A table in its long form, where there is a short one.

        Raises:
            ValueError: the short form is invalid.
        """
        return value


class PluginSettings(Section):
    """Every plugin has these keys besides its own. A section with its name, even an empty one, enables a plugin."""

    model_config = ConfigDict(validate_default=True)

    #: Hook points that deny everything while the plugin should run and does not: nothing else decides in its place.
    guards: ClassVar[tuple[str, ...]] = ()
    #: Modules that the plugin imports only when it is made. A running broker imports them in a worker thread.
    imports: ClassVar[tuple[str, ...]] = ()

    enabled: Flag = key(True, "Whether the plugin runs when the broker starts.")
    scope: Scope = key(
        "worker",
        "Which of several workers of a node run the plugin: each, or for `node` the first alone. A plugin with hooks "
        "runs in each.",
    )
    start_timeout: Duration = key(60.0, "A plugin whose start takes longer has failed.", "seconds", gt=0)
    restarts: Whole = key(5, "Crashes within `restarts_within` after which the plugin is restarted.", "restarts", ge=0)
    restarts_within: Duration = key(
        60.0, "The time in which crashes are counted. One more than `restarts` disables the plugin.", "seconds", gt=0
    )

    @model_validator(mode="after")
    def _decides_everywhere(self) -> Self:
        if self.scope == "node" and self.guards:
            raise ValueError(f'scope = "node" is not for a plugin that decides: it guards {", ".join(self.guards)}')
        return self

    @property
    def authenticates(self) -> bool:
        """Clients can prove to it who they are."""
        return self.enabled and any("authenticate" in point for point in self.guards)
