"""What a plugin's class or function says of itself."""

from functools import partial, partialmethod
from typing import Any

import pytest

from trunkline.config.units import Duration, Text, Whole
from trunkline.hooks import HookError
from trunkline.plugins import Context, PluginError, Settings, hook, setting
from trunkline.plugins.declaring import hooked_methods, marks, settings_of


class Own(Settings):
    word: Text = setting("hello", "What it says.")


class Plugin:
    def __init__(self, context: Context[Own]) -> None: ...

    @hook("client.connected", priority=5)
    def first(self, client: object) -> None: ...

    @hook("client.connected")
    @hook("client.connect")
    def second(self, *_: object) -> None: ...


class Derived(Plugin):
    @hook("client.disconnected")
    def third(self, *_: object) -> None: ...

    def first(self, client: object) -> None:
        """Without a mark of its own it is no hook any more."""


def plain(context: "Context[Own]") -> None: ...


async def asynchronous(context: Context[Own]) -> None: ...


def without_annotation(context) -> None: ...  # type: ignore[no-untyped-def]


def bare(context: Context) -> None: ...  # type: ignore[type-arg]


def with_a_default(context: Context[Own], size: int = 3) -> None: ...


@pytest.mark.parametrize("factory", [Plugin, Derived, plain, asynchronous, with_a_default])
def test_settings_are_what_the_context_is_annotated_with(factory: Any) -> None:
    assert settings_of(factory) is Own


@pytest.mark.parametrize("factory", [without_annotation, bare, partial(without_annotation)])
def test_without_an_annotation_they_are_the_common_ones(factory: Any) -> None:
    assert settings_of(factory) is Settings


def nothing() -> None: ...


def keyword_only(*, context: Context[Own]) -> None: ...


def unknown(context: "Context[Missing]") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (nothing, "must be callable with one argument"),
        (keyword_only, "must be callable with one argument"),
        (unknown, "annotations cannot be read: name 'Missing'"),
        (int, "is not a plugin"),
    ],
)
def test_what_is_no_plugin(factory: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        settings_of(factory)


LATER = """
from __future__ import annotations
from typing import TYPE_CHECKING
from trunkline.plugins import Settings
if TYPE_CHECKING:
    from trunkline.plugins import Context
    from somewhere import Missing, Absent
class Own(Settings): ...
class Plugin:
    def __init__(self, context: Context[Own], size: Missing = 3) -> None: ...
    def __call__(self, context: Context[Own]) -> Missing: ...
def function(context: Context["Own"]) -> Missing: ...
def absent(context: Context[Absent]) -> None: ...
"""


def test_what_is_imported_for_type_checkers_only_need_not_be_there() -> None:
    module: dict[str, Any] = {"__name__": "later"}
    exec(LATER, module)  # noqa: S102
    for factory in module["Plugin"], module["function"], partial(module["function"]), module["Plugin"](None):
        assert settings_of(factory) is module["Own"]
    with pytest.raises(
        PluginError, match=r"later\.absent: .* name 'Absent' is not defined; the settings class must be at module level"
    ):
        settings_of(module["absent"])


def test_marked_methods_come_in_the_order_of_the_class() -> None:
    plugin = Plugin(None)  # type: ignore[arg-type]
    found = [(method.__name__, mark.point, mark.options.get("priority", 0)) for method, mark in hooked_methods(plugin)]
    assert found == [
        ("first", "client.connected", 5),
        ("second", "client.connect", 0),
        ("second", "client.connected", 0),
    ]
    derived = Derived(None)  # type: ignore[arg-type]
    assert [method.__name__ for method, _ in hooked_methods(derived)] == ["second", "second", "third"]
    assert hooked_methods(object()) == []


class Descriptor:
    def __get__(self, *_: object) -> None:
        raise RuntimeError("nobody asked for it")


class Unusual:
    odd = Descriptor()

    @staticmethod
    @hook("client.connect")
    def inside(client: object, packet: object) -> None: ...

    @hook("client.connected")
    @staticmethod
    def outside(client: object) -> None: ...

    @classmethod
    @hook("client.disconnected")
    def shared(cls, client: object, reason: object, text: object) -> None: ...


def test_methods_without_self_and_attributes_of_any_kind() -> None:
    found = hooked_methods(Unusual())
    assert [(mark.point, method.__name__) for method, mark in found] == [
        ("client.connect", "inside"),
        ("client.connected", "outside"),
        ("client.disconnected", "shared"),
    ]


class Misfits:
    """Each method fits its point in every way but one."""

    def __init__(self, context: Context[Own]) -> None: ...

    @hook("client.connected")
    def too_many(self, client: object, packet: object) -> None: ...

    @hook("client.connected")
    def too_few(self) -> None: ...

    @hook("message.publish")
    def other_order(self, message: object, client: object) -> None: ...

    @hook("message.publish")
    async def cannot_wait(self, client: object, message: object) -> None: ...

    @hook("client.connected", filter=lambda: True)
    def filtered(self, client: object) -> None: ...

    @hook("client.connected", publications=True)
    def no_publication(self, client: object) -> None: ...

    @hook("client.connected")
    def fits(self, client: object) -> None: ...

    @staticmethod
    @hook("client.connected")
    def of_nothing(this: object, client: object) -> None: ...

    @classmethod
    @hook("client.connected")
    def of_the_class(cls, this: object, client: object) -> None: ...


def test_a_marked_method_that_does_not_fit_its_point_shows_before_the_plugin_starts() -> None:
    with pytest.raises(PluginError) as caught:
        settings_of(Misfits)
    misfits = [name for name, _ in marks(Misfits) if name != "fits"]
    for name, problem in zip(misfits, caught.value.problems, strict=True):
        assert f"Misfits.{name} " in problem or name == "filtered"


def test_a_run_that_is_no_task_shows_before_the_plugin_starts() -> None:
    class Plain:
        def __init__(self, context: Context[Own]) -> None: ...

        def run(self) -> None: ...

    class Odd:
        def __init__(self, context: Context[Own]) -> None: ...

        @property
        def run(self) -> None:
            """What it gives is known when there is an object."""

    with pytest.raises(PluginError, match=r"Plain\.run is plain; `run` is a task, and async"):
        settings_of(Plain)
    assert settings_of(Odd) is Own


def test_what_only_an_object_can_tell_is_left_to_the_start() -> None:
    class Partial:
        def __init__(self, context: Context[Own]) -> None: ...

        def say(self, word: str, client: object) -> None: ...

        greet = hook("client.connected")(partialmethod(say, "hello"))  # type: ignore[type-var]

    assert settings_of(Partial) is Own
    assert len(hooked_methods(Partial(None))) == 1  # type: ignore[arg-type]


def test_a_mark_without_a_point_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r'hook takes the name of a point, as in @hook\("client.connected"\), not <function'
    ):

        @hook  # type: ignore[arg-type]
        def listen(client: object) -> None: ...


@pytest.mark.parametrize(
    ("point", "options", "words"),
    [
        ("client.conected", {}, "no hook point is named 'client.conected'; did you mean client.connected"),
        ("client.connected", {"prority": 3}, r"a hook has no option 'prority'; did you mean priority\?"),
        ("client.connected", {"x": 3}, "a hook has no option 'x'; options are priority, filter, args, "),
        ("client.connected", {"priority": "high"}, "priority is 'high'; accepted is a whole number"),
    ],
)
def test_a_wrong_mark_shows_at_import_and_names_the_method(point: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HookError, match=rf"DoorBell\.reserve: {words}"):

        class DoorBell:
            @hook(point, **options)
            def reserve(self, client: object) -> None: ...


def test_a_key_that_every_plugin_has_keeps_its_type() -> None:
    class Other(Settings):
        restarts: Text = setting("many", "Something else.")  # type: ignore[assignment]

    class Same(Settings):
        restarts: Whole = setting(100, "More than others.")

    def plugin(context: object) -> None: ...

    plugin.__annotations__["context"] = Context[Same]
    assert settings_of(plugin) is Same
    plugin.__annotations__["context"] = Context[Other]
    with pytest.raises(PluginError, match=r"Other.restarts: every plugin has this key; call your own another name"):
        settings_of(plugin)


def test_a_default_that_does_not_fit_is_refused() -> None:
    class Wrong(Settings):
        every: Duration = setting("often", "Time between two.", "seconds")
        most: Whole = setting(-1, "A number.", ge=0)
        needed: Whole = setting(..., "A number.")

    def plugin(context: Context[Wrong]) -> None: ...

    with pytest.raises(
        PluginError, match="Wrong.every: the default 'often' does not fit.*\n.*Wrong.most: the default -1"
    ):
        settings_of(plugin)
