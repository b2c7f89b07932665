"""Finished cells of a run, one JSON line each; they are not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """Results by key. A folder belongs to one set of settings, which is its first line."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = json.loads(json.dumps(settings))  # as they are read back
        self.path = folder / "cells.jsonl"
        text = self.path.read_text() if self.path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]  # a killed run may have left half a line
        if whole != text:
            self.path.write_text(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines and lines[0] != settings:
            raise SystemExit(f"{folder} holds results of other settings: remove it, or choose another --folder")
        self.cells = {line["key"]: line["cell"] for line in lines[1:]}
        if not lines:
            self._append(settings)

    def cell(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self.cells:
            line = {"key": key, "cell": compute()}
            self._append(line)
            self.cells[key] = json.loads(json.dumps(line))["cell"]  # what a run that goes on will see
        return self.cells[key]

    def __contains__(self, key: str) -> bool:
        return key in self.cells

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
