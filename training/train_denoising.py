"""Train an encoder-decoder by denoising.

accelerate launch -m paperformer.training.train_denoising --config RECIPE [overrides]
"""

from .console.input_error import one_line_errors

if __name__ == "__main__":
    with one_line_errors():  # around the imports as well, which take seconds
        from .run import main
        from .tasks.denoising import DENOISING

        main(DENOISING)
