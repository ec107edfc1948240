"""Which engines can serve a model folder, found out by doing with it what they do."""
