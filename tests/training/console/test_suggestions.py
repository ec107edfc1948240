from paperformer.training.console.suggestions import suggest


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("sise", ["seed", "size"], "look it up") == "did you mean size?"
    assert suggest("gpu", ["GPU", "CPU"], "look it up") == "did you mean GPU?"
    assert suggest("GPT3", ["gpt2", "nano"], "look it up") == "did you mean gpt2?"
    assert suggest("bananas", ["seed", "size"], "look it up") == "look it up"
    assert suggest("sise", {"size": 1}, "", prefix="--") == "did you mean --size?"
    assert suggest("sise", [], "there is none") == "there is none"
