"""What a comparison has found, for people: lines in a terminal, and a section of Markdown for a card."""

from ..training.console.tables import align_rows
from ..training.reporting.markdown import markdown_table
from .comparison import Comparison
from .export_file import ExportFile


def _titles_of(facts: ExportFile) -> list[str]:
    return ["", "float32", facts.quantization] if facts.format == "torch" else ["", "torch", "export"]


def rows_of(facts: ExportFile, comparison: Comparison) -> list[list[str]]:
    """The rows of the table: what was measured, of the model, of the export."""
    count = comparison.sequences
    what = facts.compared if facts.family == "encoder" else "log-probability"
    rows = [
        [f"largest difference of a {what}", "", f"{comparison.difference:.1e}"],
        ["root mean square of the differences", "", f"{comparison.root_mean_square:.1e}"],
    ]
    if comparison.explained:
        rows.append(["the same, where only the weights are rounded", f"{comparison.explained:.1e}", ""])
    if comparison.likeliest is not None:
        token = "token for a place" if facts.family == "encoder" else "next token"
        rows.append([f"the same likeliest {token}", "", f"{100 * comparison.likeliest:.2f} %"])
    rows += [
        [f"the same tokens, {search}", "", f"{same:,} of {count:,}"] for search, same in comparison.identical.items()
    ]
    rows += [[name, f"{before:.2f}", f"{after:.2f}"] for name, (before, after) in comparison.quality.items()]
    rows.append(["size, MB", *(f"{size:.1f}" for size in comparison.megabytes)])
    rows.append(["milliseconds a sequence", *(f"{time:.1f}" for time in comparison.milliseconds)])
    return rows


def text_of(facts: ExportFile, comparison: Comparison) -> str:
    """The table for a terminal, and over what it was measured."""
    rows = [_titles_of(facts), *rows_of(facts, comparison)]
    return f"{align_rows(rows, right={1, 2})}\n{_basis_of(facts, comparison)}"


def markdown_of(facts: ExportFile, comparison: Comparison) -> str:
    """A section of Markdown, as it can go into a card."""
    table = markdown_table(["Measured", *_titles_of(facts)[1:]], rows_of(facts, comparison), {1, 2})
    return f"## Export to {facts.format}, {facts.quantization}\n\n{table}\n\n{_basis_of(facts, comparison)}\n"


def _basis_of(facts: ExportFile, comparison: Comparison) -> str:
    threads = "one thread" if comparison.threads == 1 else f"{comparison.threads} threads"
    beams = f"beam {comparison.num_beams}" if comparison.num_beams > 1 else "greedily"
    lacking = "" if facts.family != "lm" or comparison.quality else " With --text FILE there are perplexities as well."
    return (
        f"Measured over {comparison.sequences:,} sequences ({comparison.sample}), {comparison.tokens:,} tokens; "
        f"time: decoded {beams} in batches of 16, {threads}, the median of three rounds in turn.{lacking}"
    )
