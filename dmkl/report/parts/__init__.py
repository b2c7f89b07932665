"""The parts of a report, in their order. A new part is one file with a function and one line here.

A part receives the `Contents` of a run and returns its `Section`, or None if the run has nothing for it.
"""

from collections.abc import Callable

from dmkl._util.registry import Registry
from dmkl.report.contents import Contents
from dmkl.report.markup import Section

Part = Callable[[Contents], Section | None]

PARTS: Registry[Part] = Registry("report part")  # by the anchor of the section in the page
PARTS.register("score", "dmkl.report.parts.scores:score")
PARTS.register("certificate", "dmkl.report.parts.certificate:certificate")
PARTS.register("weights", "dmkl.report.parts.weights:weights")
PARTS.register("samples", "dmkl.report.parts.samples:samples")
PARTS.register("outputs", "dmkl.report.parts.scores:outputs")
PARTS.register("confusion", "dmkl.report.parts.scores:confusion")
PARTS.register("curves", "dmkl.report.parts.scores:curves")
PARTS.register("relevance", "dmkl.report.parts.weights:relevance")
PARTS.register("sparsity", "dmkl.report.parts.weights:sparsity")
PARTS.register("tuning", "dmkl.report.parts.tuning:tuning")
PARTS.register("course", "dmkl.report.parts.course:course")
PARTS.register("time", "dmkl.report.parts.course:durations")
PARTS.register("cite", "dmkl.report.parts.provenance:citations")
PARTS.register("provenance", "dmkl.report.parts.provenance:provenance")
