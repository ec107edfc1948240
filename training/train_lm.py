"""Train a language model: accelerate launch -m paperformer.training.train_lm --config RECIPE [overrides]."""

from .run import main
from .tasks.language_modeling import LANGUAGE_MODELING

if __name__ == "__main__":
    main(LANGUAGE_MODELING)
