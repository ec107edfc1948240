"""What a notebook does with paperformer: read a recipe, train, use the model; `docs/python.md` shows each."""
