"""What `/metrics` shows of the cache on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headstart.api.metrics import SSD_COUNTERS, SSD_GAUGES, ServerMetrics
from headstart.engines.toy import ToyEngine
from headstart.prefix.ssd_tier import SsdSettings, SsdTier
from headstart.serving.scheduler import Scheduler
from tests.api.served import SETTINGS, wait_until
from tests.serving.harness import Server, prompt_of


class Store(Server):
    """A server with a store; `metric` is read at the moment of the call, as a scrape does."""

    def __init__(self, directory: Path) -> None:
        self.engine = ToyEngine()
        self.tier = SsdTier(
            SsdSettings(directory, 1 << 30, reserve_bytes=0, flush_interval_s=0.05),
            self.engine.layout,
            SETTINGS.block_tokens,
        )
        self.scheduler = Scheduler(self.engine, SETTINGS, ssd=self.tier)
        self.metrics = ServerMetrics(self.scheduler.snapshot)

    def __enter__(self) -> Store:
        self.scheduler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.stop()
        self.tier.flush(timeout_s=20)
        self.tier.close()

    def metric(self, name: str) -> float:
        families = text_string_to_metric_families(self.metrics.render().decode())
        return sum(s.value for family in families for s in family.samples if s.name == name)


def test_writing_and_reading_are_counted_without_another_request(tmp_path: Path) -> None:
    with Store(tmp_path) as server:
        server.ask(prompt_of(100), 4)
        wait_until(lambda: server.metric("headstart_ssd_saved_entries_total") >= 6)
        wait_until(lambda: server.metric("headstart_ssd_unwritten_entries") == 0)
        files = [path.stat().st_size for path in tmp_path.rglob("*.safetensors")]
        assert server.metric("headstart_ssd_entries") == len(files)
        assert server.metric("headstart_ssd_bytes") >= sum(files)
        assert server.metric("headstart_ssd_written_bytes_total") >= sum(files)  # replaced tails too
        assert server.metric("headstart_ssd_limit_bytes") == 1 << 30
        assert server.metric("headstart_ssd_read_bytes_total") == 0
    with Store(tmp_path) as server:
        server.ask(prompt_of(100), 4)
        wait_until(lambda: server.metric("headstart_ssd_read_bytes_total") > 0)
        assert server.metric("headstart_ssd_read_failures_total") == 0


def test_a_file_that_cannot_be_used_is_counted(tmp_path: Path) -> None:
    with Store(tmp_path) as server:
        server.ask(prompt_of(100), 4)
    for path in tmp_path.rglob("*.safetensors"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with Store(tmp_path) as server:
        server.ask(prompt_of(100), 4)
        wait_until(lambda: server.metric("headstart_ssd_read_failures_total") > 0)


@pytest.mark.parametrize("name", [name for name, _ in (*SSD_GAUGES.values(), *SSD_COUNTERS.values())])
def test_a_server_without_a_store_shows_none(name: str) -> None:
    scheduler = Scheduler(ToyEngine(), SETTINGS)
    assert name not in ServerMetrics(scheduler.snapshot).render().decode()
