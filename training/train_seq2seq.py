"""Train a translation model: accelerate launch -m paperformer.training.train_seq2seq --config RECIPE [overrides]."""

from .run import main
from .tasks.translation import TRANSLATION

if __name__ == "__main__":
    main(TRANSLATION)
