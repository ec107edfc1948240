"""Train an encoder by masked language modelling.

accelerate launch -m paperformer.training.train_encoder --config RECIPE [overrides]
"""

from .console.input_error import one_line_errors

if __name__ == "__main__":
    with one_line_errors():  # around the imports as well, which take seconds
        from .run import main
        from .tasks.masked_language_modeling import MASKED_LANGUAGE_MODELING

        main(MASKED_LANGUAGE_MODELING)
