"""The documents: links lead somewhere, named files exist, indexes are complete, pages are short."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

import dmkl

ROOT = Path(dmkl.__file__).parent.parent
DOCS = ROOT / "dmkl/docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = DOCS / "reference/cli.md"
LONGEST, LONGEST_DECISION = 3000, 350  # words
PROFILE = "cluster/slurm.toml"  # which users make
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w./~-])((?:dmkl|tests|pipelines|cluster)/[\w./-]*\w)")


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_named_files_exist(page: Path) -> None:
    """Outside of code blocks, and but for files that a walk adds; NAME stands for any name."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    added = {*re.findall(r"\d\. New file `([^`]+)`", text), PROFILE}
    named = {path for path in NAMED.findall(text) if "NAME" not in path}
    missing = {path for path in named if not (ROOT / path).exists()}
    assert missing <= added


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "adding"], ids=names)
def test_places_can_be_imported(page: Path) -> None:
    for place in re.findall(r"\bdmkl(?:\.\w+)+:\w+", page.read_text()):
        assert resolve_name(place)


@pytest.mark.parametrize("page", sorted((DOCS / "papers").glob("[!R]*.md")), ids=names)
def test_the_code_that_a_paper_is_walked_to_exists(page: Path) -> None:
    """Functions, classes and options in the second column of its table, each part of `Class.method`."""
    source = "\n".join(path.read_text() for path in sorted((ROOT / "dmkl").rglob("*.py")))
    rows = [line.split(" | ")[1] for line in page.read_text().splitlines() if line.startswith("| ")]
    code = [name for row in rows for name in re.findall(r"`([A-Za-z_][\w.]*)", row) if not name.startswith("dmkl")]
    assert len(code) > 5
    for name in code:
        for part in name.split("."):
            assert re.search(rf"\b{part}\b", source), name


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED], ids=names)
def test_pages_are_short(page: Path) -> None:
    words = len(page.read_text().split())
    assert words <= (LONGEST_DECISION if page.parent.name == "decisions" and page.stem != "README" else LONGEST)


FOLDERS = ("decisions", "adding", "papers")  # which have an index of their own


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_index_lists_its_folder(folder: str) -> None:
    linked = set(LINK.findall((DOCS / folder / "README.md").read_text()))
    assert {page.name for page in (DOCS / folder).glob("*.md")} - {"README.md"} <= linked


def test_the_index_leads_to_every_folder() -> None:
    linked = set(LINK.findall((DOCS / "README.md").read_text()))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    indexed = {
        page
        for page in pages
        if page.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and not page.endswith("README.md")
    }
    assert pages - indexed <= linked


def test_every_decision_says_when_to_look_again() -> None:
    for page in (DOCS / "decisions").glob("*.md"):
        if page.stem != "README":
            text = page.read_text()
            assert all(f"**{part}.**" in text for part in ("Context", "Decision", "When to look again")), page.name
