"""Commands that do the exercises of the texts: each trains or measures, and writes a card with what it found."""

import inspect
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal


def reversal(
    steps: int = 2000,
    layers: int = 2,
    hidden_size: int = 64,
    positions: Literal["sinusoidal", "learned", "rope", "alibi", "relative"] = "sinusoidal",
    learning_rate: float = 0.0015,
    lstm_learning_rate: float = 0.003,
    tokens_per_batch: int = 1024,
    symbols: int = 26,
    longest: int = 12,
    longest_tested: int = 18,
    pairs: int = 100_000,
    tested: int = 100,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    overwrite: bool = False,
) -> None:
    """Learn to reverse sequences of letters: a Transformer against an LSTM with attention of the same size.

    Interrupted, the same command goes on; what is finished is not done again.

    Args:
        steps: Optimizer steps of each model.
        layers: Layers of the encoder, and as many of the decoder, of both models.
        hidden_size: Width of the Transformer; the LSTM's follows from its number of parameters.
        positions: How the Transformer knows positions.
        learning_rate: Peak of the Transformer's learning rate.
        lstm_learning_rate: Peak of the LSTM's learning rate.
        tokens_per_batch: Tokens of a step, of the source or the target.
        symbols: How many letters there are, from 2 to 26.
        longest: Longest sequence that is trained; the shortest has 4 letters.
        longest_tested: Longest sequence that is tested.
        pairs: Sequences to train on.
        tested: Sequences of each length to test on.
        seed: Of the sequences, the first weights and the batches.
        output_dir: Where the folder reversal goes, with a run for each model, the card and its picture.
        overwrite: Delete what an earlier one has left, and begin anew.
    """
    from ..exercises.reversal import compare_on_reversal

    _do(reversal, compare_on_reversal, dict(locals()))


def beams(
    model: str,
    source: str | None = None,
    reference: str | None = None,
    sentences: int = 20,
    num_beams: int = 3,
    output_dir: str = "runs/exercises",
    trust_remote_code: bool = False,
) -> None:
    """Translate 20 sentences greedily and with 3 beams, side by side: scores, log-probabilities, who is better.

    Args:
        model: A translation model: its folder, its run's folder, or its name on the Hub.
        source: File to translate, a sentence a line; without it, the test split of the model's run.
        reference: File with a reference for each line of it.
        sentences: How many, evenly spread over the text.
        num_beams: Beam size.
        output_dir: Where the folder beams goes, with the card.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..exercises.beams import compare_searches

    _do(beams, compare_searches, dict(locals()))


def cache(
    model: str | None = None,
    lengths: str = "50,200,1000",
    hidden_size: int = 256,
    layers: int = 4,
    repetitions: int = 3,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    trust_remote_code: bool = False,
) -> None:
    """Measure what the cache of keys and values is worth for 50, 200 and 1,000 tokens; outputs must be equal.

    Args:
        model: A language model: its folder, its run's folder, or its name on the Hub; without it, one with fresh
            weights, of which speed does not depend.
        lengths: How many tokens are written, with commas between.
        hidden_size: Width of a model with fresh weights, a multiple of 32.
        layers: Blocks of a model with fresh weights.
        repetitions: How often each is measured; the median counts.
        seed: Of fresh weights and of the prompt.
        output_dir: Where the folder cache goes, with the card and its picture.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..exercises.cache import measure_cache

    _do(cache, measure_cache, dict(locals()))


def temperature(
    model: str,
    prompt: str,
    temperature: float = 0.8,
    samples: int = 5,
    max_new_tokens: int = 100,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    trust_remote_code: bool = False,
) -> None:
    """Continue a text five times at temperature 0.8: how varied the continuations are, and how likely.

    Args:
        model: A language model: its folder, its run's folder, or its name on the Hub.
        prompt: The text to continue.
        temperature: Divides the logits: below 1 safer, above 1 wilder.
        samples: How many continuations.
        max_new_tokens: Longest continuation, in tokens.
        seed: Of the sampling.
        output_dir: Where the folder temperature goes, with the card.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..exercises.temperature import sample_continuations

    _do(EXERCISES["temperature"], sample_continuations, dict(locals()))


def lstm(
    text: str | None = None,
    words: int = 50_000,
    steps: int = 600,
    layers: int = 4,
    hidden_size: int = 128,
    vocab_size: int = 4000,
    dropout: float = 0.3,
    learning_rate: float = 0.003,
    lstm_learning_rate: float = 0.005,
    context_length: int = 128,
    tokens_per_batch: int = 2048,
    prompt: str = "The history of machine learning",
    max_new_tokens: int = 60,
    temperature: float = 0.8,
    continuations: int = 2,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    overwrite: bool = False,
) -> None:
    """Train a Transformer language model and an LSTM of its size on 50,000 words: by steps, and by time.

    Interrupted, the same command goes on; what is finished is not done again.

    Args:
        text: File to take the words from, compressed or not; without it, WikiText-2 is fetched from the Hub.
        words: How many words to train on; a tenth as many are validated on, and as many tested on, behind them.
        steps: Optimizer steps of the Transformer, and of the LSTM in its first training.
        layers: Blocks of the Transformer, layers of the LSTM.
        hidden_size: Width of the Transformer; the LSTM's follows from its number of parameters.
        vocab_size: Entries of the vocabulary, which both have.
        dropout: Of both.
        learning_rate: Peak of the Transformer's learning rate.
        lstm_learning_rate: Peak of the LSTM's learning rate.
        context_length: Tokens of a training sequence.
        tokens_per_batch: Tokens of a step.
        prompt: What the models continue.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Of the sampling; 0 takes the likeliest token (greedy).
        continuations: How many of each model.
        seed: Of the first weights, the batches and the sampling.
        output_dir: Where the folder lstm goes, with a run for each model, the card and its picture.
        overwrite: Delete what an earlier one has left, and begin anew.
    """
    from ..exercises.against_lstm import compare_language_models

    _do(lstm, compare_language_models, dict(locals()))


def lstm_twin(
    run: str,
    layers: int = 2,
    optimizer: Literal["adamw", "adam", "muon", "schedule_free"] = "muon",
    learning_rate: float = 0.02,
    steps: int | None = None,
    prompt: str = "The history of machine learning",
    max_new_tokens: int = 60,
    temperature: float = 0.8,
    continuations: int = 2,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    overwrite: bool = False,
) -> None:
    """Train an LSTM of the size of a finished language model for as long, on the same batches, and compare them.

    Interrupted, the same command goes on; what is finished is not done again.

    Args:
        run: Folder of the language model's run, whose recipe says all else.
        layers: Layers of the LSTM; its width follows from the number of parameters.
        optimizer: The LSTM's.
        learning_rate: Peak of the LSTM's learning rate.
        steps: Optimizer steps of the LSTM; without it, as many as it makes in the time that the run took, by the speed
            of a short trial.
        prompt: What the models continue.
        max_new_tokens: Longest continuation, in tokens.
        temperature: Of the sampling; 0 takes the likeliest token (greedy).
        continuations: How many of each model.
        seed: Of the sampling; the training has that of the run.
        output_dir: Where the folder lstm_twin goes, with the LSTM's run, the card and its picture.
        overwrite: Delete what an earlier one has left, and begin anew.
    """
    from ..exercises.lstm_twin import train_lstm_twin

    _do(lstm_twin, train_lstm_twin, dict(locals()))


def norms(
    dataset: str = "built-in:shakespeare",
    vocab_size: int = 2000,
    steps: int = 800,
    layers: int = 8,
    hidden_size: int = 128,
    learning_rate: float = 0.003,
    warmup_steps: int = 40,
    tokens_per_batch: int = 2048,
    seed: int = 1,
    output_dir: str = "runs/exercises",
    overwrite: bool = False,
) -> None:
    """Train post-, pre- and peri-norm twins on Shakespeare, and draw the gradient norm of each layer.

    Interrupted, the same command goes on; what is finished is not done again.

    Args:
        dataset: What to learn from: a folder with train.txt, validation.txt and test.txt, or data that ships with the
            package.
        vocab_size: Entries of the vocabulary.
        steps: Optimizer steps of each twin.
        layers: Blocks of each twin.
        hidden_size: Width of each twin; heads are 32 wide.
        learning_rate: Peak of the learning rate, for all three.
        warmup_steps: Steps of warm-up; post-norm needs them most.
        tokens_per_batch: Tokens of a step.
        seed: Of the first weights, the batches and dropout, for all three.
        output_dir: Where the folder norms goes, with a run for each twin, the card and its pictures.
        overwrite: Delete what an earlier one has left, and begin anew.
    """
    from ..exercises.norms import compare_norms

    _do(norms, compare_norms, dict(locals()))


EXERCISES: dict[str, Callable[..., None]] = {
    "reversal": reversal,
    "beams": beams,
    "cache": cache,
    "lstm": lstm,
    "lstm_twin": lstm_twin,
    "norms": norms,
    "temperature": temperature,
}


def _do(command: Callable[..., None], exercise: Callable[..., Path], options: Mapping[str, Any]) -> None:
    """Does an exercise, and prints its card."""
    from ..training.run import one_line_endings

    values = {name: options[name] for name in inspect.signature(command).parameters}
    folder = Path(values.pop("output_dir")) / command.__name__
    typed = _typed(command, options)
    with one_line_endings(typed, resuming=typed):
        card = exercise(folder, typed, **values)
    print(card.read_text("utf-8"))
    print(f"card: {card}")


def _typed(command: Callable[..., None], options: Mapping[str, Any]) -> str:
    """The command with the options that are not at their defaults; without --overwrite, so that it goes on."""
    parameters = inspect.signature(command).parameters.values()
    words = ["paperformer", "exercise", command.__name__]
    for parameter in parameters:
        value = options[parameter.name]
        if value != parameter.default and parameter.name != "overwrite":
            words += [str(value)] if parameter.default is parameter.empty else [f"--{parameter.name}", str(value)]
    return shlex.join(words)
