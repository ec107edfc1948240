"""The page of `paperformer demo`: what a model does, computed here and put into HTML; `pages` has the widgets."""
