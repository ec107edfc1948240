"""The command line: `paperformer COMMAND --help` explains each command.

A command is a function here; its signature and docstring are its options and its help. What a command needs is imported
when it runs, because torch and transformers take seconds.
"""

import argparse
import difflib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, Unpack, get_args

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def quickstart(fast: bool = False, output_dir: str = "runs/quickstart") -> None:
    """Train two small models from data that ships with the package, score them, load them back, and use them.

    Args:
        fast: Train for seconds only, to see that everything works.
        output_dir: Folder for the two runs; earlier ones of the quickstart are replaced.
    """
    from .quickstart import run_quickstart

    run_quickstart(Path(output_dir), fast=fast)


def tokenizer(
    files: list[str], output: str, vocab_size: int = 8000, append_eos: bool = True, min_frequency: int = 2
) -> None:
    """Train a byte-level BPE tokenizer on text files and save it, loadable by AutoTokenizer.

    Args:
        files: Text files, UTF-8, one text a line; .gz, .xz and .bz2 are read too. Example: '[train.en,train.de]'.
        output: Folder to write.
        vocab_size: Entries of the vocabulary, the 256 bytes and 4 special tokens included.
        append_eos: End every text with </s>: true for translation, false for language models.
        min_frequency: How often a pair of symbols must occur to be merged.
    """
    from .tokenization import train_bpe
    from .training.corpora import read_lines
    from .training.input_error import InputError
    from .training.run_folder import replace_folder

    if Path(output).exists():
        raise InputError(f"{output} exists; give a new folder for the tokenizer")
    texts = [line for file in files for line in read_lines(Path(file))]
    try:
        trained = train_bpe(texts, vocab_size, append_eos=append_eos, min_frequency=min_frequency)
    except ValueError as error:
        raise InputError(str(error)) from error
    replace_folder(Path(output), trained.save_pretrained)
    print(f"{len(trained):,} tokens: {output}")


def evaluate(
    model: str,
    source: str,
    reference: str,
    num_beams: int = 5,
    length_penalty: float = 1.0,
    metrics: list[str] | None = None,
) -> None:
    """Translate a file and score the translations against references: sacreBLEU and chrF with signatures, exact match.

    Args:
        model: A translation model's folder, or its name on the Hub.
        source: File to translate, one sentence a line.
        reference: File of reference translations, line by line those of the source; raw text.
        num_beams: Beam size.
        length_penalty: Exponent of the length by which a beam's score is divided.
        metrics: More metrics of the evaluate library, by their names on the Hub or the paths of metric scripts.
            Example: '[meteor,ter]'.
    """
    import json

    from .training.corpora import read_parallel
    from .training.evaluation import translate as translate_texts
    from .training.evaluation import translation_scores

    _require(num_beams >= 1, f"--num_beams is {num_beams}; it must be at least 1")
    sources, references = zip(*read_parallel(Path(source), Path(reference)), strict=True)
    more = {name: _load_metric(name) for name in metrics or []}
    loaded, loaded_tokenizer = _load(model, "translation")
    hypotheses = translate_texts(
        loaded,
        loaded_tokenizer,
        sources,
        num_beams=num_beams,
        length_penalty=length_penalty,
        max_length=_longest_input(loaded_tokenizer, loaded),
    )
    scores = translation_scores(hypotheses, references)
    scores |= {name: metric.compute(predictions=hypotheses, references=references) for name, metric in more.items()}
    print(json.dumps(scores, indent=2, default=float))


def translate(model: str, input: str = "-", num_beams: int = 5, length_penalty: float = 1.0) -> None:  # noqa: A002
    """Translate text line by line, to standard output.

    Args:
        model: A translation model's folder, or its name on the Hub.
        input: File to translate, one sentence a line; - reads standard input.
        num_beams: Beam size; 1 is greedy and fastest.
        length_penalty: Exponent of the length by which a beam's score is divided.
    """
    from .training.corpora import decode_lines, read_lines
    from .training.evaluation import translate as translate_texts

    _require(num_beams >= 1, f"--num_beams is {num_beams}; it must be at least 1")
    lines = decode_lines(sys.stdin.buffer.read(), "standard input") if input == "-" else read_lines(Path(input))
    loaded, loaded_tokenizer = _load(model, "translation")
    filled = [index for index, line in enumerate(lines) if line.strip()]
    outputs = translate_texts(
        loaded,
        loaded_tokenizer,
        [lines[index] for index in filled],
        num_beams=num_beams,
        length_penalty=length_penalty,
        max_length=_longest_input(loaded_tokenizer, loaded),
    )
    translated = dict(zip(filled, outputs, strict=True))
    for index in range(len(lines)):
        print(translated.get(index, ""))


def generate(
    model: str, prompt: str, max_new_tokens: int = 200, temperature: float = 0.9, top_p: float = 0.95, seed: int = 1
) -> None:
    """Continue a text by nucleus sampling, to standard output.

    Args:
        model: A language model's folder, or its name on the Hub.
        prompt: The text to continue.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Divides the logits: below 1 safer, above 1 wilder; 0 takes the likeliest token (greedy).
        top_p: Sample from the smallest set of tokens that has this probability (Holtzman et al. 2019).
        seed: Seed of the sampling.
    """
    import torch

    from .training.evaluation import generate as generate_ids

    _require(max_new_tokens >= 1, f"--max_new_tokens is {max_new_tokens}; it must be at least 1")
    _require(temperature >= 0, f"--temperature is {temperature}; it must be at least 0")
    _require(0 < top_p <= 1, f"--top_p is {top_p}; it must be greater than 0 and at most 1")
    loaded, loaded_tokenizer = _load(model, "text-generation")
    torch.manual_seed(seed)
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p}
    # In training every text begins with <s>.
    ids = [loaded_tokenizer.bos_token_id, *loaded_tokenizer(prompt, add_special_tokens=False).input_ids]
    input_ids = torch.tensor([ids], device=loaded.device)
    output = generate_ids(
        loaded,
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=max_new_tokens,
        **sampling,
    )
    print(*loaded_tokenizer.batch_decode(output, skip_special_tokens=True))


def push(folder: str, repo_id: str, private: bool | None = None) -> None:
    """Upload a finished, scored model folder to the Hub.

    Args:
        folder: A run's model folder, with weights, tokenizer, code, card and scores.
        repo_id: USER/NAME on the Hub; it is made if it is missing. Log in first with: hf auth login.
        private: Whether a new repository is private; by default as the account is set.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from .hub import push as push_folder
    from .training.input_error import InputError

    try:
        print(push_folder(folder, repo_id, private=private))
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        raise InputError(f"{repo_id}: {str(error).splitlines()[0]}") from error


Foreign = Literal["marian", "gpt2", "llama", "bert"]
Direction = TypedDict("Direction", {"to": Foreign, "from": Foreign}, total=False)  # a parameter cannot be named `from`
Direction.__doc__ = """Options of `convert`, of which one is given.

Args:
    to: The architecture to convert a paperformer model to; it loads with transformers alone.
    from: The architecture of a model to convert to paperformer.
"""


def convert(model: str, output: str, **direction: Unpack[Direction]) -> None:
    """Convert a model to, or from, an architecture of transformers; it is written only if it computes the same.

    Args:
        model: A model's folder, or its name on the Hub.
        output: Folder to write.
    """
    from .conversion.model_folder import ARCHITECTURES, convert_folder
    from .training.input_error import InputError

    if len(direction) != 1:
        raise InputError("give either --to ARCHITECTURE or --from ARCHITECTURE, one of " + ", ".join(ARCHITECTURES))
    _prepare_to_load(model)
    architecture = ARCHITECTURES[direction["from"] if "from" in direction else direction["to"]]
    report = convert_folder(model, Path(output), architecture, to_ours="from" in direction)
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


COMMANDS: dict[str, Callable[..., None]] = {
    function.__name__: function for function in (quickstart, tokenizer, evaluate, translate, generate, convert, push)
}


def plot_attention(
    model: str,
    text: str = "",
    target: str | None = None,
    part: Literal["self", "encoder", "decoder", "cross"] | None = None,
    layer: int | Literal["all"] = "all",
    head: int | Literal["all"] = "all",
    scale: Literal["one", "max"] = "one",
    output: str = "attention.svg",
) -> None:
    """Draw what each token of a text attends to: a heat map for each layer and head, rows are queries, columns keys.

    Args:
        model: A model's folder of any family, or its name on the Hub.
        text: What the model reads; for a translation model the source.
        target: For a translation model, the translation that it is made to write; by default its own.
        part: Which attention of a translation model: of the encoder, of the decoder to itself, or across from the
            decoder to the source (cross, the default). Other models have one: self.
        layer: Number of a layer, counted from 0 as in the names of the weights, or all.
        head: Number of a head, counted from 0, or all.
        scale: The darkest colour: a weight of one, the same in every figure, or the max of this figure, which shows
            more of long texts.
        output: File to write, .svg or .png.
    """
    from .plots.attention_maps import attention_figure, attention_maps
    from .plots.figure_file import figure_path, save_figure

    path = figure_path(output)
    loaded = _load_model(model, attn_implementation="eager")  # the one implementation that shows its weights
    maps = attention_maps(loaded, _load_tokenizer(model), text, target)
    chosen = part or ("cross" if "cross" in maps else "self")
    _require(chosen in maps, f"--part is {chosen}; a {loaded.config.model_type} has {', '.join(maps)}")
    weights = maps[chosen].weights
    layers, heads = _selected("--layer", layer, weights.shape[0]), _selected("--head", head, weights.shape[1])
    highest = 1.0 if scale == "one" else float(weights[layers][:, heads].max())
    save_figure(attention_figure(maps[chosen], _model_name(model), layers, heads, highest=highest), path)
    print(path)


def plot_positions(model: str, length: int | None = None, output: str = "positions.svg") -> None:
    """Draw what a model knows of positions: their vectors and similarities, RoPE's scores by distance, or the biases.

    Args:
        model: A paperformer model's folder, or its name on the Hub.
        length: How many positions to draw; by default 128, or all if the model takes fewer.
        output: File to write, .svg or .png.
    """
    from .plots.figure_file import figure_path, save_figure
    from .plots.position_schemes import positions_figure

    _require(length is None or length >= 2, f"--length is {length}; it must be at least 2")
    path = figure_path(output)
    loaded = _load_model(model, device_map="cpu")
    length = length or min(128, loaded.config.max_position_embeddings)
    save_figure(positions_figure(loaded, _model_name(model), length), path)
    print(path)


def plot_gradients(run: str, heatmap: bool = False, output: str = "gradients.svg") -> None:
    """Draw the gradient norm of each layer over a training run: layers that stop learning, and those that blow up.

    Args:
        run: A run's folder, such as runs/NAME; its metrics.jsonl is read, also while the run goes on.
        heatmap: Add a map of layer by step below the lines.
        output: File to write, .svg or .png.
    """
    from .plots.figure_file import figure_path, save_figure
    from .plots.gradient_norms import gradient_history, gradients_figure

    path = figure_path(output)
    history = gradient_history(Path(run))
    save_figure(gradients_figure(history, Path(run).resolve().name, heatmap=heatmap), path)
    print(path)


PLOTS: dict[str, Callable[..., None]] = {
    "attention": plot_attention,
    "positions": plot_positions,
    "gradients": plot_gradients,
}


def plot(arguments: list[str]) -> None:
    """Draw attention, positions or gradient norms as SVG or PNG: paperformer plot attention|positions|gradients ..."""
    kind, *rest = arguments or [""]
    if kind in ("-h", "--help"):
        kinds = "\n".join(f"  {name:<12}{_summary(function)}" for name, function in PLOTS.items())
        print(f"{plot.__doc__}\n\n{kinds}\n\npaperformer plot attention --help explains the options, and so on.")
    elif kind in PLOTS:
        _call(PLOTS[kind], rest)
    else:
        said = f"'{kind}' is no kind of plot" if kind else "the kind of plot is missing"
        _stop(f"{said}; say paperformer plot attention, paperformer plot positions or paperformer plot gradients")


def train(arguments: list[str]) -> None:
    """Train a model from a recipe: paperformer train seq2seq|lm --config RECIPE.yaml [overrides]."""
    family = arguments[0] if arguments else ""
    if family not in ("seq2seq", "lm"):
        if family in ("-h", "--help"):
            print(f"{train.__doc__}\n\npaperformer train seq2seq --help lists every field for translation, ", end="")
            print("paperformer train lm --help for language models.\nSeveral GPUs: accelerate launch -m ", end="")
            print("paperformer.training.train_seq2seq (or train_lm), with the same options.")
            return
        said = f"'{family}' is no family of models" if family else "the family of models is missing"
        _stop(f"{said}; say paperformer train seq2seq or paperformer train lm")
    from .training.run import main as run_training

    if family == "seq2seq":
        from .training.train_seq2seq import train_seq2seq

        run_training(train_seq2seq, "paperformer.training.train_seq2seq", arguments[1:])
    else:
        from .training.train_lm import train_lm

        run_training(train_lm, "paperformer.training.train_lm", arguments[1:])


def plan(arguments: list[str]) -> None:
    """Work out what a model costs before it is trained: paperformer plan --preset NAME [overrides]."""
    from .plan import main as print_plan

    print_plan(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `paperformer`: exits with 2 and one line for bad input."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        _dispatch(name, rest)
    except KeyboardInterrupt:
        sys.exit(130)


def _dispatch(name: str, rest: list[str]) -> None:
    if name in ("-h", "--help"):
        print(_overview())
    elif name == "--version":
        print(version("paperformer"))
    elif name == "train":
        train(rest)
    elif name == "plot":
        plot(rest)
    elif name == "plan":
        plan(rest)
    elif name in COMMANDS:
        _call(COMMANDS[name], rest)
    else:
        near = difflib.get_close_matches(name, [*COMMANDS, "train", "plot", "plan"], n=1)
        hint = f"did you mean {near[0]}?" if near else "paperformer --help lists the commands"
        _stop(f"there is no command '{name}'; {hint}")


def _overview() -> str:
    summaries = COMMANDS | {"train": train, "plot": plot, "plan": plan}
    lines = [f"  {name:<12}{_summary(function)}" for name, function in summaries.items()]
    return "\n".join(
        [
            "paperformer: the Transformer of the papers, trained from scratch and published to the Hub.",
            "",
            "usage: paperformer COMMAND [options]",
            "",
            *lines,
            "",
            "paperformer COMMAND --help explains the options of a command.",
        ]
    )


def _summary(function: Callable[..., None]) -> str:
    return (function.__doc__ or "").split("\n", 1)[0]


def _call(function: Callable[..., None], arguments: list[str]) -> None:
    """Parses the arguments by the function's signature and calls it."""
    from jsonargparse import ArgumentParser

    from .training.input_error import one_line_errors
    from .training.recipe_file import explain, spell_out_flags

    command = f"paperformer {function.__name__.replace('_', ' ')}"
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        unpacked = parameter.kind is parameter.VAR_KEYWORD  # its annotation is Unpack[a TypedDict]
        fields |= get_args(parameter.annotation)[0].__annotations__ if unpacked else {name: parameter.annotation}
    flags = {f"--{name}" for name, annotation in fields.items() if annotation is bool}
    parser = ArgumentParser(prog=command, description=_summary(function), exit_on_error=False, allow_abbrev=False)
    parser.add_function_arguments(function, as_group=False, as_positional=True)
    try:
        options: dict[str, Any] = vars(parser.parse_args(spell_out_flags(arguments, flags)))
    except (argparse.ArgumentError, ValueError) as error:
        reason = error if "are required" in str(error) else explain(error, arguments, [], fields)
        _stop(" ".join(f"{reason} ({command} --help)".split()))
    with one_line_errors():
        function(**options)


def _load(model: str, task: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model and its tokenizer, on the GPU if there is one."""
    return _load_model(model, task), _load_tokenizer(model)


def _load_model(model: str, task: str | None = None, **options: Any) -> "PreTrainedModel":
    """A model for a task, or of any family; on the GPU if there is one. Options are those of `from_pretrained`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    _prepare_to_load(model)
    with _loading(model, f"{task} model" if task else "model"):
        config = AutoConfig.from_pretrained(model)
        auto_classes = {
            "translation": AutoModelForSeq2SeqLM,
            "text-generation": AutoModelForCausalLM,
            "fill-mask": AutoModelForMaskedLM,
        }
        is_masked = any(name.endswith("ForMaskedLM") for name in config.architectures or [])
        own_task = "translation" if config.is_encoder_decoder else "fill-mask" if is_masked else "text-generation"
        _require(task in (None, own_task), f"{model} holds a {config.model_type}; this command needs a {task} model")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return auto_classes[own_task].from_pretrained(model, **{"device_map": device} | options).eval()


def _prepare_to_load(model: str) -> None:
    """Checks that something can be a model's folder or name, and lets transformers load it without a word."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = Path(model)
    _require(not path.is_file(), f"{model} is a file; it must be a model's folder, or a name on the Hub")
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    _require(path.is_dir() or not looks_like_path, f"there is no folder {model}")
    _require(not path.is_dir() or (path / "config.json").is_file(), f"{model} is no model's folder: no config.json")


def _load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    with _loading(model, "tokenizer"):
        return AutoTokenizer.from_pretrained(model, trust_remote_code=False)


@contextmanager
def _loading(model: str, kind: str) -> Iterator[None]:
    """Says in one line why something cannot be loaded."""
    from safetensors import SafetensorError

    from .training.input_error import InputError

    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{model} is no {kind} that can be loaded: {reason}") from error


def _model_name(model: str) -> str:
    """What to call a model in a title: the name of its run, if that is where it lies, or of its repository."""
    path = Path(model).resolve()
    return path.parent.name if path.name == "model" else path.name


def _selected(option: str, number: int | Literal["all"], count: int) -> list[int]:
    """The one number, or all numbers below `count`."""
    _require(number == "all" or 0 <= number < count, f"{option} is {number}; it must be from 0 to {count - 1}, or all")
    return list(range(count)) if number == "all" else [number]


def _load_metric(name: str) -> Any:
    """A metric of the evaluate library; its own are scripts on the Hub, so most need the network once."""
    from evaluate import load

    from .training.input_error import InputError

    try:
        return load(name)
    except (OSError, ImportError, ValueError) as error:
        raise InputError(f"--metrics: {name} cannot be loaded: {str(error).strip().splitlines()[0]}") from error


def _longest_input(tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> int:
    return min(tokenizer.model_max_length, model.config.max_position_embeddings)


def _require(condition: bool, message: str) -> None:
    from .training.input_error import InputError

    if not condition:
        raise InputError(message)


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
