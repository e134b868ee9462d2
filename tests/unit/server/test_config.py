"""Settings: where they come from, and what is said of those that cannot be used."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.core.settings import AddressSettings
from legato.errors import ConfigError
from legato.server.config.addresses import Addresses
from legato.server.config.bounds import SomeUserBounds
from legato.server.config.configuration import Config, load, memory_mark
from legato.server.config.units import with_unit
from legato.server.identity.users import Users
from legato.server.identity.users_file import User, UsersFile
from legato.server.process.usable import see_usable
from legato.server.storage.ledger_process import LedgerProcess


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
            r"legato\.toml, line 2: \[server\] has no setting 'log_levl'\. Did you mean log_level\?",
        ),
        ("[sever]", {}, r"legato\.toml, line 1: there is no section 'sever'\. Did you mean \[server\]\?"),
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
        (
            "",
            {"LEGATO_STORE_MAP_BYTES": "x"},
            r"^LEGATO_STORE_MAP_BYTES: store\.map_bytes is 'x': give a number of bytes, ",
        ),
        (
            "[store]\nmap_bytes = []",
            {},
            r"legato\.toml, line 2: store\.map_bytes: expected a whole number, got a list in brackets\.$",
        ),
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
        ("replication", 'seed_from = "http://a"', "replication.seed_from: A connection URI begins with"),
        ("auth", "failed_logins = { most = 0 }", "failed_logins.most"),
        ("ha", "heartbeat_interval_s = 0", "heartbeat_interval_s"),
        ("ha", 'addresses = ["nowhere"]', "HOST:PORT"),
        ("ha", 'addresses = ["one..two:5672"]', "1 to 63 characters"),
        ("ha", 'addresses = ["one:1", "a\\u0000b:2"]', "ha.addresses is 'a.x00b:2': there is a null byte in it"),
        ("server", f'listen = "{"a" * 64}.example:5672"', "server.listen is .*1 to 63 characters"),
        ("http", f'listen = "{"a" * 64}.example:9464"', "http.listen is .*1 to 63 characters"),
        ("replication", f'advertise = "{"a" * 64}:5672"\nservers = "a,b,c"', "replication.advertise is .*1 to 63"),
        ("ledger", 'directory = "/tmp/a\\u0000b"', "line 2: ledger.directory is .*null byte"),
        ("tls", 'certificate = "a\\u0000b"\nkey = "x"', "line 2: tls.certificate is .*null byte"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, section: str, line: str, named: str) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(f"[{section}]\n{line}\n")
    with pytest.raises(ConfigError, match=named):
        of(file)


def test_no_time_is_longer_than_timers_and_stores_take(tmp_path: Path) -> None:
    """`--check` took them; the broker ended when its epoch began, cut clients off, or let nobody connect."""
    file = tmp_path / "legato.toml"
    sections = [(f"[{field.name}]", field.type) for field in msgspec.structs.fields(Config)]
    sections += [("[[address]]\nmatch = '#'", AddressSettings), ("[limits.users.ann]", SomeUserBounds)]
    lines = [
        f"{head}\n{field.encode_name} = {value}\n"
        for head, kind in sections
        if isinstance(kind, type)
        for field in msgspec.structs.fields(kind)
        if field.encode_name.endswith("_s") and not field.encode_name.endswith("_per_s")
        for value in ("inf", "nan", "1e12")
    ]
    assert len(lines) > 40
    for text in [
        *lines,
        '[server]\nidle_timeout_ms = "50 d"\n',
        "[[address]]\nmatch = '#'\nredelivery_multiplier = inf\n",
    ]:
        file.write_text(text)
        with pytest.raises(ConfigError):
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"port = {'1' * 5000}", "legato.toml cannot be read: a whole number in it has thousands of digits"),
        (f"replicas = 0x{'f' * 5000}", "line 2: replication.replicas is a whole number of more than 64 bits"),
        (f'advertise = "a:{"9" * 5000}"', "line 2: replication.advertise is .*: the largest port is 65535"),
        (f'log_bytes = "{"1" * 5000} GiB"', "line 2: replication.log_bytes is .*: give a number of bytes"),
        ('log_bytes = "999999999999999999 TiB"', "replication.log_bytes is a whole number of more than 64 bits"),
    ],
)
def test_numbers_that_are_too_long_are_refused_with_their_place(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(f"[replication]\n{line}\n")
    with pytest.raises(ConfigError, match=said):
        of(file)


def test_numbers_of_tables_of_addresses_are_those_of_toml(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(f'[[address]]\nmatch = "a"\nwhen_full = 0x{"f" * 5000}\n')
    with pytest.raises(ConfigError, match="whole number of more than 64 bits"):
        of(file)


def test_ports_of_thousands_of_digits_are_none() -> None:
    with pytest.raises(ConfigError, match=r"ha\.addresses has 'a:9+: give HOST"):
        of(LEGATO_HA_ADDRESSES=f"a:{'9' * 5000}")


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


TWO = '[[address]]\nmatch = "a"\n[[address]]\nmatch = "b"\n'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[tls]\ncertificate = "x"', "line 2: TLS needs both tls.certificate and tls.key"),
        ('# [ha]\n[ha]\n\nheartbeat_interval_s = "6 s"', "line 4: ha.activation_interval_s is 10: it must be at least"),
        ('[server]\n[limits]\nmemory = "lots"', "line 3: limits.memory is 'lots'"),
        ('[auth]\nfailed_logins = { most = 0 }', "line 2: auth.failed_logins.most: "),
        ("[limits.users.ann]\nlinks = 1\nheld_bytes = -1", "line 3: limits.users.ann.held_bytes: "),
        ('[limits.users.ann]\nheld_bytes = "much"', "line 2: limits.users.ann.held_bytes is 'much': give a number"),
        ('[limits.users.ann]\nheld = 1', "line 2: [limits.users.ann] has no setting 'held'. Did you mean held_bytes?"),
        (f'{TWO}max_messages = "x"', "line 5: the [[address]] 'b': max_messages:"),
        (f"{TWO}max_mesages = 1", "line 5: the [[address]] 'b': there is no setting 'max_mesages'. Did you mean"),
        ('[[address]]\nmatch = "a"\n[[address]]\n', "line 3: the [[address]] number 2 needs match"),
        ("[http]\nconsole_listen = 'x'", "line 2: http.console_listen is 'x'"),
        ('server = 3', "line 1: server: expected a table, got a whole number"),
        ('server.listen = "x"', "line 1: server.listen is 'x'"),
        ('server.listen = 5672', "line 1: server.listen: expected a text in quotes, got a whole number."),
        ('server.listen = "x:70000"', "line 1: server.listen is 'x:70000': the largest port is 65535."),
        ('server.listen = "x:0"', "line 1: server.listen is 'x:0': clients have to know the port. Name one."),
        ('[http]\nlisten = ":70000"', "line 2: http.listen is ':70000': the largest port is 65535."),
        ('[ha]\naddresses = "a:1"', "line 2: ha.addresses: expected a list in brackets, got a text in quotes."),
        ('[server]\nlog_format = "JSON"', "line 2: server.log_format: 'JSON' is none of text, json. Did you "),
        ('[auth]\nmechanisms = ["SCRAM"]', "line 2: auth.mechanisms[0]: 'SCRAM' is none of EXTERNAL, SCRAM-SHA-5"),
        ('[server]\n[address]\nmatch = "a"', "line 2: write [[address]] in place of [address]: there may be several."),
        ('[role]\nname = "a"', "line 1: write [[role]] in place of [role]: there may be several."),
        ('[server]\n"listen" = "x"', "line 2: server.listen is 'x'"),
    ],
)  # fmt: skip
def test_every_error_names_the_file_and_the_line_and_the_setting(tmp_path: Path, text: str, place: str) -> None:
    """An error in roles or addresses, or one that concerns two settings, did not say in which file it is."""
    file = tmp_path / "legato.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        of(file)
    assert str(raised.value).startswith(f"{file}, {place}"), raised.value


def test_an_error_names_the_variable_or_option_that_a_setting_is_from(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text('[server]\nlisten = "localhost:5672"\n')
    with pytest.raises(ConfigError, match=r"^LEGATO_SERVER_LISTEN: server\.listen is 'x'"):
        of(file, LEGATO_SERVER_LISTEN="x")
    with pytest.raises(ConfigError, match=r"^--listen: server\.listen is 'x'"):
        load(file, store=tmp_path, environment={"LEGATO_SERVER_LISTEN": "y"}, listen="x")


@pytest.mark.parametrize("listen", ["0.0.0.0:5672", "[::]:5672"])
def test_a_broker_of_several_machines_says_at_which_address_others_know_it(tmp_path: Path, listen: str) -> None:
    """All of them were one in the register, and each watched itself in place of the primary."""
    servers = "nats://a,nats://b,nats://c"

    def loaded(*, listen: str, replicate: str | None = None, advertise: str | None = None) -> Config:
        return load(store=tmp_path, environment={}, listen=listen, replicate=replicate, advertise=advertise)

    with pytest.raises(ConfigError, match=r"^--listen: server\.listen is .* say it in replication\.advertise"):
        loaded(listen=listen, replicate=servers)
    for advertise in ("one.example", "one.example:0", listen):
        with pytest.raises(ConfigError, match=r"^--advertise: replication\.advertise is .*such as one\.example:5672"):
            loaded(listen=listen, replicate=servers, advertise=advertise)
    one = loaded(listen=listen, replicate=servers, advertise="one.example:5671")
    assert (one.advertised, one.host_and_port[1]) == ("one.example:5671", 5672)
    assert loaded(listen="one.example:5672", replicate=servers).advertised == "one.example:5672"
    assert loaded(listen=listen).advertised == listen, "brokers of one machine reach each other there"


def test_roles_and_users_that_cannot_be_used_are_named_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    role = '[[role]]\nname = "a"\nmanagement = "view"\n'
    for text, place in (
        (f'{role}[[role]]\nname = "b"\nmanagement = "operat"\n', "line 6: the [[role]] 'b': management: "),
        (f"{role}[[role]]\nnam = 3\n", "line 5: the [[role]] number 2: there is no setting 'nam'. Did you mean name?"),
        (role + role, "line 4: the [[role]] number 2 has the name of another one, 'a'."),
        (f"{role}[[role]]\nname = 'b'\n", "line 4: the [[role]] 'b': it allows nothing"),
    ):
        file.write_text(text)
        config = load(file, store=tmp_path, environment={})
        with pytest.raises(ConfigError) as raised:
            see_usable(config, Users())
        assert str(raised.value).startswith(f"{file}, {place}"), raised.value
    file.write_text(role)
    users = tmp_path / "users"
    content = UsersFile(b"0" * 16, {"ann": User("ann", ("b",), ())})
    with pytest.raises(ConfigError) as raised:
        see_usable(load(file, store=tmp_path, environment={}), Users(content, None, users))
    assert str(raised.value).startswith(
        f"{file}: The user 'ann' of {users} has the role 'b', which no [[role]] defines"
    )


def test_a_ledger_that_was_asked_for_and_cannot_be_written_is_an_error_wherever_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file it was a line in the log only; by default it still is."""
    monkeypatch.setattr(LedgerProcess, "available", lambda: False)
    file = tmp_path / "legato.toml"
    file.write_text("[ledger]\nenabled = true\n")
    wanted = [
        (load(file, store=tmp_path, environment={}), f"{file}, line 2"),
        (load(store=tmp_path, environment={"LEGATO_LEDGER_ENABLED": "true"}), "LEGATO_LEDGER_ENABLED"),
        (load(store=tmp_path, environment={}, ledger=True), "--ledger"),
    ]
    for config, place in wanted:
        with pytest.raises(ConfigError) as raised:
            see_usable(config, Users())
        assert str(raised.value).startswith(
            f"{place}: ledger.enabled needs pyarrow, which is not installed: pip install"
        )
    see_usable(load(store=tmp_path, environment={}), Users())
    see_usable(load(file, store=tmp_path, environment={}, ledger=False), Users())


def test_sizes_and_times_may_have_units_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(
        """
        [server]
        idle_timeout_ms = "1.5 min"
        handshake_timeout_s = "2500ms"
        [store]
        map_bytes = "512 MiB"
        log_bytes = 4096
        [auth]
        failed_logins = { delay_s = "1 s", for_s = "2 h" }
        [ha]
        activation_interval_s = "1 min"
        [limits]
        memory = "3 GiB"
        [limits.users.ann]
        held_bytes = "2 kB"
        acknowledgement_timeout_s = "1 d"
        [[address]]
        match = "orders"
        max_bytes = "1.5 GiB"
        redelivery_delay_s = "500 ms"
        """
    )
    config = of(file, LEGATO_LIMITS_SLOW_CONSUMER_S="5 min", LEGATO_BULK_STAGE_BYTES_MAX="1 TiB")
    assert (config.server.idle_timeout_ms, config.server.handshake_timeout_s) == (90_000, 2.5)
    assert (config.store.map_bytes, config.store.log_bytes) == (512 << 20, 4096)
    assert (config.auth.failed_logins.delay_s, config.auth.failed_logins.for_s) == (1.0, 7200.0)
    assert config.ha.activation_interval_s == 60.0
    assert memory_mark(config.limits) == 3 << 30
    assert config.limits.users["ann"].held_bytes == 2000
    assert config.limits.users["ann"].acknowledgement_timeout_s == 86_400.0
    assert (config.limits.slow_consumer_s, config.bulk.stage_bytes_max) == (300.0, 1 << 40)
    orders = Addresses(config.address).settings("orders")
    assert (orders.max_bytes, orders.redelivery_delay_s) == (3 << 29, 0.5)


@pytest.mark.parametrize(
    "value", ["512 M", "many", "", "1.2.3 MiB", "-5 MiB", "5 s", "5 MiB/s", "\u0665 MiB", "1e3 MiB", "MiB", "0x10 B"]
)
def test_what_is_no_size_is_refused_with_what_may_be_given(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^LEGATO_STORE_MAP_BYTES: store\.map_bytes is .*: give a number of bytes"):
        of(LEGATO_STORE_MAP_BYTES=value)


@pytest.mark.parametrize("name", ["returns_per_s", "listen", "container_id", "log_level"])
def test_settings_that_are_neither_sizes_nor_times_take_no_units(name: str) -> None:
    assert with_unit(name, "5 min") == "5 min"


def test_every_setting_in_bytes_seconds_or_milliseconds_takes_units() -> None:
    """A setting whose name does not end with its unit would not."""
    for name, value in fields_of(Config):
        if name != "memory" and re.search(r"bytes|_m?s($|_)", name) and not name.endswith("_per_s"):
            assert with_unit(name, "5 MiB" if "bytes" in name else "5 s") != value, name


def fields_of(kind: Any) -> Iterator[tuple[str, object]]:
    """The names and defaults of settings, in sections too."""
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from fields_of(field.type)
        yield field.encode_name, "5 MiB" if "bytes" in field.encode_name else "5 s"
    if kind is Config:
        yield from fields_of(AddressSettings)
        yield from fields_of(SomeUserBounds)


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("tls_key", "private key"),
        ("credentials_file", "private key"),
        ("password_file", "password"),
        ("token_file", "token"),
    ],
)
def test_a_secret_for_the_logs_servers_that_others_may_read_is_refused(tmp_path: Path, setting: str, what: str) -> None:
    """As the key of the listener is: whoever has it can write the log."""
    (key := tmp_path / "key").touch(mode=0o644)
    key.chmod(0o644)
    environment = {f"LEGATO_REPLICATION_{setting.upper()}": str(key)}
    with pytest.raises(ConfigError, match=rf"The {what} \(replication\.{setting}\) .* chmod 600"):
        load(store=tmp_path / "store", environment=environment)
    key.chmod(0o600)
    load(store=tmp_path / "store", environment=environment)
