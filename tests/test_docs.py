"""The documentation names what there is, and links to what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headstart.api.metrics import SNAPSHOT_COUNTERS, SNAPSHOT_GAUGES
from headstart.blame.causes import reference
from headstart.config import OPTIONS
from headstart.prefix.report import CacheReport, Reason, Tier

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text()


def test_every_setting_is_in_the_reference() -> None:
    lines = page("configuration.md").splitlines()
    for option in OPTIONS:
        row = next((line for line in lines if f"`{option.flag}`" in line), "")
        assert f"`{option.variable}`" in row, option.flag
        assert f"| {option.default_text} |" in row, option.flag
        assert option.help in row.replace("\\|", "|"), option.flag


def test_every_reason_report_field_and_metric_is_in_the_reference() -> None:
    text = page("api.md")
    report = CacheReport(prompt_tokens=2, divergence=0, restored=0, replayed=0, new=2, tier=Tier.NONE)
    metrics = [name for name, _ in (*SNAPSHOT_COUNTERS.values(), *SNAPSHOT_GAUGES.values())]
    for name in [*Reason, *report.to_json(), *(name.removeprefix("headstart_") for name in metrics)]:
        assert f"`{name}" in text, name


def test_the_page_of_causes_is_what_their_files_say() -> None:
    renew = "python -m headstart.blame.causes.reference > docs/reference/causes.md"
    assert page("causes.md") == reference.page(), f"renew the page: {renew}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
