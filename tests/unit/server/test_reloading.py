"""Another reading of the configuration: what of it holds at once, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.groups.group_map import Group, GroupMap
from legato.server.config.configuration import Config, load
from legato.server.config.group_maps import last_group_map
from legato.server.config.restart import given, reloaded, take, tell_restart
from legato.server.identity.users import Users
from legato.server.process.usable import read_again, renewed

ANN = '[auth]\nusers = { ann = "a" }\n'
TLS = '[tls]\ncertificate = "c"\nkey = "k"\n'


def read(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "legato.toml"
    file.touch(mode=0o600)
    file.write_text(text)
    return load(file, store=tmp_path / "store", environment={})


def test_what_holds_at_once_is_taken_and_nothing_else(tmp_path: Path) -> None:
    config = read(tmp_path, '[ledger]\ndetail = "all"\n')
    again = read(tmp_path, f'{ANN}[limits]\nname_bytes = 9\n[[address]]\nmatch = "a"\n[[role]]\nname = "r"\n')
    assert take(config, reloaded(config, again)) == ["address", "auth", "limits", "role"]
    assert (config.auth, config.limits, config.address, config.role, config.ledger.detail) == (
        *(again.auth, again.limits, again.address, again.role),
        "all",
    )
    assert config.origins is again.origins
    assert take(config, reloaded(config, again)) == []


def test_certificates_are_taken_where_there_is_tls_before_and_behind(tmp_path: Path) -> None:
    without, one, other = (
        read(tmp_path, text and f'[tls]\ncertificate = "{text}"\nkey = "k"\n') for text in ("", "one", "other")
    )
    assert reloaded(one, other).tls.certificate == "other"
    assert reloaded(one, without).tls.certificate == "one"
    assert reloaded(without, one).tls.certificate == ""


def map_of(tmp_path: Path, revision: int) -> Path:
    file = tmp_path / f"groups-{revision}.json"
    group_map = GroupMap(revision, (Group("orders", ("localhost:5672",)),))
    file.write_bytes(group_map.encode())
    return file


def in_group(tmp_path: Path, file: Path, name: str = "orders") -> Config:
    return read(tmp_path, f'[groups]\nname = "{name}"\nmap = "{file}"\n')


def test_another_map_of_groups_holds_at_once_and_needs_no_restart(tmp_path: Path) -> None:
    config = in_group(tmp_path, map_of(tmp_path, 1))
    started, again = given(config), in_group(tmp_path, second := map_of(tmp_path, 2))
    found, _ = renewed(config, again, Users())
    take(config, found)
    second.write_text('{"revision":' + 50_000 * "[")
    for _ in range(2):
        group_map = last_group_map(config)
        assert group_map is not None
        assert group_map.revision == 2, "the last one that could be used"
        second.unlink(missing_ok=True)
    assert tell_restart(started, again) == []


def test_a_map_without_this_group_is_not_gone_by(tmp_path: Path) -> None:
    """The backup that was to take over ended, though it had one with its group."""
    config = in_group(tmp_path, file := map_of(tmp_path, 1))
    assert last_group_map(config) is not None
    file.write_bytes(GroupMap(2, (Group("others", ("localhost:5672",)),)).encode())
    for _ in range(2):
        group_map = last_group_map(config)
        assert group_map is not None
        assert group_map.revision == 1


def test_an_older_map_is_not_gone_by(tmp_path: Path) -> None:
    """A backup whose file was put back took over with it, where a primary refuses to read it again."""
    config = in_group(tmp_path, file := map_of(tmp_path, 2))
    assert last_group_map(config) is not None
    file.write_bytes(map_of(tmp_path, 1).read_bytes())
    with pytest.raises(ConfigError, match="has revision 1, and there is a later one, 2"):
        renewed(config, in_group(tmp_path, file), Users())
    for _ in range(2):
        group_map = last_group_map(config)
        assert group_map is not None
        assert group_map.revision == 2


def test_a_broker_stays_in_its_group(tmp_path: Path) -> None:
    file = map_of(tmp_path, 1)
    config = in_group(tmp_path, file)
    file.write_bytes(GroupMap(2, (Group("others", ("localhost:5672",)),)).encode())
    with pytest.raises(ConfigError, match=r"groups\.name was 'orders' and is 'others'"):
        renewed(config, in_group(tmp_path, file, "others"), Users())


def test_what_would_be_safe_only_after_a_restart_is_refused(tmp_path: Path) -> None:
    """Anonymous peers were let in at all addresses of the machine: the new file listens on loopback only."""
    config = read(tmp_path, '[server]\nlisten = "0.0.0.0:5672"\n' + TLS + ANN)
    again = read(tmp_path, '[server]\nlisten = "localhost:5672"\n[auth]\nanonymous = true\n')
    with pytest.raises(ConfigError, match=r"until this broker is started again, and so: .*0\.0\.0\.0:5672"):
        renewed(config, again, Users.load(config))


def test_an_empty_file_is_refused_where_it_had_something(tmp_path: Path) -> None:
    config, empty = read(tmp_path, ANN), read(tmp_path, "")
    with pytest.raises(ConfigError, match="is empty"):
        renewed(config, empty, Users.load(config))
    assert renewed(empty, read(tmp_path, "# nothing\n"), Users())[0].auth == empty.auth


def test_what_nobody_has_foreseen_is_told_as_a_mistake(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asked for another reading was cut off, and so the next connection, in which the command asked again."""

    def read_config() -> Config:
        raise ValueError("what a parser of tomorrow raises")

    with pytest.raises(ConfigError, match="the broker's log says why"):
        read_again(read(tmp_path, ANN), read_config, Users())
    assert "what a parser of tomorrow raises" in caplog.text
