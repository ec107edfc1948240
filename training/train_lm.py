"""Train a language model: accelerate launch -m paperformer.training.train_lm --config RECIPE [overrides]."""

from .console.input_error import one_line_errors

if __name__ == "__main__":
    with one_line_errors():  # around the imports as well, which take seconds
        from .run import main
        from .tasks.language_modeling import LANGUAGE_MODELING

        main(LANGUAGE_MODELING)
