"""The dashboard and the alert rules name metrics that there are; `promtool` reads the rules, where it is installed."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from legato.client import ConnectionFactory
from legato.ha.roles import Role
from legato.replication.replica_status import BackupStatus, LogServerStatus, ReplicaStatus
from legato.server.monitoring.replica_exposition import of_replica
from tests.support.forked_process import start
from tests.support.monitored import Samples, fetch, scrape_until, until
from tests.support.server import Server, free_port, server

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "legato.json"
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
PAGE = ROOT / "docs" / "howto" / "operate.md"
METRIC = re.compile(r"\b(?:legato|process)_[a-z_]+\b")
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The endpoint of a broker that has a queue."""
    port = free_port()
    with server(tmp_path_factory.mktemp("broker") / "store", "--http", f":{port}") as broker:
        create_queue(broker)
        yield port


def create_queue(broker: Server) -> None:
    with (
        ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection,
        connection.create_session() as session,
    ):
        session.create_producer(session.create_queue("orders"))


@pytest.fixture(scope="module")
def samples(port: int) -> Samples:
    """All metrics of that broker."""
    return scrape_until(port, lambda now: now.get("legato_queue_depth", queue="orders") is not None)


@pytest.fixture(scope="module")
def names(samples: Samples) -> set[str]:
    """Those of a broker with a replicated log among them, which `test_replicated_metrics` sees of real ones."""
    server = LogServerStatus("log-1", True, True, 0, True)
    backup = BackupStatus("b:5672", "follows", "1", 1, 1, 0, 0.0, False, "")
    status = ReplicaStatus("leads", "g", 1, 0, 1, 0, 500, True, True, 1, [server], [], [backup])
    families = of_replica(status, Role.PRIMARY)
    return samples.names() | {sample.name for family in families for sample in family.samples}


def queries(node: Any, *keys: str) -> Iterator[str]:
    """What a dashboard asks, anywhere in it, as a query or under other keys."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in (keys or ("expr",)):
                yield value
            else:
                yield from queries(value, *keys)
    elif isinstance(node, list):
        for item in node:
            yield from queries(item, *keys)


def test_every_metric_of_the_dashboard_is_there(names: set[str]) -> None:
    asked = set(METRIC.findall("\n".join(queries(json.loads(DASHBOARD.read_text()), "expr", "definition"))))
    assert len(asked) > 20
    assert asked - names == set()


def test_every_metric_of_the_alert_rules_is_there(names: set[str]) -> None:
    asked = set(METRIC.findall(RULES.read_text()))
    assert len(asked) > 12
    assert asked - names == set()


def test_the_page_says_what_to_do_about_every_alarm_and_names_no_other() -> None:
    alarms = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert set(re.findall(r"^\| `(Legato\w+)`", PAGE.read_text(), re.MULTILINE)) == alarms


def test_the_page_names_no_metric_that_is_not_there(samples: Samples, names: set[str]) -> None:
    assert set(METRIC.findall(PAGE.read_text())) - names - samples.families == set()


def test_the_classes_that_grafana_publishes_read_all_of_the_dashboard() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="no grafana-foundation-sdk")
    registry = importlib.import_module("grafana_foundation_sdk.cog.plugins")
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    registry.register_default_plugins()
    written = json.loads(DASHBOARD.read_text())
    read = json.loads(encoder().encode(models.Dashboard.from_json(written)))
    # These classes do not know them: a field of variables in its editor, and one of annotations by Prometheus.
    assert set(lost(written, read)) == {"templating.list.1.definition", "annotations.list.0.titleFormat"}


def lost(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Where `after` has not, or has not as it was, what `before` has."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after[key], f"{place}.{key}") if key in after else [f"{place}.{key}".lstrip(".")]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{place}.{number}")
    elif before != after:
        yield place.lstrip(".")


def test_grafana_is_provisioned_with_the_dashboard_and_with_the_prometheus_that_it_asks() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    provisioning = DASHBOARD.parent / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "legato.yaml").read_text())["providers"]
    assert f"install -D -t {provider['options']['path']} deploy/grafana/legato.json" in PAGE.read_text()
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    asked: Iterator[Any] = queries(json.loads(DASHBOARD.read_text()), "datasource")
    assert {each["type"] for each in asked} == {source["type"]}
    scraped = yaml.safe_load((RULES.parent / "scrape.yaml").read_text())["scrape_configs"][0]
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]


@promtool
def test_promtool_has_nothing_to_say_about_the_rules_and_the_configuration(tmp_path: Path) -> None:
    for words in (["check", "rules", str(RULES)], ["check", "config", str(configuration(tmp_path))]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


REPLICATED = """
rule_files: [{rules}]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {{series: 'legato_replication_log_servers{{instance="a"}}', values: '3x40'}}
      - {{series: 'legato_replication_log_servers_current{{instance="a"}}', values: '3x8 2x12 3x20'}}
      - {{series: 'legato_replication_held_back{{instance="a"}}', values: '0x8 1x12 0x20'}}
      - {{series: 'legato_replication_quorum{{instance="a"}}', values: '1x40'}}
      - {{series: 'legato_replication_waits{{instance="b"}}', values: '0x8 1x12 0x20'}}
      - {{series: 'legato_replication_backup_troubled{{instance="a", backup="b:5672"}}', values: '0x8 1x12 0x20'}}
      - {{series: 'legato_replication_behind_records{{instance="c"}}', values: '5x8 2000x28 5x4'}}
    alert_rule_test:
      - &before {{eval_time: 2m, alertname: LegatoLogServerLost, exp_alerts: []}}
      - {{<<: *before, alertname: LegatoNothingConfirmed}}
      - {{<<: *before, alertname: LegatoReplicaWaits}}
      - {{<<: *before, alertname: LegatoReplicaBehind}}
      - eval_time: 4m
        alertname: LegatoLogServerLost
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a}}
            exp_annotations: {{summary: "2 of the servers of the replicated log are left, as a sees it."}}
      - eval_time: 4m
        alertname: LegatoNothingConfirmed
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a}}
            exp_annotations: {{summary: "The replicated log does not answer a: nothing is confirmed."}}
      - eval_time: 4m
        alertname: LegatoReplicaWaits
        exp_alerts:
          - exp_labels: {{severity: warning, instance: b}}
            exp_annotations: {{summary: "The replica of b cannot go on: it would not take over."}}
      - eval_time: 4m
        alertname: LegatoReplicaBehind
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a, backup: "b:5672"}}
            exp_annotations: {{summary: "A replica is away or falls behind: b:5672."}}
      - eval_time: 8m45s
        alertname: LegatoReplicaBehind
        exp_alerts:
          - exp_labels: {{severity: warning, instance: c}}
            exp_annotations: {{summary: "A replica is away or falls behind: c."}}
      - &after {{eval_time: 10m, alertname: LegatoLogServerLost, exp_alerts: []}}
      - {{<<: *after, alertname: LegatoNothingConfirmed}}
      - {{<<: *after, alertname: LegatoReplicaWaits}}
      - {{<<: *after, alertname: LegatoReplicaBehind}}
"""


@promtool
def test_the_loss_of_a_log_server_a_silent_log_and_replicas_in_trouble_raise_alarms_that_end(tmp_path: Path) -> None:
    (tests := tmp_path / "tests.yaml").write_text(REPLICATED.format(rules=RULES))
    done = subprocess.run(["promtool", "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_a_real_prometheus_takes_the_metrics_and_evaluates_every_rule_and_every_query_of_the_dashboard(
    port: int, tmp_path: Path
) -> None:
    web = free_port()
    command = [
        *("prometheus", f"--config.file={configuration(tmp_path, port)}", f"--storage.tsdb.path={tmp_path / 'data'}"),
        f"--web.listen-address=127.0.0.1:{web}",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = start(command, stdout=log, stderr=log)
    try:
        until(lambda: is_well(web))
        for query in set(queries(json.loads(DASHBOARD.read_text()))):
            # Grafana sets these variables.
            asked = query.replace("$__rate_interval", "1m").replace('="$store"', '=~".*"')
            status, answer = fetch(web, f"/api/v1/query?query={quote(asked)}")
            assert status == 200, (query, answer)
            assert "$" not in asked
    finally:
        process.kill()
        process.wait()


def is_well(web: int) -> bool:
    """Whether the broker's metrics came, each rule could be evaluated, and none but that of a lone broker holds."""
    try:
        targets = json.loads(fetch(web, "/api/v1/targets")[1])["data"]["activeTargets"]
        groups = json.loads(fetch(web, "/api/v1/rules")[1])["data"]["groups"]
    except (OSError, ValueError):
        return False
    rules = [rule for group in groups for rule in group["rules"]]
    assert not any(each.get("lastError") for each in (*targets, *rules)), (targets, rules)
    return (
        [target["health"] for target in targets] == ["up"]
        and {rule["health"] for rule in rules} == {"ok"}
        and {rule["name"] for rule in rules if rule["state"] != "inactive"} == {"LegatoNoBackup"}
    )


def configuration(directory: Path, port: int = 9464) -> Path:
    """The example, for one broker that is asked twice a second."""
    text = (RULES.parent / "scrape.yaml").read_text()
    text = text.replace('"localhost:9464", "localhost:9465"', f'"127.0.0.1:{port}"').replace("15s", "500ms")
    path = directory / "prometheus.yaml"
    path.write_text(f"global: {{evaluation_interval: 500ms}}\nrule_files: [{RULES}]\n{text}")
    return path
