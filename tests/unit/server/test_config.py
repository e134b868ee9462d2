"""Settings: where they come from, and what is said of those that cannot be used."""

from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.server.config.configuration import Config, load


def of(file: Path | None = None, **environment: str) -> Config:
    return load(file, store=Path("/s"), environment=environment)


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text('[server]\nlisten = "a:1"\ncontainer_id = "file"\n[store]\nmap_bytes = 1000000\n')
    config = load(
        file,
        environment={"LEGATO_SERVER_LISTEN": "b:2", "LEGATO_SERVER_CONTAINER_ID": "env"},
        store=Path("/s"),
        listen="c:3",
    )
    assert config.host_and_port == ("c", 3)
    assert config.server.container_id == "env"
    assert config.store.map_bytes == 1_000_000
    assert config.server.idle_timeout_ms == 60_000


def test_the_environment_speaks_in_text() -> None:
    config = of(LEGATO_STORE_LOG_FACTS="false", LEGATO_STORE_MAP_BYTES="4096")
    assert config.store.log_facts is False
    assert config.store.map_bytes == 4096


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        (
            '[server]\nlog_levl = "INFO"',
            {},
            r"toml: \[server\] has no setting 'log_levl'\. Did you mean log_level\?",
        ),
        ("[sever]", {}, r"legato\.toml: there is no section 'sever'\. Did you mean \[server\]\?"),
        ("[wholly-else]", {}, r"there is no section 'wholly-else'\. There are server, store"),
        (
            "[limits.total]\nconection = 1",
            {},
            r"\[limits\.total\] has no setting .* Did you mean connections\?",
        ),
        ("[ha]\nqqq = 1", {}, r"\[ha\] has no setting 'qqq'\. It has heartbeat_interval_s, "),
        (
            "",
            {"LEGATO_STORE_MAP_BYTE": "1"},
            r"^LEGATO_STORE_MAP_BYTE: \[store\] has no setting 'map_byte'\. Did you mean LEGATO_STORE_MAP_BYTES\?$",
        ),
        ("", {"LEGATO_STORE_MAP_BYTES": "x"}, r"^LEGATO_STORE_MAP_BYTES: store\.map_bytes: expected int, got str\.$"),
        ("[store]\nmap_bytes = []", {}, r"legato\.toml: store\.map_bytes: expected int, got array\.$"),
    ],
)
def test_a_setting_that_there_is_not_is_named_with_its_place_and_what_was_meant(
    tmp_path: Path, text: str, environment: dict[str, str], said: str
) -> None:
    """USERS part 1: msgspec's errors named no file, no line, no variable."""
    file = tmp_path / "legato.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        of(file, **environment)


def test_a_store_directory_is_needed() -> None:
    with pytest.raises(ConfigError, match="--store"):
        load(environment={})


@pytest.mark.parametrize(
    ("section", "line", "named"),
    [
        ("server", 'lisen = "x"', "lisen"),
        ("server", 'listen = "nonsense"', "HOST:PORT"),
        ("server", "idle_timeout_ms = -1", "idle_timeout_ms"),
        ("store", 'map_bytes = "many"', "map_bytes"),
        ("server", 'log_level = "LOUD"', "log_level"),
        ("server", 'log_format = "xml"', "log_format"),
        ("tls", 'certificate = "x"', "tls.key"),
        ("auth", 'mechanisms = ["LOGIN"]', "mechanisms"),
        ("auth", "failed_logins = { most = 0 }", "failed_logins.most"),
        ("ha", "heartbeat_interval_s = 0", "heartbeat_interval_s"),
        ("ha", 'addresses = ["nowhere"]', "HOST:PORT"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, section: str, line: str, named: str) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(f"[{section}]\n{line}\n")
    with pytest.raises(ConfigError, match=named):
        of(file)


@pytest.mark.parametrize(("heartbeat_s", "activation_s", "good"), [(3, 6, True), (3, 5.9, False), (6, 10, False)])
def test_the_activation_interval_is_at_least_two_heartbeats(
    tmp_path: Path, heartbeat_s: float, activation_s: float, good: bool
) -> None:
    """CONTRACT B20."""
    file = tmp_path / "legato.toml"
    file.write_text(f"[ha]\nheartbeat_interval_s = {heartbeat_s}\nactivation_interval_s = {activation_s}\n")
    if good:
        assert of(file).ha.activation_interval_s == activation_s
    else:
        with pytest.raises(ConfigError, match="at least twice"):
            of(file)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text("= nothing")
    with pytest.raises(ConfigError, match=r"legato\.toml"):
        of(file)
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        of(tmp_path / "missing.toml")


def test_users_come_as_flags() -> None:
    assert load(store=Path("/s"), users=["ann:a:b"], environment={}).auth.users == {"ann": "a:b"}
    with pytest.raises(ConfigError, match="NAME:PASSWORD"):
        load(store=Path("/s"), users=["ann"], environment={})


def test_ipv6_addresses_come_in_brackets() -> None:
    assert load(store=Path("/s"), listen="[::1]:5672", environment={}).host_and_port == ("::1", 5672)


def test_memory_of_the_bulk_process_is_bounded_by_what_it_needs(tmp_path: Path) -> None:
    def config_with(value: str) -> Config:
        return load(store=tmp_path, environment={"LEGATO_BULK_MEMORY_BYTES_MAX": value} if value else {})

    assert config_with("").bulk_memory_bytes_max >= 4 << 30
    assert config_with("0").bulk_memory_bytes_max == 0
    assert config_with(str(5 << 30)).bulk_memory_bytes_max == 5 << 30
    with pytest.raises(ConfigError, match=r"bulk\.memory_bytes_max is 4294967296 or more"):
        config_with("700000000")
