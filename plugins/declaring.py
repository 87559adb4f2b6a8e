"""A plugin's declarations: its settings, and the methods that are hooks."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar, Unpack, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from trunkline.config.section import PluginSettings, Section, key
from trunkline.config.units import accepted
from trunkline.hooks.points import find
from trunkline.hooks.registration import HookError, Registration, RegistrationOptions, check_options, describe, is_async
from trunkline.plugins.context import Context
from trunkline.plugins.errors import PluginError

C = TypeVar("C", bound=Callable[..., Any])

_MARK: Final = "__trunkline_hooks__"

#: A plugin: called with its `Context`, it returns its object (a class does), nothing (a function that has registered
#: what it wants), or something to await.
Factory = Callable[[Any], Any]


#: The settings of a plugin: subclass it, and give each key its default and its meaning with `setting`. `class
#: Greeting(Settings): word: Text = setting("hello", "What clients are greeted with.")`. The types of keys are those of
#: `trunkline.config.units`; an invalid value is refused like one of the broker's own settings.
Settings = PluginSettings

#: A table within the settings, or one entry of a list of tables. Its keys are declared like those of the settings.
Table = Section

#: A key of the settings: default, meaning, unit, and limits as pydantic's Field has them (`ge`, `le`, `max_length`, …).
setting = key


class Hooked(NamedTuple):
    """A method to register at a hook point."""

    point: str
    options: RegistrationOptions


def hook(point: str, **options: Unpack[RegistrationOptions]) -> Callable[[C], C]:
    """Mark a method of a plugin's class: it is registered at this point when the plugin starts, as `Hooks.add` does.

    Raises:
        TypeError: the point is not text, as with a bare `@hook`.
        HookError: there is no such point, or an option is wrong.
    """
    if not isinstance(point, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'hook takes the name of a point, as in @hook("client.connected"), not {point!r:.80}')

    def mark(method: C) -> C:
        try:
            find(point)
        except LookupError as error:
            raise HookError(f"{describe(method)}: {error}") from None
        check_options(method, options)
        marks: list[Hooked] = getattr(method, _MARK, [])
        setattr(method, _MARK, [*marks, Hooked(point, options)])
        return method

    return mark


def hooked_methods(plugin: object) -> list[tuple[Callable[..., Any], Hooked]]:
    """The marked methods of a plugin's object, in the order in which its class has them."""
    return [(getattr(plugin, name), mark) for name, mark in marks(type(plugin))]


def marks(kind: type) -> list[tuple[str, Hooked]]:
    """The names of a class's marked methods, and their marks."""
    found: list[tuple[str, Hooked]] = []
    for name in dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base)):
        method = inspect.getattr_static(kind, name)  # not the result of a descriptor, which may be anything
        inner = getattr(method, "__func__", None)  # of a static or class method
        found += [(name, mark) for mark in getattr(method, _MARK, getattr(inner, _MARK, []))]
    return found


def settings_of(factory: Factory) -> type[Settings]:
    """The settings model of a plugin, from the annotation of its parameter: `context: Context[MySettings]`.

    Raises:
        PluginError: it cannot be called with a context, its annotation is something else, a method that it marks does
            not fit its point, or its `run` cannot be a task.
    """
    if problems := list(_misfits(factory)):
        raise PluginError(problems)
    if inspect.isclass(factory) and inspect.isfunction(inspect.getattr_static(factory, "run", None)):
        check_run(factory)
    name = describe(factory)
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError) as error:
        raise PluginError([f"{name} is not a plugin: {error}"]) from None
    except NameError as error:
        raise _unreadable(name, error) from None
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not parameters or len(needed) > 1 or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise PluginError([f"{name} is not a plugin: it must be callable with one argument, its Context"])
    if parameters[0].annotation is inspect.Parameter.empty:
        return Settings
    try:
        hint = _evaluated(factory, parameters[0].annotation)
    except NameError as error:
        raise _unreadable(name, error) from None
    if hint is Context:
        return Settings
    model = get_args(hint)[0] if get_origin(hint) is Context else None
    if not (isinstance(model, type) and issubclass(model, Settings)):
        raise PluginError(
            [f"{name}: its argument is annotated {hint!r}; a plugin takes a Context[...] of its Settings"]
        )
    for key_name, field in Settings.model_fields.items():
        if model.model_fields[key_name].annotation != field.annotation:
            raise PluginError([f"{describe(model)}.{key_name}: every plugin has this key; call your own another name"])
    if problems := list(_wrong_defaults(model)):
        raise PluginError(problems)
    return model


def check_run(plugin: object) -> None:
    """
    Raises:
        PluginError: the `run` of this plugin's object, or of its class, cannot be a task.
    """
    run = getattr(plugin, "run", None)
    if run is not None and not is_async(run):
        raise PluginError([f"{describe(run)} is plain; `run` is a task, and async"])


def _misfits(factory: Factory) -> Iterator[str]:
    """A mistake shows when the configuration is checked, not when the plugin starts."""
    for name, mark in marks(factory) if inspect.isclass(factory) else ():
        method = inspect.getattr_static(factory, name)
        if inspect.isfunction(method):
            method = MethodType(method, factory)  # its signature is that of an object's
        elif isinstance(method, staticmethod | classmethod):
            method = getattr(factory, name)
        else:
            continue  # another descriptor needs an object
        try:
            Registration(find(mark.point), method, **mark.options)
        except HookError as error:
            yield str(error)


def _wrong_defaults(model: type[Settings]) -> Iterator[str]:
    """A mistake shows at the start, not when the value is used."""
    try:
        model()
    except ValidationError as error:
        for detail in error.errors():
            if detail["loc"] and detail["type"] != "missing":
                name = str(detail["loc"][0])
                field = model.model_fields[name]
                default = f"{describe(model)}.{name}: the default {field.get_default(call_default_factory=True)!r}"
                yield f"{default} does not fit: accepted is {accepted(field)}"


def _evaluated(factory: Factory, annotation: object) -> object:
    """Evaluates an annotation, which may be text. `Context` may be missing: many plugins import it for type checkers
    only."""
    function: Any = inspect.unwrap(factory)
    while isinstance(function, partial):
        function = function.func
    if inspect.isclass(function):
        function = function.__init__
    elif not inspect.isroutine(function):
        function = type(function).__call__
    names = {Context.__name__: Context, **getattr(function, "__globals__", {})}
    return get_type_hints(SimpleNamespace(__annotations__={"context": annotation}), names)["context"]


def _unreadable(name: str, error: NameError) -> PluginError:
    hint = "the settings class must be at module level and imported at run time, not for type checkers only"
    return PluginError([f"{name}: its annotations cannot be read: {error}; {hint}"])
