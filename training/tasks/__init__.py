"""What a run trains a model for."""
