"""Edits of a long prompt on the MLX engine: as `bench/mlx_edits.py` measures them, and once at full size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mlx_edits
from headstart.engines.mlx.engine import load
from headstart.engines.mlx.options import MlxOptions
from headstart.prefix.cache import PrefixCache
from headstart.prefix.plan import Plan
from mlx_edits import FULL, Edit, Sizes, edited, edits, table
from tests.fixtures.mlx_models import MlxModels, build

SMALL = Sizes(300, (100, 127, 128, 129, 200, 299), 200, 64, 64)


def test_gaps_are_as_promised(mlx_model: MlxModels) -> None:
    gaps = {}
    for name in ("gemma3_text", "lfm2"):
        engine = load(mlx_model(name), MlxOptions(ctx_size=512, max_step_tokens=64))
        found = list(edits(name, engine, SMALL, check=SMALL.edits))
        assert all(edit.kept and edit.difference == 0 for edit in found)
        assert [edit.at for edit in found[::2]] == list(SMALL.edits)
        gaps[name] = [edit.gap for edit in found if edit.visit == 1]
        assert not any(edit.gap for edit in found if edit.visit == 2)
    assert gaps == {"gemma3_text": [0] * 6, "lfm2": [36, 27, 0, 1, 0, 43]}


def test_edits_of_a_prompt_of_20_000_tokens_go_back_to_their_place(tmp_path: Path) -> None:
    """A window of 24 tokens, and full attention, which takes longest: so with one head in one layer."""
    config = {"num_hidden_layers": 3, "num_attention_heads": 1, "num_key_value_heads": 1}
    engine = load(
        build("gemma3_text", tmp_path / "model", config=config),
        MlxOptions(ctx_size=20_064, max_step_tokens=512),
    )
    found = list(edits("gemma3_text", engine, FULL, check=[8_193]))
    assert [(edit.at, edit.restored) for edit in found] == [(at, at) for at in FULL.edits for _ in (1, 2)]
    assert all(edit.kept for edit in found)
    assert [edit.difference for edit in found if edit.at == 8_193] == [0, 0]


def test_a_cache_that_restores_less_is_found(
    mlx_model: MlxModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a server does that goes back to a multiple of some block."""
    planned = PrefixCache.plan

    def to_the_block(cache: PrefixCache, *asked: object) -> Plan:
        plan = planned(cache, *asked)  # type: ignore[arg-type]
        return replace(plan, restore_at=plan.restore_at // 64 * 64)

    monkeypatch.setattr(PrefixCache, "plan", to_the_block)
    monkeypatch.setattr(mlx_edits, "QUICK", SMALL)
    monkeypatch.setattr(mlx_edits, "MlxModels", lambda _: mlx_model)
    monkeypatch.setattr("sys.argv", ["mlx_edits", "--quick", "--models", "llama", "--out", str(tmp_path)])
    assert mlx_edits.main() == 1
    written = json.loads((tmp_path / "mlx_edits.json").read_text())
    assert [edit["gap"] for edit in written["edits"][::2]] == [36, 63, 0, 1, 8, 43]
    assert "12 edits, 10 not as promised" in capsys.readouterr().out


def test_an_edit_changes_one_token_and_goes_on_as_the_prompt_does() -> None:
    base = np.arange(64, 400, dtype=np.int32)
    prompts = [edited(base, 100, visit) for visit in (1, 2)]
    for prompt in prompts:
        assert (prompt[:100] == base[:100]).all() and prompt[100] != base[100]
        assert (prompt[101:] == base[101:165]).all() and len(prompt) == 165
    assert prompts[0][100] != prompts[1][100]
    assert len(edited(base, 335, 1)) == 336


def test_a_row_has_both_visits() -> None:
    first = Edit("lfm2", True, 8000, 1, 6144, 1856, "ram", 1.5, True)
    second = replace(first, visit=2, restored=7999, gap=1, kept=False)
    assert table([first, second])[2] == "| lfm2 | 8,000 | 1,856 | 1.50 | 1 (!) | 1.50 |"
    checked = table([replace(first, difference=1e-5), second])
    assert checked[0].count("|") == checked[1].count("|") == checked[2].count("|") == 8
