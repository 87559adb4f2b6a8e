"""The jobs that there are, as their modules declare them. Nothing of Spark is imported before a job is asked for."""

import ast
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.analytics.jobs.job import Job


class UnknownJob(ValueError):
    """No job has this name."""

    def __init__(self, name: str, hint: str | None = None) -> None:
        if hint is None:
            near = get_close_matches(name, summaries(), 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(summaries())}"
        super().__init__(f"no job {name!r}: {hint}")


@cache
def summaries() -> dict[str, str]:
    """What each job answers, in a line, by the job's name. The modules are read and not imported: they need Spark."""
    modules = (ast.parse(path.read_bytes()) for path in sorted(Path(__file__).parent.glob("*.py")))
    return {
        each.name.replace("_", "-"): (ast.get_docstring(each) or "").partition("\n")[0]
        for module in modules
        for each in module.body
        if isinstance(each, ast.FunctionDef) and any(map(_declares, each.decorator_list))
    }


def _declares(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "job"


def find(name: str) -> "Job[Any]":
    """The job of this name; of one that is not Trunkline's, `MODULE:FUNCTION`. Its module is imported now, and PySpark
    with it.

    Raises:
        UnknownJob: when no job has this name.
        ImportError: when there is no such module, or PySpark is not installed.
    """
    from trunkline.analytics.jobs.job import Job

    module, _, function = name.partition(":")
    if not function:
        if name not in summaries():
            raise UnknownJob(name)
        function = name.replace("-", "_")
        module = f"trunkline.analytics.jobs.{function}"
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise  # one that the module imports
        raise UnknownJob(name, f"no module {module} is in this folder or installed") from None
    found = getattr(imported, function, None)
    if not isinstance(found, Job):
        raise UnknownJob(name, f"{module} has no function {function} that is declared with `job`")
    if ":" in name:  # Spark's workers may not have it
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
    return found
