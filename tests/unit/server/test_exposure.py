"""Exposure: with which settings a broker starts, and whether anonymous peers are let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.server.config.configuration import Config, load
from legato.server.identity.exposure import admits_anonymous, check_exposure, find_views
from legato.server.identity.users import Users


def of(tmp_path: Path, text: str = "", *, insecure: bool | None = None) -> tuple[Config, Users]:
    file = tmp_path / "legato.toml"
    file.write_text(text)
    file.chmod(0o600)
    config = load(file, store=tmp_path / "store", insecure=insecure, environment={})
    return config, Users.load(config)


ANN = '[auth]\nusers = { ann = "a" }\n'
BEYOND = '[server]\nlisten = "0.0.0.0:5672"\n'
TLS = '[tls]\ncertificate = "c"\nkey = "k"\n'


@pytest.mark.parametrize("listen", ["localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1"])
def test_a_listener_on_loopback_without_users_admits_anybody(tmp_path: Path, listen: str) -> None:
    config, users = of(tmp_path, f'[server]\nlisten = "{listen}"\n')
    assert check_exposure(config, users) == []
    assert admits_anonymous(config, users)


def test_users_end_that(tmp_path: Path) -> None:
    config, users = of(tmp_path, ANN)
    assert check_exposure(config, users) == []
    assert not admits_anonymous(config, users)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BEYOND, "no users.*no TLS"),
        (BEYOND + ANN, "no TLS"),
        (BEYOND + TLS, "no users"),
        ('[server]\nlisten = "[::]:5672"\n', "no users"),
        ('[bulk]\nlisten = "0.0.0.0:5673"\n', "bulk.listen is 0.0.0.0:5673.*no users.*no TLS"),
        ('[bulk]\nlisten = "0.0.0.0:5673"\n' + ANN, "no TLS"),
        ('[server]\nlisten = "no-such-host.invalid:5672"\n', "no users"),
        (BEYOND + TLS + "[auth]\nanonymous = true\n", "anonymous"),
        (ANN + "anonymous = true\n", "anonymous"),
    ],
)
def test_what_strangers_could_use_is_refused_with_the_remedy_unless_it_is_meant(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"{said}.*--insecure"):
        check_exposure(*of(tmp_path, text))
    assert check_exposure(*of(tmp_path, text, insecure=True))


def test_a_listener_beyond_loopback_with_tls_and_users_starts(tmp_path: Path) -> None:
    config, users = of(tmp_path, BEYOND + TLS + ANN)
    assert check_exposure(config, users) == []
    assert not admits_anonymous(config, users)


def test_a_broker_that_nobody_could_log_in_to_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Nobody could connect"):
        check_exposure(*of(tmp_path, "[auth]\nanonymous = false\n"))


def test_passwords_in_a_configuration_that_others_may_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(ANN)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load(file, store=tmp_path, environment={})


def test_a_private_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(mode=0o644)
    with pytest.raises(ConfigError, match=r"chmod 600 .*key\.pem"):
        of(tmp_path, f'[tls]\ncertificate = "c"\nkey = "{key}"\n')


@pytest.mark.parametrize(("listen", "seen"), [("0.0.0.0:9464", True), (":9464", False), ("127.0.0.1:9464", False)])
def test_the_log_says_who_may_look_at_figures_without_a_login(tmp_path: Path, listen: str, seen: bool) -> None:
    config, _ = of(tmp_path, f'[http]\nlisten = "{listen}"\n' + ANN)
    assert bool(find_views(config)) == seen
