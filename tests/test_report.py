"""The report: valid, whole, escaped, small, and true to the numbers it shows."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_cases import CASES, HOSTILE, a_run

from dmkl.cli.main import main
from dmkl.errors import OutputError
from dmkl.report import Contents
from dmkl.report.charts import (
    BLUE,
    Axis,
    Series,
    _tick,
    around,
    histogram,
    levels,
    line_chart,
    picture,
    png,
    shades,
    shrink,
)
from dmkl.report.markup import BARS, Section, details, figure, legend, paragraph, section, table
from dmkl.report.page import page
from dmkl.report.parts import PARTS
from dmkl.report.parts.scores import RECALL, precisions
from dmkl.run import RunDirectory
from dmkl.run.report import read_run, rounds
from dmkl.solvers import FORMULATIONS

VOID = {"meta", "link", "img", "br"}
SVG_ALONE = {"line", "polyline", "polygon", "rect", "circle"}  # written with a closing slash
INSIDE = {"tr": {"thead", "tbody"}, "td": {"tr"}, "th": {"tr"}, "li": {"ul"}, "summary": {"details"}}
INSIDE |= {"dt": {"div"}, "dd": {"div"}, "caption": {"table"}, "figcaption": {"figure"}}
NO_BLOCKS = {"p", "h1", "h2", "h3", "span"}  # nothing but phrases in there
PHRASES = {"span", "strong", "code", "i", "a"}
ADDRESSES = ("href", "src", "srcset", "action", "data", "poster", "xlink:href")


class Checker(HTMLParser):
    """Refuses what is no valid HTML, and whatever would make a browser fetch or run something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice: {names}"
        assert tag not in ("script", "iframe", "object", "embed", "base", "form")
        assert not any(name.startswith("on") for name in names)
        if tag in INSIDE:
            assert self.open[-1] in INSIDE[tag], f"<{tag}> in {self.open}"
        if self.open and self.open[-1] in NO_BLOCKS:
            assert tag in PHRASES, f"<{tag}> in {self.open}"
        values = dict(attrs)
        for name in ADDRESSES:
            if name in values:
                assert (values[name] or "").startswith(("#", "data:")), f"<{tag} {name}={values[name]}>"
        assert "url(" not in (values.get("style") or "")
        if tag == "img":
            assert values.get("alt")
        if tag == "svg":
            assert values.get("role") == "img"
            assert values.get("aria-label")
        if "id" in values:
            assert values["id"] not in self.ids
            self.ids.add(str(values["id"]))
        if tag == "a":
            self.links.add(str(values["href"])[1:])
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SVG_ALONE, f"<{tag}/> is not closed in HTML"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag, f"</{tag}> crosses another"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert text.startswith("<!doctype html>")
    assert not checker.open
    assert checker.links <= checker.ids
    assert "url(" not in text.split("</style>")[0]
    assert "@import" not in text.split("</style>")[0]
    return checker


def spoken(text: str) -> str:
    """What a valid page says, on one line."""
    return " ".join(" ".join(checked(text).words).split())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_report_is_valid_and_small(case: str) -> None:
    text = page(CASES[case]())
    found = checked(text)
    assert len(text) < 3e6, f"{len(text):,} bytes"
    assert "nan" not in " ".join(found.words).replace("nano", "").split()
    print(f"\n{case}: {len(text):,} bytes")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("hostile")], ids=str)
def test_names_are_data(case: str) -> None:
    text = page(CASES[case]())
    found = checked(text)
    assert HOSTILE in " ".join(found.words)  # as it is, for people
    assert "<script" not in text


def test_a_parser_would_notice() -> None:
    whole = page(CASES["multiclass"]())
    for damage in (
        "<script>1</script>",
        "<p><table></table></p>",
        '<img src="data:,">',
        "<div>",
        "</p>",
        '<b id="cite">',
    ):
        with pytest.raises(AssertionError):
            checked(whole.replace("<main>", f"<main>{damage}"))


def test_every_part_that_was_asked_for_is_there() -> None:
    wanted = {"score", "certificate", "weights", "samples", "outputs", "confusion", "curves"}
    wanted |= {"sparsity", "course", "time", "cite", "provenance"}
    found = checked(page(CASES["multiclass"]()))
    assert wanted <= found.ids
    assert {"svg", "img", "table", "caption", "figcaption"} <= found.tags
    assert "relevance" in checked(page(CASES["mikl"]())).ids
    without = checked(page(CASES["regression"]()))
    assert not {"confusion"} & without.ids
    assert "class" not in " ".join(without.words).lower().replace("classification", "")


@pytest.fixture(scope="module")
def runs() -> list[Contents]:
    """Runs of every kind, but for the very large ones."""
    return [make() for case, make in CASES.items() if "000" not in case and "257" not in case]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_takes_every_run(name: str, runs: list[Contents], monkeypatch: pytest.MonkeyPatch) -> None:
    """The conformance test of parts: alone on the page each is well formed, escaped and linked."""
    monkeypatch.setattr(PARTS, "_entries", {name: PARTS[name]})
    pages = [checked(page(run)) for run in runs]
    assert any(name in found.ids for found in pages) or name == "tuning"  # of which no run here has a search
    assert all(found.ids & {name} == found.links & {name} for found in pages)


def test_a_part_is_one_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    def hello(contents: Contents) -> Section:
        return section("Hello <there>", paragraph(f"from {contents.name}"))

    monkeypatch.setattr(PARTS, "_entries", {**PARTS._entries, "hello": hello})
    text = page(CASES["hostile names"]())
    found = checked(text)
    assert "hello" in found.ids & found.links
    assert "Hello <there>" in found.words
    assert f"from runs/{HOSTILE}" in found.words
    assert list(PARTS)[:2] == ["score", "certificate"]  # the order of the page
    order = [text.index(f'<section id="{name}"') for name in PARTS if name in found.ids]
    assert order == sorted(order)


def test_a_part_without_markup_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PARTS, "_entries", {"none": lambda contents: None, "empty": lambda contents: section("E")})
    found = checked(page(a_run()))
    assert not found.ids
    assert not found.links


def test_texts_are_escaped_wherever_they_stand() -> None:
    for piece in (
        paragraph(HOSTILE),
        table(HOSTILE, [HOSTILE, HOSTILE], [(HOSTILE, HOSTILE)]),
        legend([(BARS[0], HOSTILE)]),
        figure(HOSTILE, paragraph(HOSTILE)),
        details(HOSTILE, paragraph(HOSTILE)),
        line_chart(HOSTILE, [Series(HOSTILE, [(0, 1)])] * 2, Axis(HOSTILE, 0, 1), Axis(HOSTILE, 0, 1)),
        histogram(HOSTILE, HOSTILE, HOSTILE, [1], [0.0, 1.0]),
        picture(np.zeros((1, 1), np.uint8), shades(BLUE), HOSTILE, height=4),
    ):
        checker = Checker()
        checker.feed(f"<table>{piece}</table>")
        assert "<script" not in piece
        assert HOSTILE not in piece


def test_an_unfinished_run_says_so() -> None:
    words = spoken(page(CASES["unfinished"]()))
    assert "not finished" in words
    assert "nothing is proved" in words
    assert "Rounds (2)" in words


def test_the_certificate_has_the_numbers() -> None:
    run = a_run()
    assert run.model is not None
    gap, objective, dual = (run.model.about[name] for name in ("gap", "objective", "dual"))
    worst = int(np.argmax(gap))
    words = spoken(page(run))
    assert f"can lower the objective of any class by more than {100 * gap[worst]:#.2g} %." in words
    assert f"The loosest bound is for class “{run.model.outputs[worst]}”, where" in words
    found = re.search(r"objective of this model is ([\d.]+), .*? dual point has the value ([\d.]+)\. ", words)
    assert found is not None
    ours, bound = found.groups()
    assert (float(ours), float(bound)) == pytest.approx((objective[worst], dual[worst]), rel=1e-3)
    assert float(bound) < float(ours)
    loose = replace(run.model, about={**run.model.about, "gap": [0.2] * 5})
    assert "Not certified to the tolerance: another choice" in spoken(page(replace(run, model=loose)))
    unknown = replace(run.model, about={**run.model.about, "gap": [np.inf] * 5, "dual": [-np.inf] * 5})
    assert "Nothing is proved yet" in spoken(page(replace(run, model=unknown)))


@pytest.mark.parametrize("name", FORMULATIONS)
def test_the_paper_of_the_formulation_is_cited(name: str) -> None:
    paper = FORMULATIONS[name].paper
    assert re.search(r", (19|20)\d\d\.$", paper)
    assert paper in spoken(page(a_run(formulation=name)))


def test_a_formulation_without_a_paper_has_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMULATIONS["vskl"], "paper", "")
    assert "How to cite" in spoken(page(a_run()))
    assert "is described in" not in spoken(page(a_run()))


def test_what_tune_leaves_is_shown() -> None:
    rows = [{"point": f"VSKL C={C}", "mean": mean, "se": 0.01, "values": [mean]} for C, mean in ((1, 0.91), (10, 0.93))]
    tuning = {"metric": "mean_average_precision", "folds": 5, "rule": "one standard error", "chosen": 0, "table": rows}
    text = page(replace(a_run(), tuning=tuning, tuning_drawing="<svg><script>1</script></svg>"))
    words = spoken(text)
    assert (
        "compared by mean average precision in 5-fold cross-validation. The rule “one standard error” chose VSKL C=1."
        in words
    )
    assert "VSKL C=10 0.93 0.01" in words
    assert "<script" not in text


def decoded(data: bytes) -> tuple[np.ndarray, bytes]:
    """The dots of a PNG file and its opacities, every checksum checked."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    file, parts = io.BytesIO(data[8:]), {}
    while head := file.read(8):
        size, kind = struct.unpack(">I4s", head)
        body = file.read(size)
        assert struct.unpack(">I", file.read(4))[0] == zlib.crc32(kind + body)
        parts[kind] = body
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:], parts[b"tRNS"]


def test_pictures_hold_the_matrix(rng: np.random.Generator) -> None:
    shares = rng.random((7, 11))
    dots, opacity = decoded(png(levels(shares), shades(BLUE)))
    assert np.array_equal(dots, np.rint(255 * shares).astype(np.uint8))
    assert list(opacity) == list(range(256))
    small = shrink(rng.random((700, 1100)), 100, 90)
    assert small.shape == (100, 90)
    assert small.max() <= 1
    assert shrink(np.eye(5), 2, 5).sum() == 5  # the largest of neighbours: nothing that stands out is lost


def test_the_confusion_picture_has_right_and_wrong(rng: np.random.Generator) -> None:
    run = a_run("multiclass", 40)
    assert run.predictions is not None
    text = re.search(r'<section id="confusion">.*?base64,([^"]+)"', page(run), re.S)
    assert text is not None
    dots, _ = decoded(base64.b64decode(text[1]))
    truth, said = run.predictions.truth.values, run.predictions.scores.argmax(axis=1)
    counts = np.zeros((40, 40))
    np.add.at(counts, (truth, said), 1)
    assert np.array_equal((dots > 128) | ((dots > 0) & (dots < 128)), counts > 0)
    assert np.array_equal(dots > 128, (counts > 0) & ~np.eye(40, dtype=bool))


def test_precision_is_what_scikit_learn_says(rng: np.random.Generator) -> None:
    from sklearn.metrics import precision_recall_curve

    scores = np.round(rng.normal(size=200), 1)  # with ties
    inside = rng.random(200) < 0.3
    precision, recall, _ = precision_recall_curve(inside, scores)
    best = [precision[:-1][recall[:-1] >= at - 1e-12].max() for at in RECALL]
    np.testing.assert_allclose(precisions(scores, inside), best)


def test_charts_put_points_where_they_belong() -> None:
    axis = around("gap", [1e-3, 0.5], log=True)
    assert (axis.low, axis.high) == pytest.approx((1e-3, 1.0))
    assert axis.place(np.sqrt(1e-3)) == pytest.approx(0.5)
    assert Axis("x", 0, 10).ticks() == [0, 2, 4, 6, 8, 10]
    assert all(tick == int(tick) for tick in around("n", [0, 2], whole=True).ticks())
    for value, shown in (
        (1e-4, "1e-4"),
        (0.001, "0.001"),
        (1.25e6, "1.25e6"),
        (0, "0"),
        (1500, "1,500"),
        (-2.5, "-2.5"),
    ):
        assert _tick(value) == shown
    chart = line_chart("c", [Series("a", [(0, 1.0), (1, np.inf), (2, 0.1)])], Axis("x", 0, 2), axis)
    assert "inf" not in chart
    assert chart.count("<circle") == 2


def test_rounds_of_several_turns_are_one_course(tmp_path: Path) -> None:
    lines = [(1, 2.0), (2, 5.0), (2, 1.0), (3, 4.0)]  # killed while round 3 was running, round 2 done again
    events = [{"event": "RoundDone", "round": number, "seconds": seconds} for number, seconds in lines]
    run = RunDirectory(tmp_path)
    run.events.write_text("\n".join(json.dumps(event) for event in [{"event": "Note"}, *events]) + '\n{"event": "Rou')
    assert [(entry["round"], entry["seconds"]) for entry in rounds(run)] == [(1, 2.0), (2, 6.0), (3, 9.0)]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not a run directory"):
        read_run(RunDirectory(tmp_path))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "run"
    small = ["-s", "solve.baselines=false", "-s", "data.test=0.6"]
    assert main(["train", "--example", "digits", "-q", "-o", str(path), *small]) == 0
    return path


def test_the_command_writes_what_training_wrote(digits: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.html"
    assert main(["report", str(digits), "-q", "-o", str(again)]) == 0
    assert again.read_text() == (digits / "report.html").read_text()
    checked(again.read_text())


def test_a_sample_can_be_opened(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "opened.html"
    command = ["report", str(digits), "-o", str(out), "--open-sample", "7", "--open-sample", "41"]
    assert main(command) == 0
    words = spoken(out.read_text())
    assert "Held-out sample 7 " in words
    assert words.count("Held-out sample ") == 2
    assert main([*command, "--open-sample", "100000"]) == 2
    assert "there is no held-out sample 100000" in capsys.readouterr().err


def test_samples_of_other_data_are_not_opened(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((digits / "config.json").read_text())
    other = tmp_path / "run"
    other.mkdir()
    for file in digits.iterdir():
        if file.is_file():
            (other / file.name).write_bytes(file.read_bytes())
    config["solve"]["seed"] += 1  # another split
    (other / "config.json").write_text(json.dumps(config))
    assert main(["report", str(other), "--open-sample", "7"]) == 4
    assert "have changed" in capsys.readouterr().err


def test_a_run_cut_short_has_a_report(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "events.jsonl"):
        (tmp_path / name).write_bytes((digits / name).read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    assert "of an unfinished run" in capsys.readouterr().out
    assert "not finished" in spoken((tmp_path / "report.html").read_text())


def test_a_run_on_hostile_names_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    names = np.array([HOSTILE, "<img src=x onerror=alert(1)>", "--></section>"])
    y = rng.integers(0, 3, 90)
    np.savez(tmp_path / "data.npz", **{"y": names[y], "X_<script>a&b": rng.normal(size=(90, 3)) + y[:, None]})  # type: ignore[arg-type]
    config = '[data]\npath = "data.npz"\n[[kernels]]\nkernel = "linear"\n[[kernels]]\nkernel = "rbf"\nwidth = 2\n'
    (tmp_path / "config.toml").write_text(f'{config}group = "</table>"\n[formulation]\nname = "uniform"\n')
    monkeypatch.chdir(tmp_path)
    assert main(["train", "config.toml", "-q", "-o", "run"]) == 0
    found = checked((tmp_path / "run" / "report.html").read_text())
    words = " ".join(found.words)
    assert all(name in words for name in (*names, "<script>a&b/linear", "</table>"))
