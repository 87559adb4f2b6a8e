from pathlib import Path

from trunkline.config.security_settings import AuthSettings


def test_the_files_with_credentials_by_what_is_in_them() -> None:
    auth = AuthSettings(password_file=Path("p"), client_id_file=Path("c"), scram_file=Path("s"))
    assert auth.files._asdict() == {
        "password_file": Path("p"),
        "client_id_file": Path("c"),
        "scram_file": Path("s"),
    }
    assert AuthSettings().files == (None, None, None)
