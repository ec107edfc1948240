"""`python -m paperformer` and `accelerate launch -m paperformer` are the command `paperformer`."""

from .cli import main

if __name__ == "__main__":
    main()
