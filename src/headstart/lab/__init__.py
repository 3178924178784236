"""Servers on the toy engine with one planted defect each: what `headstart accept` must catch."""
