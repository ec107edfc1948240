"""Shakespeare's plays: the language-modelling corpus that comes with the package; nothing is downloaded.

`shakespeare.txt.xz` holds the 37 plays of the canon as 4.7 MB of plain text, spoken words only, in the layout
that "TinyShakespeare" (a 1.1 MB excerpt, Karpathy 2015) made familiar: the speaker and a colon, the lines, an
empty line. `SOURCES.md` says where the text comes from, under which terms, and how the file was made.
"""

import lzma
from importlib import resources

SHA256 = "47ef3f23468315812691dee5b3e02758fd66f01736da8c543971de1ea0c1c588"  # of the uncompressed text, UTF-8

# Whole plays are held out: a window cut from the middle of a play shares its names and its subject with
# the text around it, and would make a model look better than it is on new text. Each held-out split is one
# comedy, mostly in prose, and one tragedy, mostly in verse, and both are of equal size, so that validation
# foretells test. Histories and Roman plays would not do: they have sequels, so a held-out Falstaff or
# Mark Antony would have been met in training.
VALIDATION_PLAYS = ("Othello", "Twelfth Night")
TEST_PLAYS = ("King Lear", "Much Ado About Nothing")


def plays() -> dict[str, str]:
    """Returns the text of every play by its title, in the titles' alphabetical order.

    A text is speeches with one empty line between them, such as `"ROMEO:\\nIs the day so young?"`.
    It has neither a title nor stage directions, and no newline at its end.
    """
    packed = resources.files(__package__).joinpath("shakespeare.txt.xz").read_bytes()
    corpus = lzma.decompress(packed).decode("utf-8")
    # Each play begins with the line "# TITLE", and "#" occurs nowhere else.
    titles_and_texts = (part.split("\n", 1) for part in corpus.split("# ")[1:])
    return {title: text.strip("\n") for title, text in titles_and_texts}


def play_splits() -> dict[str, list[str]]:
    """Returns documents, one a play, under "train" (33 plays), "validation" (2) and "test" (2).

    No play is in two splits; `VALIDATION_PLAYS` and `TEST_PLAYS` name what is held out.
    """
    texts = plays()
    validation = [texts.pop(title) for title in VALIDATION_PLAYS]
    test = [texts.pop(title) for title in TEST_PLAYS]
    return {"train": list(texts.values()), "validation": validation, "test": test}
