"""From a finished run to the Hugging Face Hub."""
