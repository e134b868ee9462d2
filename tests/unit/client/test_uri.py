"""What a connection URI says, and what is wrong with it."""

from pathlib import Path

import pytest

from legato.client.failover.uri import Host, parse_options, parse_uri, tls_context
from legato.errors import ConfigError


def test_a_uri_names_hosts_in_order_a_login_and_options() -> None:
    uri = parse_uri("amqp://user:p%40ss@a:5672,b:5673?reconnect_attempts=-1&prefetch=10")
    assert uri.hosts == (Host("a", 5672), Host("b", 5673))
    assert (uri.user, uri.password, uri.tls) == ("user", "p@ss", False)
    assert (uri.options.reconnect_attempts, uri.options.prefetch) == (-1, 10)


def test_ports_have_defaults_for_either_scheme() -> None:
    assert parse_uri("amqp://one").hosts == (Host("one", 5672),)
    assert parse_uri("amqps://one,two:7").hosts == (Host("one", 5671), Host("two", 7))


def test_an_ipv6_address_is_written_in_brackets() -> None:
    uri = parse_uri("amqp://[::1]:7000,[fe80::2]")
    assert uri.hosts == (Host("::1", 7000), Host("fe80::2", 5672))
    assert str(uri.hosts[0]) == "[::1]:7000"


def test_a_uri_never_shows_its_password() -> None:
    assert "secret" not in str(parse_uri("amqp://user:secret@host"))
    with pytest.raises(ConfigError) as caught:
        parse_uri("http://user:secret@host")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("localhost:5672", r"Did you mean amqp://localhost:5672\?"),
        ("one,two:7/?prefetch=1", r"Did you mean amqp://one,two:7\?"),
        ("broker:5671", r"Did you mean amqps://broker:5671\?"),
        ("ann:secret@tea:5672", r"Did you mean amqp://user:password@tea:5672\?"),
        ("http://tea", r"not 'http'\.$"),
        ("amqp://one:5672,amqp://two:5672", "The scheme is written once.*: amqp://one:5672,two:5672"),
        ("amqps://one,amqps://two", "The scheme is written once.*: amqps://one:5671,two:5671"),
        (None, "a text, such as 'amqp://localhost:5672', not NoneType"),
        ("amqp://", "names no host; write amqp://host:5672 or"),
        ("amqps://", "names no host; write amqps://host:5671 or"),
        ("amqp://a:port", "a:port"),
        ("amqp://a:70000", "a:70000"),
        ("amqp://a?prefech=1", r"'prefech' is unknown. Did you mean prefetch\?"),
        (
            "amqp://a?username=ann",
            r"'username' is unknown. A login goes into the URL, as amqp://user:password@host, or",
        ),
        ("amqp://a?zzz=1", r"'zzz' is unknown. Known are allow_insecure_plain, "),
        (f"amqp://a,{'b' * 64}.example", "cannot be looked up: between two dots"),
        ("amqp://one..two", "one..two cannot be looked up"),
        (f"amqp://{'ü' * 60}", "cannot be looked up: between two dots"),
        ("amqp://one\ud800", "cannot be looked up: it has a character that no host's name has"),
        ("amqp://a\0b", r"'a.x00b' cannot be looked up: there is a null byte"),
        ("amqp://a?prefetch=many", "prefetch"),
        ("amqp://a?prefetch=-1", "prefetch"),
        ("amqp://a?connect_attempts=0", "connect_attempts"),
        ("amqp://a?reconnect_delay_s=0.05&reconnect_delay_max_s=0.02", "reconnect_delay_max_s"),
        ("amqp://a?client_failure_check_period_s=0", "client_failure_check_period_s"),
        ("amqp://a?client_failure_check_period_s=-2", "client_failure_check_period_s"),
        ("amqp://a?failover_on_server_shutdown=perhaps", "failover_on_server_shutdown"),
        ("amqp://a?failover_contract=mq", "failover_contract"),
        ("amqp://a?listener_error=ignore", "listener_error"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        parse_uri(text)
    assert "secret" not in str(caught.value)


def test_a_scheme_may_be_written_in_capitals_and_a_uri_come_from_a_file() -> None:
    assert parse_uri(" AMQPS://tea\n").hosts == (Host("tea", 5671),)


def test_options_take_values_as_well_as_their_spelling() -> None:
    assert parse_options([("tls_verify", "false"), ("reconnect_delay_s", 1)]).tls_verify is False


def test_a_silent_broker_is_lost_after_thirty_seconds_or_as_given_or_never() -> None:
    """CONTRACT E4."""
    given = [parse_uri(f"amqp://a?{query}").options for query in ("", "client_failure_check_period_s=0.5")]
    assert [options.idle_timeout_ms for options in given] == [30_000, 500]
    assert parse_uri("amqp://a?client_failure_check_period_s=-1").options.idle_timeout_ms == 0


def test_what_is_not_said_of_a_shutdown_and_the_first_connection_the_contract_decides() -> None:
    """CONTRACT E7, E9."""
    found = {
        query: (options.fails_over_on_shutdown, options.fails_over_at_first)
        for query in ("failover_contract=ems", "failover_contract=hornetq", "failover_on_initial_connection=false")
        for options in [parse_uri(f"amqp://a?{query}").options]
    }
    assert list(found.values()) == [(True, True), (False, False), (True, False)]


@pytest.mark.parametrize("option", ["tls_ca_file", "tls_cert_file", "tls_key_file"])
def test_a_tls_file_that_is_missing_is_named_with_its_option(option: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    uri = parse_uri(f"amqps://localhost?{option}={missing}")
    with pytest.raises(ConfigError, match=rf"option {option}: cannot read {missing}: No such file"):
        tls_context(uri.options)


@pytest.mark.parametrize("option", ["tls_ca_file", "tls_cert_file"])
def test_a_tls_file_that_holds_something_else_is_named_with_its_option(option: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    uri = parse_uri(f"amqps://localhost?{option}={wrong}")
    with pytest.raises(ConfigError, match=rf"{option}.*{wrong}"):
        tls_context(uri.options)
