"""What a study has to show before anything of it is released, and what is said of it."""
