"""Which store a command is for, and its parts."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trunkline.config.config import Config
from trunkline.management.command_line import fail
from trunkline.management.store_place import Place, StorePart, of_store
from trunkline.management.workers.terms import content
from trunkline.store import StoreCorrupt, StoreInUse, StoreUnavailable
from trunkline.store.replacing import beside


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "a.db", Config())


def test_one_process_has_one_part(place: Place) -> None:
    assert place.parts == [StorePart(place.path)]
    assert not place.is_divided
    assert not place.is_part


def test_several_workers_have_one_each(place: Place, tmp_path: Path) -> None:
    (tmp_path / "a.db-workers").write_text(content(2, 1))
    assert place.parts == [StorePart(tmp_path / "a.0.db", "part 0"), StorePart(tmp_path / "a.1.db", "part 1")]
    assert place.is_divided
    assert Place(tmp_path / "a.1.db", Config()).is_part
    assert not Place(tmp_path / "b.1.db", Config()).is_part
    (tmp_path / "a.db-workers").write_text("{")
    with pytest.raises(StoreCorrupt, match="a.db-workers is damaged"):
        place.parts  # noqa: B018 - it reads the file


def test_nobody_has_parts_while_others_are_about_to_take_their_place(place: Place) -> None:
    beside(place.path, "-ready").mkdir()
    with pytest.raises(StoreUnavailable, match="go on with `trunkline store reshard N`"):
        place.parts  # noqa: B018 - it looks at the files


def test_each_part_has_its_turn_and_the_worst_code_is_returned(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.db-workers").write_text(content(4, 1))

    def command(part: StorePart) -> None:
        match part.name:
            case "part 0":
                raise StoreUnavailable("no room")
            case "part 1":
                fail(["wrong"], 2)
            case "part 2":
                raise StoreInUse("in use")
            case _:
                click.echo(part.path.name)

    assert place.for_each_part(command) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == ["part 0:", "part 1:", "part 2:", "part 3:", "a.3.db"]
    assert err.splitlines() == [
        "trunkline: no room",
        "trunkline: wrong",
        "trunkline: in use: stop that broker first",
    ]
    assert place.for_each_part(lambda part: None, named=False) == 0
    assert capsys.readouterr().out == ""


def test_a_command_is_given_the_place_that_is_named(tmp_path: Path) -> None:
    found = list[tuple[Path, bool]]()

    @click.command()
    @of_store
    def command(place: Place) -> None:
        found.append((place.path, place.config.session.upgrade_qos))

    config = tmp_path / "broker.toml"
    config.write_text("[session]\nupgrade_qos = true\n")
    done = CliRunner().invoke(command, ["--config", str(config), "--store", str(tmp_path / "b.db")])
    assert done.exit_code == 0, done.output
    assert found == [(tmp_path / "b.db", True)]
