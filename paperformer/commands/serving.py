"""Commands that let others use a finished model: serve, check."""

from pathlib import Path
from typing import Any

from ..api import texts
from ..api.given_models import check_beams, search_of
from ..training.console.input_error import InputError
from .loading import Dtype, load, load_config, model_name


def serve(
    model: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    prefix: str = "",
    src_lang: str = "",
    tgt_lang: str = "",
    dtype: Dtype | None = None,
    token_file: str | None = None,
    tokens_per_batch: int = 4096,
    batch_wait: float = 0.005,
    max_waiting: int = 256,
    max_request_tokens: int = 65536,
    max_body_bytes: int = 1_000_000,
    timeout: float = 60.0,
    stop_timeout: float = 30.0,
    trust_remote_code: bool = False,
) -> None:
    """Answer requests over HTTP: translations, continuations in OpenAI's form, or masks filled in.

    docs/serving.md shows the routes. SIGTERM and Ctrl-C stop it when what it has taken is answered. A token that
    requests have to bring along is read from a file, or from the variable PAPERFORMER_SERVE_TOKEN.

    Args:
        model: A model's folder, its name on the Hub, or that of one that comes with paperformer: cldr-en-de,
            shakespeare.
        host: Address to listen at; 0.0.0.0 is all of this machine's.
        port: Port to listen at; 0 takes one that is free.
        name: What clients call the model; by default the name of its run or folder.
        num_beams: Beam size of translations, where a request says nothing; 1 is greedy and fastest. By default the
            model's own, or 5.
        length_penalty: The same for the exponent of the length by which a beam's score is divided; by default the
            model's own, or 1.
        prefix: The same for what is put before every text to translate.
        src_lang: The same, of a model of many languages, for the code of the one that is translated, such as eng_Latn.
        tgt_lang: And for that of the one that it is translated into.
        dtype: What it is computed in: float32, bfloat16, or on a CPU int8, which paperformer check --dtype compares
            with float32; by default as its weights are stored.
        token_file: File with a token that every request for the model needs.
        tokens_per_batch: Tokens that are computed together, with every beam and the longest continuation counted.
        batch_wait: Seconds that a request waits at most to share a batch while the model is idle.
        max_waiting: Requests that may wait; more are refused with 429 and a time to come again.
        max_request_tokens: Tokens of a request; more are refused with 413.
        max_body_bytes: Bytes of a request; more are refused with 413.
        timeout: Seconds after which a request is given up, with 504.
        stop_timeout: Seconds that taken requests get when the server is stopped.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    check_beams(num_beams)
    serving = _import_serving()
    limits = serving.limits.Limits(
        tokens_per_batch=tokens_per_batch,
        batch_wait=batch_wait,
        max_waiting=max_waiting,
        max_request_tokens=max_request_tokens,
        max_body_bytes=max_body_bytes,
        timeout=timeout,
        stop_timeout=stop_timeout,
    )
    server, token = serving.server, serving.server.read_token(token_file)
    place = texts.place_of(model)
    called = name or model_name(place)
    load_config(place, trust_remote_code=trust_remote_code)  # before a port is taken
    with server.listen(host, port) as listener:
        loading = {"trust_remote_code": trust_remote_code, "dtype": dtype, "src_lang": src_lang, "tgt_lang": tgt_lang}
        engine = serving.engines.loading.load_engine(place, **loading)
        beams, penalty = search_of(place, num_beams, length_penalty)
        defaults = serving.engines.translation.TranslationOptions(num_beams=beams, length_penalty=penalty)
        application = serving.application.make_application(
            engine, called, limits, token=token, defaults=defaults, prefix=prefix
        )
        mask, has_token = getattr(engine, "mask", ""), token is not None
        greeting = server.greet(called, engine.task, listener, mask=mask, has_token=has_token)
        server.serve(application, listener, greeting, stop_timeout)


def check(
    model: str,
    dtype: Dtype | None = None,
    text: str | None = None,
    sequences: int = 100,
    trust_remote_code: bool = False,
) -> None:
    """Find out which engines can serve a model, and with which command; or what computing in another type changes.

    Each point that an engine asks for is tried with the model. vLLM need not be installed: the model is called as it
    would be. Files for CTranslate2, ONNX Runtime and llama.cpp are made by paperformer export.

    Args:
        model: A model's folder, its name on the Hub, or that of one that comes with paperformer: cldr-en-de,
            shakespeare.
        dtype: Compare bfloat16 or int8 with float32, instead: log-probabilities, tokens, perplexity, memory and time.
        text: File to compare on: running text, or sentences, one a line. By default the test text of the model's run;
            or else random tokens, of which there is no perplexity.
        sequences: How many sentences, or windows of running text, are compared at the most.
        trust_remote_code: Run Python code that lies in the model's folder; paperformer's own models never need it.
    """
    from ..compatibility.report import check_engines

    place = texts.place_of(model)
    if dtype is not None:
        from ..export.other_types import compare_dtype
        from ..export.table import text_of

        print(text_of(*compare_dtype(place, dtype, text=None if text is None else Path(text), sequences=sequences)))
        return
    if text is not None:
        raise InputError("--text is given without --dtype; give --dtype int8, or bfloat16, to be compared on it")
    loaded, tokenizer = load(place, None, trust_remote_code=trust_remote_code)
    print(f"{place}: {loaded.config.model_type}, {loaded.num_parameters():,} parameters")
    for verdict in check_engines(loaded, tokenizer, place, trust_remote_code=trust_remote_code):
        print("", *verdict.lines(), sep="\n")
    print("\nCTranslate2, ONNX Runtime, llama.cpp (GGUF): see paperformer export")


def _import_serving() -> Any:
    """The room, once it is known that what it needs is installed."""
    try:
        from .. import serving
        from ..serving import application, server
        from ..serving.engines import loading
    except ModuleNotFoundError as error:
        raise InputError(f"serve needs {error.name}: pip install 'paperformer[serve]'") from error
    del application, server, loading
    return serving
