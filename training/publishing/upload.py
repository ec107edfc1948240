"""Upload of a finished model folder to the Hugging Face Hub."""

from os import PathLike
from pathlib import Path

from huggingface_hub import HfApi

from ..reporting.card import set_model_id
from .completeness import check_ready_to_push


def push(
    folder: str | PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Uploads a finished, evaluated model folder to the Hub, in one commit.

    The repository is made if it is missing. The card's example code takes its name, in the folder as well.

    Args:
        folder: what a run leaves in its `model/`: weights, tokenizer (or two of them), code, card and scores.
        repo_id: `USER/NAME`, or `NAME` for the account that the token belongs to.
        private: whether a new repository is private; None leaves it to the account's or organisation's
            setting. An existing repository stays as it is.
        token: access token with write permission; by default that of `hf auth login` or of the variable
            HF_TOKEN.
        revision: branch to commit to; by default main.
        commit_message: by default says that a model was uploaded with paperformer.

    Returns:
        The repository's address.

    Raises:
        InputError: (a `ValueError`) if the folder is not complete; nothing has been uploaded then.
        huggingface_hub.errors.HFValidationError: (a `ValueError`) if no repository can have the name.
        huggingface_hub.errors.HfHubHTTPError: if the Hub refuses the token or the upload.
    """
    folder = Path(folder)
    check_ready_to_push(folder)
    api = HfApi(token=token)
    repo = api.create_repo(repo_id, private=private, exist_ok=True)
    set_model_id(folder / "README.md", repo.repo_id)
    api.upload_folder(
        repo_id=repo.repo_id,
        folder_path=folder,
        revision=revision,
        commit_message=commit_message or "Upload model with paperformer",
        ignore_patterns=["checkpoint-*/**", "**/__pycache__/**", "*.partial"],
    )
    return str(repo)
