"""Whose brokers are drilled, and how clients reach them through the drill's network."""

from pathlib import Path

import pytest

from legato.client.failover.uri import parse_uri
from legato.drill.target import named, own
from legato.errors import ConfigError
from legato.server.config.addresses import Addresses
from legato.server.config.configuration import load


def test_somebody_elses_brokers_keep_their_login_and_options() -> None:
    target = named("amqp://me:secret@one:5672,two?prefetch=10")
    assert target.pair is None
    assert target.hosts == [("one", 5672), ("two", 5672)]
    uri = parse_uri(target.url([1001, 1002]))
    assert [str(host) for host in uri.hosts] == ["127.0.0.1:1001", "127.0.0.1:1002"]
    assert (uri.user, uri.password, uri.options.prefetch) == ("me", "secret", 10)
    assert (uri.options.client_failure_check_period_s, uri.options.discover) == (1.5, False)


def test_it_is_the_drill_that_speaks_tls_to_somebody_elses_brokers(tmp_path: Path) -> None:
    target = named("amqps://me:secret@one?tls_verify=false&prefetch=10")
    assert target.hosts == [("one", 5671)]
    assert target.dial is not None
    uri = parse_uri(target.url([1001]))
    assert (uri.tls, uri.user, uri.password, uri.options.prefetch) == (False, "me", "secret", 10)
    with pytest.raises(ConfigError, match="tls_ca_file: cannot read"):
        named(f"amqps://one?tls_ca_file={tmp_path / 'nowhere'}")


def test_clients_can_have_another_failover_contract(tmp_path: Path) -> None:
    assert parse_uri(named("amqp://one", "ems").url([1])).options.failover_contract == "ems"
    assert parse_uri(own(tmp_path, None, ledger=False, contract="ems").url([1, 2])).options.failover_contract == "ems"


def test_the_drills_own_pair_has_the_users_settings_but_its_own_store(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.touch(mode=0o600)
    config.write_text('[store]\ndirectory = "/precious"\n[auth]\nanonymous = false\nusers = { ann = "pw" }\n')
    target = own(tmp_path / "out", config, ledger=False)
    assert target.pair is not None
    assert target.pair.store == tmp_path / "out" / "store"
    assert parse_uri(target.url([1, 2])).user == "ann"
    assert "jms.username=ann&jms.password=pw" in target.java_url([1, 2])


def test_the_queue_of_rejected_messages_has_a_redelivery_policy_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text('[[address]]\nmatch = "#"\nmaximum_deliveries = 9\nredelivery_blocking = "queue"')
    own(tmp_path / "out", config, ledger=False)
    settings = load(tmp_path / "out" / "legato.toml", store=tmp_path)
    picky = Addresses(settings.address).settings("drill.7.picky")
    assert (picky.maximum_deliveries, picky.redelivery_blocking) == (5, "queue")
    assert Addresses(settings.address).settings("drill.7.auto").maximum_deliveries == 9


def test_settings_that_no_broker_could_use_are_refused_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text("[store]\nmap_bytes = -1\n")
    with pytest.raises(ConfigError, match="map_bytes"):
        own(tmp_path / "out", config, ledger=False)


def test_clients_of_a_drill_are_not_sent_to_the_users_own_brokers(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text('[ha]\naddresses = ["one.example:5672", "two.example:5672"]\n')
    target = own(tmp_path / "out", config, ledger=False)
    assert target.pair is not None
    target.pair.announce([1001, 1002])
    settings = load(config, store=tmp_path, environment=target.pair.environment)
    assert settings.ha.addresses == ["127.0.0.1:1001", "127.0.0.1:1002"]
