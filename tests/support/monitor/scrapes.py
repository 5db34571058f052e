"""Scrapes the metrics of a run, as Prometheus does."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes.waiting import MOST_S


def scrape(port: int) -> dict[str, dict[str, float]]:
    """Return the figures by name and rank."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=MOST_S) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.keys() == {"run", "rank"}
            found.setdefault(sample.name, {})[sample.labels["rank"]] = sample.value
    return found
