"""Publication of a finished model on the Hub."""

import os
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from ..training.publishing.upload import Publication
    from .runs import Run


def push_to_hub(
    run: Union[str, os.PathLike[str], "Run"],
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    tag: str | None = None,
    collection: str | None = None,
    commit_message: str | None = None,
    force: bool = False,
) -> "Publication":
    """Publishes a finished, evaluated model on the Hub, in one commit: weights, tokenizer, code, card, scores.

    Refused is what is not complete, what was not evaluated with these weights, what does not work where paperformer is
    not installed, and what is significantly worse than what it would replace.

    Args:
        run: a run, its folder, or the model's folder in it.
        repo_id: `USER/NAME`, or `NAME` for the account that the token belongs to; it is made if it is missing.
        private: whether a new repository is private; one that is there stays as it is.
        token: access token with write permission; by default that of `hf auth login` or of the variable HF_TOKEN.
        revision: branch to commit to; by default main.
        create_pr: open a pull request instead of changing the repository.
        tag: name for the commit, such as `v1.0`.
        collection: one to put the model into: a title, or `USER/TITLE-ID` of one that is there.
        commit_message: by default says that a model was uploaded with paperformer.
        force: publish it though it is significantly worse than what is on the Hub.

    Returns:
        The repository, the hash of the commit, and the address.

    Raises:
        InputError: if it is refused, by these checks or by the Hub; the repository is as it was then.
    """
    from ..training.publishing.upload import push
    from .runs import Run

    return push(
        run.model_folder if isinstance(run, Run) else run,
        repo_id,
        private=private,
        token=token,
        revision=revision,
        create_pr=create_pr,
        tag=tag,
        collection=collection,
        commit_message=commit_message,
        force=force,
    )
