"""`paperformer plan`: what a model costs, before it is trained."""
