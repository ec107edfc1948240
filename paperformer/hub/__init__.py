"""Between paperformer and the Hugging Face Hub: registration, and code that travels with weights."""
