"""The one outer loop: stopping on the certificate, events, checkpoints."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dmkl._util.stopping import Stopped, deadline, must_stop, seconds_left, stop_requested
from dmkl.errors import DeadlineReached, SolverError, StoreError
from dmkl.events import Note, RoundDone
from dmkl.solvers.problem import Problem, Solver
from dmkl.solvers.state import State, load_state, save_state


@dataclass(frozen=True)
class LoopOptions:
    """When the loop gives up."""

    stalled: int = 3  # rounds without a smaller gap, another working set or a milestone
    worth_more: float = 300.0  # seconds: a round that a signal cuts short after so long is saved, whatever its bits


OPTIONS = LoopOptions()


@dataclass(frozen=True)
class Checkpoint:
    """Where the state is saved between rounds, and the digest of its problem."""

    path: Path
    identity: str


@dataclass
class Outcome:
    """The last state, and what happened in this run."""

    state: State
    converged: bool
    out_of_time: bool = False  # or somebody asked it to stop
    rule: str = ""  # of the algorithm's own, that ended it above the tolerance
    history: list[dict[str, float]] = field(default_factory=list)


def run(
    problem: Problem,
    solver: Solver,
    *,
    max_rounds: int,
    max_seconds: float = np.inf,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Step until every certified relative gap is at most the tolerance, or rounds or time are used up.

    Parameters
    ----------
    problem : Problem
        The problem of all classes.
    solver : Solver
        The algorithm.
    max_rounds : int
        The most rounds, with those of earlier runs that a checkpoint continues.
    max_seconds : float
        The most time of this run. A round that takes longer is cut short (`dmkl._util.stopping`): it ends with what it
        has, certified, or it is given up, and the state before it stays.
    checkpoint : Checkpoint, optional
        Where the state is saved after every round, and loaded from before the first.

    Returns
    -------
    Outcome
        The last state. The loop also ends when the algorithm has a rule of its own that ends it (`MethodState.rule`),
        and when nothing has moved for some rounds (`LoopOptions`).
    """
    with deadline(max_seconds):
        return _run(problem, solver, max_rounds, checkpoint)


def _run(problem: Problem, solver: Solver, max_rounds: int, checkpoint: Checkpoint | None) -> Outcome:
    started = time.perf_counter()
    state = load_state(checkpoint.path, checkpoint.identity, solver.own_type) if checkpoint else None
    begins = state is None
    if state is not None and state.working.shape != problem.Y.shape:
        n, m = state.working.shape
        raise StoreError(f"the checkpoint is damaged: it has {n} samples and {m} classes", "remove it to begin again")
    outcome = Outcome(state if state is not None else _first(problem, solver), converged=False)
    if checkpoint and begins and not must_stop():  # what was cut short is better done again
        save_state(checkpoint.path, outcome.state, checkpoint.identity)
    best, idle = np.inf, 0
    while (outcome.state.gap > problem.tol).any() and not outcome.state.own.rule(problem.tol):
        # at least one round a run where there is time for one, so that repeated calls make progress
        outcome.out_of_time = must_stop() or (bool(outcome.history) and seconds_left() <= 0)
        if outcome.out_of_time or outcome.state.round >= max_rounds or idle >= OPTIONS.stalled:
            break
        before, begun = outcome.state, time.perf_counter()
        try:
            outcome.state = _stepped(problem, solver, before)
        except Stopped:
            outcome.out_of_time = True
            break
        for text in problem.stack.news():
            problem.observer(Note(text))
        if checkpoint:
            if stop_requested() and time.perf_counter() - begun <= OPTIONS.worth_more:
                continue  # done again, a round that a signal cut short has the bits of one that was not
            save_state(checkpoint.path, outcome.state, checkpoint.identity)
        event = _summary(problem, outcome.state, time.perf_counter() - started)
        outcome.history.append(dataclasses.asdict(event))
        problem.observer(event)
        total = float(np.minimum(outcome.state.gap, 1e3).sum())
        active = before.active, outcome.state.active
        milestones = before.own.milestone(), outcome.state.own.milestone()
        moved = total < best or not all(np.array_equal(*pair) for pair in (active, milestones))
        moved = moved or bool(outcome.state.working.differing(before.working))
        best, idle = min(best, total), 0 if moved else idle + 1
    if (outcome.state.gap > problem.tol).any():
        outcome.state = solver.leave(problem, outcome.state)
    outcome.converged = bool((outcome.state.gap <= problem.tol).all())
    outcome.rule = "" if outcome.converged else outcome.state.own.rule(problem.tol)
    outcome.out_of_time = outcome.out_of_time and not (outcome.converged or outcome.rule)
    return outcome


def _first(problem: Problem, solver: Solver) -> State:
    before = problem.stack.passes
    try:
        state = solver.init(problem)
    except Stopped:
        if stop_requested():
            raise KeyboardInterrupt from None
        raise DeadlineReached("out of time before the first round", "allow more time") from None
    return dataclasses.replace(state, passes=problem.stack.passes - before)


def _stepped(problem: Problem, solver: Solver, state: State) -> State:
    before = problem.stack.passes
    after = solver.step(problem, state)
    if not np.isfinite(after.coef.data).all():
        raise SolverError(f"round {state.round + 1} produced coefficients that are not finite")
    return dataclasses.replace(after, round=state.round + 1, passes=state.passes + problem.stack.passes - before)


def _summary(problem: Problem, state: State, seconds: float) -> RoundDone:
    return RoundDone(
        round=state.round,
        passes=state.passes,
        svm_calls=state.svm_calls,
        handovers=state.handovers,
        finished=int(np.broadcast_to(state.gap <= problem.tol, problem.m).sum()),
        classes=problem.m,
        kernels=int(np.atleast_2d(state.weights > 0).any(axis=0).sum()),
        gap=float(state.gap.max()),
        tol=problem.tol,
        objective=float(state.primal.sum()),
        dual=float(state.dual.sum()),
        seconds=seconds,
    )
