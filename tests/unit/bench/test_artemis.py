"""The command lines and the configuration with which Artemis becomes a peer."""

from pathlib import Path

import pytest
from bench.artemis import configured, creation
from bench.f8 import pair_options

CREATED = """<core><max-disk-usage>90</max-disk-usage>
<acceptor name="artemis">tcp://127.0.0.1:7?useEpoll=true;protocols=CORE,AMQP</acceptor>
<address-setting match="activemq.management.#"/><address-setting match="#">
<address-full-policy>PAGE</address-full-policy></address-setting></core>"""


def test_an_instance_syncs_through_libaio_and_lets_anybody_in() -> None:
    command = creation(Path("/somewhere"), 4711)
    assert command[1:3] == ["create", "/somewhere"]
    assert {"--aio", "--allow-anonymous", "--silent"} <= set(command)
    assert not {"--no-fsync", "--nio", "--mapped", "--disable-persistence"} & set(command)
    assert command[command.index("--default-port") + 1] == "4711"


def test_memory_is_the_only_bound_of_what_may_wait_without_paging() -> None:
    command = creation(Path("/somewhere"), 4711)
    assert command[command.index("--global-max-size") + 1] == command[command.index("--java-memory") + 1]


def test_plain_addresses_are_queues_and_topics_have_the_prefix_that_legato_knows() -> None:
    text = configured(CREATED)
    assert "<default-address-routing-type>ANYCAST</default-address-routing-type>" in text
    assert "<default-queue-routing-type>ANYCAST</default-queue-routing-type>" in text
    assert "tcp://127.0.0.1:7?anycastPrefix=queue://;multicastPrefix=topic://;useEpoll=true" in text


def test_it_works_on_a_disk_that_is_large_and_nine_tenths_full() -> None:
    assert "<max-disk-usage>99</max-disk-usage>" in configured(CREATED)


def test_a_configuration_that_looks_different_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places"):
        configured("<core/>")


def test_two_of_a_pair_share_their_data_and_know_each_other() -> None:
    primary = pair_options(2, Path("/data"), backup=False)
    backup = pair_options(1, Path("/data"), backup=True)
    for command in (primary, backup):
        assert "--shared-store" in command
        assert command[command.index("--data") + 1] == "/data"
    assert "--backup" in backup
    assert "--backup" not in primary
    assert primary[primary.index("--staticCluster") + 1] == "tcp://127.0.0.1:2"
