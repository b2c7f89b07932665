"""What Dask shows of the work of a cluster: its dashboard while a run lasts, and a performance report at the end.

Dask draws both with bokeh, in the process of its scheduler, which is this one unless somebody else started it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dmkl.errors import ConfigError, OutputError, one_line

if TYPE_CHECKING:
    from dmkl.runtime.dask import DaskRuntime


@dataclass(frozen=True)
class Diagnostics:
    """What somebody wants to see of a cluster.

    Attributes
    ----------
    dashboard
        Whether the link of Dask's dashboard is shown.
    report
        The HTML file that Dask's performance report of the run is written to, None for no report.
    """

    dashboard: bool = False
    report: Path | None = None

    def check(self, cluster: str) -> None:
        """Refuse what cannot be shown or written, before anything starts.

        Parameters
        ----------
        cluster
            As for `open_runtime`.

        Raises
        ------
        ConfigError
            If there is no Dask cluster, no bokeh, or the report is to be something else than an HTML file.
        OutputError
            If the report has no folder to be in.
        """
        if not self.dashboard and self.report is None:
            return
        if cluster == "none":
            raise ConfigError(
                "there is nothing for Dask to show: without --cluster everything runs in threads of this process",
                "add --cluster local:4, or leave out --dashboard and --performance-report",
            )
        if self.report is not None and self.report.suffix != ".html":
            raise ConfigError(f"a performance report is an HTML file, not '{self.report}'", "name it NAME.html")
        if self.report is not None and not self.report.absolute().parent.is_dir():
            raise OutputError(f"cannot write {self.report}: there is no such folder")
        if not is_foreign(cluster):
            _require_bokeh()

    @contextlib.contextmanager
    def shown(self, runtime: DaskRuntime, cluster: str, note: Callable[[str], None]) -> Iterator[None]:
        """Note the link of the dashboard at the beginning of the body, and write the report at its end."""
        if self.dashboard:
            note(_dashboard(runtime, cluster))
        with contextlib.nullcontext() if self.report is None else _reported(runtime, self.report, note):
            yield


def is_foreign(cluster: str) -> bool:
    """Whether somebody else started the scheduler."""
    return cluster == "current" or cluster.startswith(("tcp://", "tls://"))


def _dashboard(runtime: DaskRuntime, cluster: str) -> str:
    """A line about the dashboard. A scheduler that we started serves it to this machine only, also where the scheduler
    itself listens on a network."""
    port = runtime.client.scheduler_info()["services"].get("dashboard")
    if port is None:
        return "this scheduler serves no dashboard"
    link = runtime.client.dashboard_link if is_foreign(cluster) else f"http://127.0.0.1:{port}/status"
    return f"dashboard {link}"


def _require_bokeh() -> None:
    try:
        import distributed.dashboard.scheduler  # noqa: F401 - as Dask itself finds out, with the version it needs
    except ImportError as error:
        raise ConfigError(
            f"Dask's dashboard and performance report need bokeh ({one_line(error)})", "pip install 'dmkl[dashboard]'"
        ) from None


@contextlib.contextmanager
def _reported(runtime: DaskRuntime, path: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Write a report of the body. The work is done by then, so what goes wrong is noted only."""
    from distributed import performance_report

    report = performance_report(str(path), mode="inline")  # with its scripts: a cluster may have no internet
    with runtime.client.as_current():
        report.__enter__()
    try:
        yield
    finally:
        try:
            with runtime.client.as_current():  # another client, if the cluster was lost and found meanwhile
                report.__exit__(None, None, None)
        except Exception as error:
            note(f"there is no performance report: {one_line(error)}")
        else:
            note(f"performance report {path}")
