"""Commands that take a finished model elsewhere: to another architecture, or to the Hub."""

from pathlib import Path
from typing import Literal, TypedDict, Unpack

from ..api.given_models import place_of
from ..training.console.input_error import InputError
from .loading import be_quiet, load_config

Foreign = Literal["marian", "gpt2", "llama", "bert"]
Direction = TypedDict("Direction", {"to": Foreign, "from": Foreign}, total=False)  # a parameter cannot be named `from`
Direction.__doc__ = """Options of `convert`, of which one is given.

Args:
    to: The architecture to convert a paperformer model to; it loads with transformers alone.
    from: The architecture of a model to convert to paperformer.
"""


def convert(model: str, output: str, allow_pickle: bool = False, **direction: Unpack[Direction]) -> None:
    """Convert a model to, or from, an architecture of transformers; it is written only if it computes the same.

    Args:
        model: A model's folder, its name on the Hub, or that of one that comes with paperformer: cldr-en-de,
            shakespeare.
        output: Folder to write.
        allow_pickle: Read weights that are pickled (pytorch_model.bin) where there are no safetensors. A pickle can
            hold code; PyTorch refuses to run it, but allow this only for models whose source you trust.
    """
    from ..conversion.model_folder import ARCHITECTURES, convert_folder

    if len(direction) != 1:
        raise InputError("give either --to ARCHITECTURE or --from ARCHITECTURE, one of " + ", ".join(ARCHITECTURES))
    model = place_of(model)
    load_config(model)  # which says in a line why it cannot be
    architecture = ARCHITECTURES[direction["from"] if "from" in direction else direction["to"]]
    report = convert_folder(model, Path(output), architecture, to_ours="from" in direction, allow_pickle=allow_pickle)
    print(f"{report.parameters:,} parameters, {str(report.dtype).removeprefix('torch.')}")
    print(f"logits differ by at most {report.difference:.1e}, where the largest is {report.scale:.2f}")
    for what, lost in (
        ("fields without effect on a trained model", report.lost_fields),
        ("weights of other heads", report.lost_weights),
    ):
        if lost:
            print(f"left out, {what}: {', '.join(lost)}")
    print(f"tokenizer: {report.tokenizer}")
    print(output)


def export(
    model: str,
    output: str,
    to: Literal["ctranslate2", "onnx", "gguf"] | None = None,
    quantization: str = "float32",
    text: str | None = None,
    reference: str | None = None,
    sequences: int = 100,
    num_beams: int = 5,
) -> None:
    """Export a model to an engine that needs neither torch nor transformers; written only if it agrees with the model.

    Args:
        model: A model of paperformer: its folder, a run's folder, or its name on the Hub.
        output: Folder to write: the model in the engine's format, its tokenizer, export.md and export.json.
        to: The engine: ctranslate2 (translation, language models, encoders), onnx (all), gguf (language models, for
            llama.cpp).
        quantization: How weights are stored: float32 (the same results), or what the engine has: int8, int16, float16
            and others; a wrong one gets the list.
        text: File to compare on: sentences to translate, one a line, or running text. By default what the model's run
            has left of its test set, or else random tokens.
        reference: File of raw reference translations, line by line those of the text, for BLEU before and after.
        sequences: How many sentences, or windows of running text, are compared at the most.
        num_beams: Beam size of translations.
    """
    from ..api.exports import export_model
    from ..export.export_file import ExportFile
    from ..export.table import text_of
    from ..training.data.text.lines import read_lines

    if to is None:
        raise InputError("give --to ctranslate2, --to onnx or --to gguf")
    if reference is not None and text is None:
        raise InputError("--reference is given without --text; give the file of its sources as --text")
    references = None if reference is None else [line or "" for line in read_lines(Path(reference))]
    comparison = export_model(
        model,
        output,
        to,
        quantization=quantization,
        text=text,
        references=references,
        sequences=sequences,
        num_beams=num_beams,
    )
    print(text_of(ExportFile.read(Path(output)), comparison))
    print(output)


def push(
    run: str,
    repo_id: str,
    private: bool = True,
    create_pr: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    collection: str | None = None,
    commit_message: str | None = None,
    force: bool = False,
) -> None:
    """Publish a finished, scored model on the Hub, in one commit; one that is significantly worse is refused.

    Args:
        run: A run's folder, or the model folder in it, with weights, tokenizer, code, card and scores.
        repo_id: USER/NAME on the Hub; it is made if it is missing. Log in first with: hf auth login.
        private: Whether a new repository is private; one that is there stays as it is.
        create_pr: Open a pull request instead of changing the repository.
        revision: Branch to commit to, by default main.
        tag: Name for the commit, such as v1.0.
        collection: Collection to put the model into: a title, or USER/TITLE-ID of one that is there.
        commit_message: By default: Upload model with paperformer.
        force: Publish it though it is significantly worse than what is on the Hub.
    """
    from ..training.publishing.upload import push as push_folder

    be_quiet()
    published = push_folder(
        run,
        repo_id,
        private=private,
        create_pr=create_pr,
        revision=revision,
        tag=tag,
        collection=collection,
        commit_message=commit_message,
        force=force,
    )
    print(f"{published.address} {published.commit}")
