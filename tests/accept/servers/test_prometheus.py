"""Metrics texts: labels, models, what cannot be read."""

from __future__ import annotations

from headstart.accept.servers import prometheus

TEXT = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a"} 100.0
vllm:prompt_tokens_total{engine="0",model_name="b"} 7.0
vllm:latency_bucket{le="0.5",model_name="a"} 3.0
vllm:latency_count{model_name="a"} 3.0
process_start_time_seconds 1.7e+09
quoted{path="a\\"b,c"} 2 1700000000000
nothing{} NaN
broken line of text
"""


def test_labels_and_timestamps_are_read_and_what_is_no_number_is_left_out() -> None:
    found = prometheus.parse(TEXT)

    assert [sample.value for sample in found] == [100.0, 7.0, 3.0, 3.0, 1.7e9, 2.0]
    assert found[5].labels == {"path": 'a\\"b,c'}


def test_totals_are_those_of_the_model_asked_for() -> None:
    found = prometheus.parse(TEXT)

    assert prometheus.totals(found, model="a")["vllm:prompt_tokens_total"] == 100.0
    assert prometheus.totals(found)["vllm:prompt_tokens_total"] == 107.0
    assert prometheus.totals(found, model="unheard of")["vllm:prompt_tokens_total"] == 107.0


def test_buckets_are_no_totals() -> None:
    totals = prometheus.totals(prometheus.parse(TEXT), model="a")

    assert "vllm:latency_bucket" not in totals
    assert totals["vllm:latency_count"] == 3.0


def test_unknown_less_anything_is_unknown() -> None:
    assert prometheus.less(None, 3) is None
    assert prometheus.less(3, None) is None
    assert prometheus.less(3, 1) == 2


def test_a_name_stands_for_the_sum_and_labels_for_their_own() -> None:
    found = prometheus.read(TEXT)

    assert found["vllm:prompt_tokens_total"] == 107.0
    assert found["vllm:prompt_tokens_total{engine=0,model_name=b}"] == 7.0
    assert prometheus.read("<html>no metrics</html>") == {}
