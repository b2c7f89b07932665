"""Finished cells of a run, one JSON line each: what is there is not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """Results by key. A folder belongs to one set of options, which is its first line."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "cells.jsonl"
        text = self.path.read_text() if self.path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]  # a killed run may have left half a line
        if whole != text:
            self.path.write_text(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines and lines[0] != options:
            raise SystemExit(f"{folder} holds results of other options ({lines[0]}): choose another --folder")
        self.cells = {line["key"]: line["cell"] for line in lines[1:]}
        if not lines:
            self._append(options)

    def cell(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self.cells:
            self.cells[key] = compute()
            self._append({"key": key, "cell": self.cells[key]})
        return self.cells[key]

    def __contains__(self, key: str) -> bool:
        return key in self.cells

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
