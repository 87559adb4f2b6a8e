"""What can be wrong with a plugin."""


class PluginError(Exception):
    """A plugin cannot be used as it is. `problems` says all that is wrong with it, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
