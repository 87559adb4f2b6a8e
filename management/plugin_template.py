"""Writes the package of a working plugin with tests, from the files in template/."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from errno import EEXIST, ENOENT
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template
from typing import Final

from trunkline import __version__
from trunkline.plugins.errors import PluginError
from trunkline.plugins.finding import check_name, installed

#: Files and folders of the template that are renamed after the plugin, or that tools must not pick up.
_CALLED: Final = {
    "gitignore": ".gitignore",
    "src/package": "src/$package",
    "tests/test_plugin.py": "tests/test_$module.py",
}
_SUFFIX: Final = ".tmpl"
#: With longer names, lines in the template would be too long.
_MAX_NAME: Final = 40


def write_plugin(name: str, directory: Path) -> None:
    """Create a folder with the package of a plugin of this name. It appears only when it is complete.

    Raises:
        PluginError: the name is not valid for a plugin, or an installed plugin has it.
        OSError: the folder is not empty or cannot be created.
    """
    check_name(name)
    if len(name) > _MAX_NAME:
        raise PluginError([f"{name!r}: longer than {_MAX_NAME} characters"])
    if (taken := installed().get(name)) is not None:
        raise PluginError([f"a plugin {name!r} is installed already: {taken.value} of {taken.package}"])
    if directory.exists():
        raise FileExistsError(EEXIST, "exists already; nothing was written", str(directory))
    if not directory.parent.is_dir():
        raise FileNotFoundError(ENOENT, "is not a folder", str(directory.parent))
    module = name.replace("-", "_")
    words = {
        "name": name,
        "module": module,
        "package": f"trunkline_{module}",
        "distribution": f"trunkline-{name}",
        "class": "".join(part.capitalize() for part in name.split("-")),
        "version": __version__,
    }
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as draft:
        made = Path(draft, directory.name)
        for path, text in rendered(words):
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        os.rename(made, directory)


def rendered(words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The paths and contents of the files."""
    for path, file in _files(files("trunkline.management") / "template", PurePosixPath()):
        target = path.removesuffix(_SUFFIX)
        for ours, theirs in _CALLED.items():
            if target == ours or target.startswith(f"{ours}/"):
                target = theirs + target.removeprefix(ours)
        yield Template(target).substitute(words), Template(file.read_text(encoding="utf-8")).substitute(words)


def _files(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            yield str(path / entry.name), entry
