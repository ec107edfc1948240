"""How far the models are from independent implementations with the same weights: docs/equivalence.md.

Runs the proofs of tests/equivalence/ and writes down what they measured. Nothing is written unless all of them pass.
"""

import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from paperformer.training.engine.devices.hardware import describe_hardware

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "equivalence.md"
MEASURES = ("logits", "loss", "gradients", "logits in float32", "loss in float32", "gradients in float32")
GENERATION = "generates_the_same_tokens"  # in the names of tests

INTRODUCTION = """\
# Equivalence with independent implementations

Each row is a model of this package beside another implementation: the same random weights, biases and norms included,
the same padded batch, and then the largest difference over all logits at real positions, in the loss, and over the
gradients of all parameters. Differences are relative: to the largest logit, to the loss, to the largest gradient of
each parameter, and a proof fails at {tolerance:g}. Each figure is the largest over the variants of a proof: padding on
the right and, where the reference takes it, on the left; our attention by sdpa and eager.

No parameter of either model is left out, and where a reference stores or scales weights in another way, the test's
`translate` says how ([tests/equivalence/](../tests/equivalence)). Models compute in float64, where the reference can:
what remains are the parts (norms, sinusoids, losses) that one side computes in float32 all the same. Where it cannot,
because of its softmax in float32, both compute in float32. The last three columns are for float32 throughout, the
precision that models are used in; there gradients are relative to the largest of all parameters, because those that
are zero but for rounding have no scale of their own.

In at least one of their configurations, {generating} also generate greedily with caches, and the tokens are identical.
"""


def run_proofs(report: Path) -> None:
    """Runs tests/equivalence/ and leaves pytest's report in JUnit's form.

    Raises:
        SystemExit: if a proof fails.
    """
    command = [sys.executable, "-m", "pytest", "-q", "tests/equivalence", f"--junit-xml={report}"]
    # The newer form of the report has no place for what a test records.
    if subprocess.run([*command, "-o", "junit_family=xunit1"], cwd=ROOT, check=False).returncode != 0:
        raise SystemExit(f"not all proofs hold: {PAGE} is left as it was")


def read_report(report: Path) -> tuple[list[dict[str, str]], list[str]]:
    """What each proof recorded, in the order of the tests, and the references with which generation is compared."""
    cases = list(ET.parse(report).iter("testcase"))
    generating = {case.attrib["classname"] for case in cases if GENERATION in case.attrib["name"]}
    records, compared = [], {}
    for case in cases:
        record = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
        if record:
            records.append(record)
        if record and case.attrib["classname"] in generating:
            compared[record["reference"].partition(",")[0]] = None
    return records, list(compared)


def table(records: list[dict[str, str]]) -> list[str]:
    """A row for each reference and what it shows, with the largest differences over its variants."""
    largest: dict[tuple[str, str], list[float]] = {}
    for record in records:
        row = (record["reference"], record["shows"])
        differences = [float(record[measure]) for measure in MEASURES]
        largest[row] = [max(pair) for pair in zip(differences, largest.get(row, differences), strict=True)]
    rows = [f"| reference | what it shows | {' | '.join(MEASURES)} |", "|---|---" + "|---" * len(MEASURES) + "|"]
    for (reference, shows), differences in largest.items():
        rows.append(f"| {reference} | {shows} | {' | '.join(f'{difference:.0e}' for difference in differences)} |")
    return rows


def main() -> None:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        run_proofs(report)
        records, generating = read_report(report)
    introduction = INTRODUCTION.format(tolerance=float(records[0]["tolerance"]), generating=", ".join(generating))
    software = ", ".join(f"{name} {version(name)}" for name in ("paperformer", "torch", "transformers"))
    how = [
        "## How it was measured",
        "",
        f"- Command: `python benchmarks/equivalence.py` ({time.monotonic() - start:.0f} s; writes this page)",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}",
        f"- Hardware: {describe_hardware()}",
        f"- Software: Python {platform.python_version()}, {software}",
    ]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([introduction, *table(records), "", *how, ""]), encoding="utf-8")
    print(f"Written to {PAGE}")


if __name__ == "__main__":
    main()
