"""The report of a run."""

from dmkl.report.page import write_report
from dmkl.report.parts import Contents

__all__ = ["Contents", "write_report"]
