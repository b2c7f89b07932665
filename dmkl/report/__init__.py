"""The report of a run."""

from dmkl.report.contents import Contents
from dmkl.report.page import write_report

__all__ = ["Contents", "write_report"]
