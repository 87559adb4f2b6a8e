import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trunkline import testing
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings
from trunkline.management.start_check import obstacles
from trunkline.management.tls_commands import tls

pytest.importorskip("trustme")


def test_certificates_for_development_are_trusted_by_clients(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    done = CliRunner().invoke(tls, ["selfsigned", str(folder), "--client", "device-1"])
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in folder.iterdir()) == [
        *("ca.key", "ca.pem", "device-1.key", "device-1.pem", "server.key", "server.pem")
    ]
    assert stat.S_IMODE((folder / "server.key").stat().st_mode) == 0o600
    again = CliRunner().invoke(tls, ["selfsigned", str(folder)])
    assert again.exit_code
    assert "exists already" in again.output
    more = CliRunner().invoke(tls, ["selfsigned", str(folder), "--client", "device-2"])  # by the same authority
    assert more.output.splitlines()[:2] == [str(folder / "device-2.pem"), str(folder / "device-2.key")]
    url = f"tls://127.0.0.1:0?cert={folder / 'server.pem'}&key={folder / 'server.key'}&ca={folder / 'ca.pem'}"
    tool = shutil.which("mosquitto_pub")
    if tool is None:
        pytest.skip("mosquitto_pub is not installed (Debian: mosquitto-clients)")
    with testing.broker(listeners=[url + "&tls.client_certificates=required&tls.username_from=cn"]) as b:
        options = ["--cafile", folder / "ca.pem", "--cert", folder / "device-2.pem", "--key", folder / "device-2.key"]
        where = [tool, "-h", b.host, "-p", str(b.port), "-t", "a", "-m", "b", "-q", "1", *options]
        subprocess.run(where, check=True, timeout=60)
        assert [row.refused for row in b.connections] == [""]


def test_an_authority_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    (tmp_path / "ca.key").write_text("no key")
    done = CliRunner().invoke(tls, ["selfsigned", str(tmp_path), "--client", "device-1"])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.key", "ca.pem"]


@pytest.mark.parametrize("name", ["server", "a/b", ".."])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(tls, ["selfsigned", str(tmp_path), "--client", name])
    assert done.exit_code
    assert not list(tmp_path.iterdir())


def test_without_its_library_the_command_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    done = CliRunner().invoke(tls, ["selfsigned", str(tmp_path)])
    assert done.exit_code
    assert "trunkline[tls]" in done.output


def test_a_check_of_the_configuration_reads_certificates(tmp_path: Path) -> None:
    listener = ListenerSettings.model_validate(f"tls://127.0.0.1:0?cert={tmp_path / 'none.pem'}")
    assert any("none.pem" in problem for problem in obstacles(Config(listeners=(listener,))))
