"""The hooks of a run: when they are in force."""

from trunkline.hooks import ClientInfo, Hooks
from trunkline.hooks.points import Point
from trunkline.plugins import Settings
from trunkline.plugins.registered import PluginHooks


class Run:
    name = "diary"
    authenticates = False
    settings = Settings()

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def check_alive(self) -> None: ...

    def forget_decisions(self, *points: Point) -> None:
        self.forgotten += [point.name for point in points]


def note(client: ClientInfo) -> None: ...


def another(client: ClientInfo) -> None: ...


def names(hooks: Hooks) -> list[str]:
    return [entry.callback.__name__ for entry in hooks.listing("client.connected")]


def test_they_come_into_force_together_and_go_together() -> None:
    hooks, run = Hooks(), Run()
    own = PluginHooks(run, hooks)
    assert own.add("client.connected", note)
    assert not own.add("client.connected", note)
    assert own.add("client.connected", another)
    assert own.add("client.disconnected", lambda *_: None)
    assert own.remove("client.connected", another)
    assert (names(hooks), len(own), run.forgotten) == ([], 0, [])
    own.put_in_force(None)
    assert (names(hooks), len(own)) == (["note"], 2)
    own.add("client.connected", another)
    own.remove("client.connected", note)
    assert (names(hooks), run.forgotten) == (["another"], ["client.connected"] * 2)
    own.release()
    assert (hooks.listing(), len(own)) == ([], 0)


def test_those_of_another_run_go_in_the_same_step() -> None:
    """Though both have the same function there."""
    hooks = Hooks()
    former, later = PluginHooks(Run(), hooks), PluginHooks(Run(), hooks)
    former.add("client.connected", note)
    former.put_in_force(None)
    later.add("client.connected", note)
    later.put_in_force(former)
    assert (names(hooks), len(former), len(later)) == (["note"], 0, 1)
    former.release()
    assert names(hooks) == ["note"]
    later.release()
    assert names(hooks) == []


def test_a_run_that_never_came_into_force_leaves_those_of_the_other() -> None:
    hooks = Hooks()
    former, later = PluginHooks(Run(), hooks), PluginHooks(Run(), hooks)
    former.add("client.connected", note)
    former.put_in_force(None)
    later.add("client.connected", note)
    later.release()
    assert names(hooks) == ["note"]
