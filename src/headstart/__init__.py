"""headstart: an LLM server that never reads a prompt token twice."""

__version__ = "0.1.0"
