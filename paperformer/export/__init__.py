"""Export of finished models to engines that need neither torch nor transformers, compared before they are written."""
