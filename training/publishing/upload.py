"""Publication of a finished model folder on the Hugging Face Hub: all of it in one commit, or nothing."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperation, CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    validate_repo_id,
)

from ..console.input_error import InputError
from ..console.progress import say
from ..reporting.card import set_model_id
from .clean_process import check_loads_alone
from .completeness import check_ready_to_push
from .hub_requests import CLIENT_ERROR, hub_errors, try_again
from .published import Published, check_not_worse, read_published

IGNORED = ("checkpoint-*/*", "*/__pycache__/*", "__pycache__/*", "*.partial", ".*", "*/.*")
"""Of a model's folder, what is not published."""

NO_REFERENCE = re.compile(r"[\s~^:?*\[\\\x00-\x1f\x7f]|\.\.|//|/\.|\./|\.lock/|@\{|^/-")
"""In a name of a tag or a branch with a slash before it and behind."""

OURS = (
    "model*.safetensors",
    "model.safetensors.index.json",
    "target_tokenizer/*",
    "evaluation/*.outputs.jsonl",
    "evaluation/*.losses.jsonl",
)
"""Files that an earlier model may have left, and this one has not: the same commit deletes them. A single file of old
weights beside new shards would be loaded instead of them."""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Where a model has been published."""

    repo_id: str
    commit: str
    """Its hash, to load exactly this: `revision=`. Of a pull request, the hash on its branch."""

    address: str
    """The page of the model, or of the pull request."""


def push(
    folder: str | PathLike[str],
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    create_pr: bool = False,
    tag: str | None = None,
    collection: str | None = None,
    force: bool = False,
) -> Publication:
    """Publishes a finished, evaluated model on the Hub, in one commit.

    Refused is what is not complete, what was not evaluated with these weights, what does not work where paperformer is
    not installed, and what is significantly worse than what it would replace. The repository is made if it is missing.
    The card's example code takes its name, in the folder as well.

    Args:
        folder: a run's, or the `model/` in it: weights, tokenizer (or two of them), code, card and scores.
        repo_id: `USER/NAME`, or `NAME` for the account that the token belongs to.
        private: whether a new repository is private. An existing repository stays as it is.
        token: access token with write permission; by default that of `hf auth login` or of the variable
            HF_TOKEN.
        revision: branch to commit to; by default main.
        commit_message: by default says that a model was uploaded with paperformer.
        create_pr: opens a pull request with the commit, instead of changing the branch.
        tag: name for the commit.
        collection: one to put the model into: its name in its address, USER/TITLE-ID, or a title, which is made if the
            account has none of that title.
        force: publishes a significantly worse model as well.

    Raises:
        InputError: (a `ValueError`) for all that is refused, by the checks or by the Hub; the repository is as it was
            then.
    """
    folder = Path(folder)
    if (folder / "recipe.yaml").is_file():
        folder /= "model"
    if create_pr and (tag or revision not in (None, "main")):
        raise InputError("a pull request is opened against main, and has no tag; leave --tag and --revision out")
    _check_reference("tag", tag)
    _check_reference("revision", revision)
    with hub_errors(repo_id, token):
        validate_repo_id(repo_id)
    secret = token or get_token()
    model = check_ready_to_push(folder, secret)
    if not secret:
        raise InputError("there is no access token; log in with: hf auth login, or set HF_TOKEN")
    api = HfApi(token=token)
    with hub_errors(repo_id, token), _progress():
        if "/" not in repo_id:
            repo_id = f"{try_again(lambda: api.whoami(), connects=True)['name']}/{repo_id}"
        published = read_published(api, repo_id, revision)
        _check_target(api, repo_id, published, model.config.model_type, revision, tag, create_pr)
        if published is not None and published.holds_model and not force:
            for line in check_not_worse(folder, published, repo_id):
                say(line)
        check_loads_alone([folder], [model])
        if published is None:
            try_again(lambda: api.create_repo(repo_id, private=private, exist_ok=True))
            published = read_published(api, repo_id, revision)
            assert published is not None
        _name_in_card(folder / "README.md", repo_id)
        message = commit_message or "Upload model with paperformer"
        commit = _commit(
            api,
            folder,
            repo_id,
            published,
            create_pr=create_pr,
            token=token,
            commit_message=message,
            revision=revision,
        )
    if commit.pr_url:
        return Publication(repo_id=repo_id, commit=commit.oid, address=commit.pr_url)
    _name(api, repo_id, commit.oid, token, tag, collection, private=private)
    return Publication(repo_id=repo_id, commit=commit.oid, address=f"{api.endpoint}/{repo_id}")


def _check_reference(option: str, name: str | None) -> None:
    """Raises InputError for what git takes for no tag or branch, which the Hub would say after the upload.

    By the rules of git-check-ref-format, but for those on characters that nobody types.
    """
    if name is not None and NO_REFERENCE.search(f"/{name}/"):
        raise InputError(f"--{option} is {name!r}, which is no name of a {option}; give one like v1.0")


def _name_in_card(card: Path, repo_id: str) -> None:
    try:
        set_model_id(card, repo_id)
    except OSError as error:
        raise InputError(
            f"{card} cannot be written ({error.strerror}), and is to say how to load {repo_id}; nothing was published"
        ) from error


def _check_target(
    api: HfApi,
    repo_id: str,
    published: Published | None,
    model_type: str,
    revision: str | None,
    tag: str | None,
    create_pr: bool,
) -> None:
    """Raises InputError if a repository cannot take the model."""
    if published is None:
        if create_pr or revision not in (None, "main"):
            what = "no pull request can be opened" if create_pr else f"there is no branch {revision}"
            raise InputError(f"{repo_id} is not on the Hub, or the access token may not see it, so {what}")
        return
    if (other := published.config.get("model_type")) not in (None, model_type):
        raise InputError(
            f"{repo_id} holds a {other}, and this is a {model_type}: who loads it by that name would get another "
            "architecture; publish it under another name"
        )
    if tag is not None:
        tags = [ref.name for ref in try_again(lambda: api.list_repo_refs(repo_id)).tags]
        if tag in tags:
            raise InputError(f"{repo_id} has a tag {tag} already, which stays where it is; give another one")


def _commit(
    api: HfApi, folder: Path, repo_id: str, published: Published, *, create_pr: bool, token: str | None, **options: Any
) -> CommitInfo:
    """Sends what is not there yet, and then makes the commit: on top of what was compared with, or not at all.

    `HfApi.upload_folder` would make several commits of a large folder. A request for a commit that got no answer may
    have been heard: asked anew what is different, the server then says that nothing is, and no second one is made.
    """
    paths = dict(_published_files(folder))
    revision = options["revision"] or "main"
    attempts = count()
    megabytes = sum(path.stat().st_size for path in paths.values()) / 1e6
    say(f"sending {len(paths)} files of {megabytes:,.1f} MB to {repo_id}, as far as they are not there yet")

    def attempt() -> CommitInfo:
        additions = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in paths.items()]
        with hub_errors(repo_id, token):  # which ends it: the client itself has tried five times
            api.preupload_lfs_files(repo_id, additions, revision=revision, create_pr=create_pr, free_memory=False)
            files = published.files if next(attempts) == 0 else api.list_repo_files(repo_id, revision=revision)
        stale = {name for name in files if any(fnmatch(name, pattern) for pattern in OURS)} - paths.keys()
        operations: list[CommitOperation] = [
            *additions,
            *(CommitOperationDelete(path_in_repo=name) for name in sorted(stale)),
        ]
        try:
            return api.create_commit(
                repo_id, operations, parent_commit=published.commit, create_pr=create_pr, **options
            )
        except CLIENT_ERROR as error:
            if create_pr and not isinstance(error, HfHubHTTPError):
                raise InputError(
                    f"{repo_id}: there was no answer when the pull request was asked for; look whether it is there "
                    f"before you push again: {api.endpoint}/{repo_id}/discussions"
                ) from error
            raise

    return try_again(attempt)


def _name(
    api: HfApi, repo_id: str, commit: str, token: str | None, tag: str | None, collection: str | None, *, private: bool
) -> None:
    """Gives a commit its tag, and puts the model into a collection."""
    done = f"the model is published (commit {commit})"
    if tag is not None:
        with hub_errors(repo_id, token, done=f"{done}, without the tag {tag}"):
            # Made twice, it is there, and where it belongs: it was not there before.
            try_again(lambda: api.create_tag(repo_id, tag=tag, revision=commit, exist_ok=True))
    if collection is not None:
        with hub_errors(collection, token, done=f"{done}, and not in the collection {collection}"):
            slug = collection
            if "/" not in collection:
                made = try_again(lambda: api.create_collection(collection, private=private, exists_ok=True))
                slug = made.slug
            try_again(lambda: api.add_collection_item(slug, repo_id, "model", exists_ok=True))


@contextmanager
def _progress() -> Iterator[None]:
    """Lets the client draw its bars in a terminal only: in a log file they would be one long line."""
    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _published_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name in the repository and path of all that is published."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(fnmatch(name, pattern) for pattern in IGNORED):
            yield name, path
