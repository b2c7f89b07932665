"""The walk of CONTRIBUTING.md, carried out as it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import dmkl

ROOT = Path(dmkl.__file__).parent.parent
SCRIPT = """
import numpy as np
from dmkl.config import KernelConfig
from dmkl.data import Dataset, make_view
from dmkl.kernels import plan_bank
X = np.random.default_rng(0).normal(size=(20, 3))
data = Dataset({"v": make_view("v", "features", X)})
bank = plan_bank([KernelConfig("cauchy", params={"width": [1.0, 2.0]})], data)
print([kernel.name for kernel in bank.kernels])
"""


def test_adding_a_kernel_is_one_file_and_one_line(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    shutil.copytree(ROOT / "dmkl", tmp_path / "dmkl", ignore=shutil.ignore_patterns("__pycache__"))
    name, block = re.search(r"`(dmkl/kernels/functions/\w+\.py)`:\n   ```python\n(.*?)```", text, re.DOTALL).groups()
    (tmp_path / name).write_text(re.sub(r"^   ", "", block, flags=re.MULTILINE))
    home, line = re.search(r"`(dmkl/kernels/functions/__init__\.py)`: `(.*?)`", text).groups()
    with (tmp_path / home).open("a") as file:
        file.write(f"from {name[:-3].replace('/', '.')} import Cauchy\n{line}\n")
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "['v/cauchy(width=1.0)', 'v/cauchy(width=2.0)']"
