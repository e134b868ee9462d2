"""Servers and streams that would lose what is confirmed, or are not this group's, are refused with a sentence."""

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
import pytest
import trustme
from nats.errors import NoRespondersError

from legato.errors import (
    ConfigError,
    FencedError,
    LogAccessError,
    LogFormatError,
    LogUnavailableError,
    LogUnsafeError,
)
from legato.processes.log_servers import Login, LogServers
from legato.replication.log import BEGINNING, ReplicatedLog
from legato.replication.nats import NatsSettings, Opening, open_log
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, health_when, is_proved, read_all, take
from tests.support.monitored import until

WAIT_S = 60.0


def ask(url: str, subject: str, request: Any = None, **login: Any) -> dict[str, Any]:
    """JetStream's answer to a request of another client."""

    async def asked() -> bytes:
        client = await nats.connect(url.split(","), **login)
        try:
            payload = request if isinstance(request, bytes) else json.dumps(request).encode() if request else b""
            while True:
                try:
                    return (await client.request(subject, payload, timeout=WAIT_S)).data
                except NoRespondersError:  # an election, on a busy machine
                    await asyncio.sleep(0.1)
        finally:
            await client.close()

    answer: dict[str, Any] = json.loads(asyncio.run(asked()))
    return answer


@pytest.fixture
def group() -> str:
    return f"g{uuid4().hex[:12]}"


def make_stream(servers: LogServers, group: str, **changes: Any) -> None:
    """A stream that a group's log would have, with changes."""
    wanted = {
        "name": f"LEGATO_{group}",
        "subjects": [f"legato.log.{group}"],
        "storage": "file",
        "num_replicas": 3,
        "retention": "limits",
        "discard": "new",
        **changes,
    }

    def is_made() -> bool:
        """Servers that are busy may have no place for a moment."""
        answer = ask(servers.url, f"$JS.API.STREAM.CREATE.LEGATO_{group}", wanted)
        refused = answer.get("error", {})
        assert not refused or "peers" in refused["description"] or refused["code"] == 503, answer
        return not refused

    until(is_made)


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"storage": "memory"}, LogUnsafeError, "in memory: a power cut"),
        ({"num_replicas": 1}, LogUnsafeError, "by 1 server.*at least 3"),
        ({"max_age": 3_600_000_000_000}, LogUnsafeError, "forgets records by itself .max_age"),
        ({"max_msgs": 1000}, LogUnsafeError, "max_msgs: 1000"),
        ({"max_bytes": 1_000_000}, LogUnsafeError, "max_bytes: 1000000"),
        ({"retention": "interest"}, LogUnsafeError, "retention: interest"),
        ({"allow_rollup_hdrs": True}, LogUnsafeError, "rolled up"),
    ],
)
def test_a_stream_that_may_lose_records_is_refused(
    servers: LogServers, group: str, changes: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    make_stream(servers, group, **changes)
    with pytest.raises(error, match=sentence):
        open_log(NatsSettings(servers.url, group))


def test_a_stream_of_other_subjects_is_refused(servers: LogServers, group: str) -> None:
    make_stream(servers, group, subjects=[f"legato.log.{group}", f"orders.{group}"])
    with pytest.raises(LogFormatError, match="is not the log of a group: its subjects are"):
        open_log(NatsSettings(servers.url, group))


def test_what_others_published_on_the_subject_is_refused(servers: LogServers, group: str) -> None:
    log = open_log(NatsSettings(servers.url, group))
    writer = claim(log)
    following = log.follow(BEGINNING)
    assert ask(servers.url, f"legato.log.{group}", b"hello")["seq"] == 2
    with pytest.raises(LogFormatError, match="did not write"):
        read_all(log)
    with pytest.raises(LogFormatError, match="did not write"):
        take(following, 2)
    with pytest.raises(FencedError):
        writer.append(b"one")
    log.close()


def test_records_of_another_group_are_refused(servers: LogServers, group: str) -> None:
    """As in a stream that was restored under another name."""
    other = f"o{group}"
    log, its = open_log(NatsSettings(servers.url, group)), open_log(NatsSettings(servers.url, other))
    claim(its)
    stored = ask(servers.url, f"$JS.API.STREAM.MSG.GET.LEGATO_{other}", {"seq": 1})["message"]["data"]
    ask(servers.url, f"legato.log.{group}", base64.b64decode(stored))
    with pytest.raises(LogFormatError, match="another group"):
        log.read(BEGINNING)
    log.close()
    its.close()


def test_a_refusal_is_not_taken_for_an_acknowledgement(new_log: Callable[[], ReplicatedLog]) -> None:
    """Its answer has `"seq": 0` beside the error."""
    former, log = claim(new_log()), new_log()
    later = claim(log, b"later")
    for _ in range(3):
        with pytest.raises(FencedError):
            former.append(b"mine")
    assert data_of(read_all(log)) == [b"epoch", b"later"]
    assert later.append(b"one").position.sequence == 3


def test_a_stream_that_is_deleted_ends_its_claims(servers: LogServers, group: str) -> None:
    log = open_log(NatsSettings(servers.url, group))
    writer = claim(log)
    ask(servers.url, f"$JS.API.STREAM.DELETE.LEGATO_{group}")
    with pytest.raises(LogUnavailableError, match=r"stream not found|did not answer|nobody leads"):
        log.last(timeout_s=1.0)
    waiting = writer.submit(b"one")
    writer.close()
    with pytest.raises(LogUnavailableError):
        waiting.result(WAIT_S)
    log.close()


def test_servers_that_acknowledge_before_they_have_written_are_refused(group: str) -> None:
    with log_servers(sync_interval="2m") as lazy:
        log = open_log(NatsSettings(lazy.url, group))
        with pytest.raises(LogUnsafeError, match=r"log-.*sync_interval: always"):
            log.claim(b"epoch", BEGINNING)
        assert log.last() == 0
        lost = "a power cut loses what was confirmed"
        health = health_when(log, lambda health: any(lost in trouble for trouble in health.trouble))
        assert not health.sync_proved
        log.close()


def test_servers_that_may_not_be_asked_when_they_write_are_refused(group: str) -> None:
    with log_servers(proof=False) as silent:
        log = open_log(NatsSettings(silent.url, group))
        with pytest.raises(LogUnsafeError, match=r"import the service \$SYS.REQ.SERVER.PING.JSZ .* as legato.servers"):
            log.claim(b"epoch", BEGINNING)
        assert [replica.synced for replica in log.health().replicas] == [None, None, None]
        log.close()


PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate for the servers, its key, and the authority that signed it."""
    directory = tmp_path_factory.mktemp("certificates")
    made = {name: directory / name for name in ("ca", "certificate", "key")}
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(made["ca"])
    certificate.cert_chain_pems[0].write_to_path(made["certificate"])
    certificate.private_key_pem.write_to_path(made["key"])
    return made


@pytest.fixture(scope="module")
def secured(files: dict[str, Path]) -> Iterator[LogServers]:
    """Servers that want a login and TLS."""
    with log_servers(login=Login("brokers", PASSWORD, files["certificate"], files["key"])) as running:
        yield running


def test_a_log_is_used_with_a_login_and_tls(
    secured: LogServers, files: dict[str, Path], group: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        settings = NatsSettings(secured.url, group, user="brokers", password=PASSWORD, ca_file=files["ca"])
        log = open_log(settings)
        claim(log).append(b"one")
        assert data_of(read_all(log)) == [b"epoch", b"one"]
        health_when(log, is_proved)
        log.close()
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(settings)


def test_a_wrong_password_is_refused_at_once(
    secured: LogServers, files: dict[str, Path], group: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = NatsSettings(secured.url, group, user="brokers", password="wrong-secret", ca_file=files["ca"])
    with caplog.at_level(logging.DEBUG), pytest.raises(LogAccessError, match="refuses the user brokers") as refused:
        open_log(settings)
    assert "wrong-secret" not in str(refused.value) + caplog.text


def test_a_login_that_is_missing_is_refused(secured: LogServers, files: dict[str, Path], group: str) -> None:
    with pytest.raises(LogAccessError, match="a login without user, token or credentials"):
        open_log(NatsSettings(secured.url, group, ca_file=files["ca"]))


def test_a_certificate_of_an_unknown_authority_is_refused(secured: LogServers, group: str) -> None:
    with pytest.raises(LogAccessError, match="cannot be verified"):
        open_log(NatsSettings(secured.url, group, user="brokers", password=PASSWORD))


def test_a_server_without_tls_is_not_told_a_password(servers: LogServers, group: str) -> None:
    """`tls:` asks for TLS, whatever the server says."""
    settings = NatsSettings(servers.url.replace("nats:", "tls:"), group, user="brokers", password=PASSWORD)
    with pytest.raises(LogUnavailableError):
        open_log(settings, timeout_s=5)


def test_servers_that_are_not_there_are_named(group: str) -> None:
    opening = Opening(NatsSettings("127.0.0.1:9,nats://127.0.0.1:19", group))
    told = "no server of the log answers: 127.0.0.1:9 (refuses connections), 127.0.0.1:19 (refuses connections)"

    def says_so() -> bool:
        with pytest.raises(LogUnavailableError) as unavailable:
            opening()
        return str(unavailable.value) == told

    until(says_so)
    opening.close()
    with pytest.raises(LogUnavailableError, match=r"no server of the log answers: 127\.0\.0\.1:9"):
        open_log(NatsSettings("127.0.0.1:9,nats://127.0.0.1:19", group), timeout_s=0.5)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"servers": ""}, "no server of the log is given"),
        ({"servers": "http://a:1"}, "'http://a:1' is no address"),
        ({"servers": "nats://a:port"}, "is no address"),
        ({"servers": "nats://me:hush@a:1"}, "'nats://a:1' of the log's server has a login in it"),
        ({"group": "a.b"}, "letters, digits"),
        ({"replicas": 2}, "3 or 5 servers"),
        ({"password": "hush"}, "needs a user"),
        ({"user": "me", "token": "hush"}, "one of them"),
        ({"credentials_file": Path("/nowhere/x.creds")}, "does not exist: /nowhere/x.creds"),
        ({"ca_file": Path("/nowhere/ca.pem")}, "file with authorities"),
        ({"certificate_file": Path(__file__)}, "needs its key"),
        ({"ca_file": Path(__file__)}, None),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], sentence: str | None) -> None:
    given = {"servers": "nats://a:1", "group": "orders", **settings}
    with pytest.raises(ConfigError, match=sentence or "certificates for the log's servers cannot be used") as refused:
        NatsSettings(**given).tls()
    assert "hush" not in str(refused.value)
