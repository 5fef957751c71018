"""The Hugging Face endpoint and its models."""
