"""Every query of the alert rules and the dashboard in docker/monitoring uses metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from metrics.names import METRICS
from server.config.config import BrokerConfig
from storage.formats.config_property import fields_by_property
from storage.formats.log_config import LogConfig

MONITORING = Path(__file__).resolve().parents[1] / "docker" / "monitoring"
DASHBOARDS = MONITORING / "grafana" / "dashboards"
OF_PROMETHEUS = {"instance", "job"}
"""The labels that Prometheus adds to everything it scrapes."""
NOT_OURS: dict[str, set[str]] = {"up": set(), "process_start_time_seconds": set()}
LABELS = NOT_OURS | {
    metric.name + suffix: {*metric.labels, *(["le"] if suffix == "_bucket" else [])}
    for metric in METRICS
    for suffix in (["_bucket", "_sum", "_count"] if metric.kind == "histogram" else [""])
}
GRID_COLUMNS = 24
STEERING = ("explain", "history", "now", "pause", "resume", "status")
COMMANDS = {"dump-log", "erase", *(f"compact {name}" for name in STEERING)}
TEMPLATE_LABEL = re.compile(r"\$labels\.(\w+)")
LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
Json = dict[str, Any]


def loaded(name: str) -> Json:
    found: Json = yaml.safe_load((MONITORING / name).read_text("utf-8"))
    return found


RULES: list[Json] = [rule for group in loaded("alerts.yml")["groups"] for rule in group["rules"]]
DASHBOARD: Json = json.loads((DASHBOARDS / "log-compaction.json").read_text("utf-8"))
PANELS: list[Json] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
QUERIES = [
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES),
    *(pytest.param(target["expr"], id=panel["title"]) for panel, target in TARGETS),
]


def parsed(query: str) -> promql_parser.Expr:
    """Returns the query with Grafana's variables replaced by values."""
    return promql_parser.parse(query.replace("$__rate_interval", "5m"))


def nodes_of(expression: promql_parser.Expr) -> list[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []

    def visit(node: promql_parser.Expr) -> bool:
        found.append(node)
        return True

    promql_parser.walk(expression, visit)
    return found


def selectors_of(expression: promql_parser.Expr) -> Iterator[promql_parser.VectorSelector]:
    for node in nodes_of(expression):
        if isinstance(node, promql_parser.VectorSelector):
            yield node


def labels_of(expression: promql_parser.Expr) -> set[str]:
    """Returns the labels that the result may have: for an aggregation, those that it names."""
    if isinstance(expression, promql_parser.AggregateExpr):
        if expression.modifier is None:
            return (
                set()
                if str(expression.op) not in ("topk", "bottomk")
                else labels_of(expression.expr)
            )
        return set(expression.modifier.labels)
    if isinstance(expression, promql_parser.VectorSelector):
        return LABELS[str(expression.name)] | OF_PROMETHEUS
    if isinstance(expression, promql_parser.MatrixSelector):
        return labels_of(expression.vector_selector)
    if isinstance(expression, promql_parser.Call):
        return set().union(*map(labels_of, expression.args))
    if isinstance(expression, promql_parser.BinaryExpr):
        return labels_of(expression.lhs) | labels_of(expression.rhs)
    return labels_of(expression.expr) if hasattr(expression, "expr") else set()


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_valid_and_asks_for_metrics_and_labels_that_exist(query: str) -> None:
    selectors = list(selectors_of(parsed(query)))

    assert selectors
    for selector in selectors:
        assert selector.name in LABELS, selector.name
        known = LABELS[str(selector.name)] | OF_PROMETHEUS
        for matcher in selector.matchers.matchers:
            assert matcher.name in known, (selector.name, matcher.name)


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_groups_and_joins_by_labels_that_its_metrics_have(query: str) -> None:
    for node in nodes_of(parsed(query)):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= labels_of(node.expr), str(node)
        if isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None:
            for side in (node.lhs, node.rhs):
                assert set(_joined_by(node)) <= labels_of(side), str(node)


def _joined_by(operation: promql_parser.BinaryExpr) -> list[str]:
    """Returns the labels in its `on (...)`."""
    assert operation.modifier is not None
    matching = operation.modifier.matching
    return [] if matching is None else list(matching.labels)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_is_wrong_what_it_means_and_what_to_do(rule: Json) -> None:
    annotations = rule["annotations"]

    assert set(annotations) == {"summary", "description", "action"}
    assert all(text.strip() for text in annotations.values())
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["alert"].startswith("Kompakt")
    told = set(TEMPLATE_LABEL.findall(" ".join(annotations.values())))
    assert told <= labels_of(parsed(rule["expr"]))


def test_alerts_have_unique_names() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_the_files_and_commands_named_in_alerts_exist(rule: Json) -> None:
    text = " ".join(rule["annotations"].values())
    settings = fields_by_property(BrokerConfig).keys() | fields_by_property(LogConfig).keys()

    for name in re.findall(r"\b(?:kompakt|kafka)_\w+", text):
        assert name in LABELS, name
    for name in re.findall(r"\b(?:log\.cleaner|max\.compaction)\.[a-z.]*[a-z]", text):
        assert name in settings, name
    for command in re.findall(r'"kompakt (compact \w+|[a-z-]+)', text):
        assert command in COMMANDS, command


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_every_legend_names_labels_that_its_query_keeps(panel: Json, target: Json) -> None:
    named = set(LEGEND_LABEL.findall(target["legendFormat"]))

    assert named <= labels_of(parsed(target["expr"])), panel["title"]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    cells = [cell for panel in DASHBOARD["panels"] for cell in _cells(panel["gridPos"])]

    assert len(set(ids)) == len(ids)
    assert len(set(cells)) == len(cells)
    assert all(0 <= x < GRID_COLUMNS for x, _ in cells)


def _cells(position: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(position["x"], position["x"] + position["w"]):
        for y in range(position["y"], position["y"] + position["h"]):
            yield x, y


def test_every_variable_of_the_dashboard_is_declared_and_comes_from_a_metric_that_exists() -> None:
    declared = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD["panels"])
    used = set(re.findall(r"\$\{?([a-z]+)\}?", text))

    assert used == set(declared)
    for each in declared.values():
        if each["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+), (\w+)\)", each["query"])
            assert match is not None
            assert match[2] in LABELS[match[1]] | OF_PROMETHEUS


def test_every_cleaner_gauge_of_kafka_s_is_on_the_dashboard_or_behind_an_alert() -> None:
    asked = {str(s.name) for query in QUERIES for s in selectors_of(parsed(str(query.values[0])))}
    gauges = {name for name in LABELS if name.startswith("kafka_log_logcleaner_")}

    assert gauges <= asked


def test_prometheus_loads_the_rules_and_scrapes_the_default_http_listener() -> None:
    config = loaded("prometheus.yml")
    (job,) = config["scrape_configs"]
    address = BrokerConfig().resolved_http_listener()
    assert address is not None

    assert config["rule_files"] == ["alerts.yml"]
    assert job["job_name"] == "kompakt"
    assert job["static_configs"] == [{"targets": [f"{address.host}:{address.port}"]}]


def test_grafana_provisions_a_data_source_and_a_folder() -> None:
    provisioning = "grafana/provisioning"
    (source,) = loaded(f"{provisioning}/datasources/prometheus.yml")["datasources"]
    (provider,) = loaded(f"{provisioning}/dashboards/kompakt.yml")["providers"]

    assert source["type"] == "prometheus"
    assert provider["options"]["path"] == "$KOMPAKT_DASHBOARDS"
