"""The report of a run."""

from dmkl.report.html import write_report

__all__ = ["write_report"]
