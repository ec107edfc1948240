"""What steps are computed on: precision, compilation, processes."""
