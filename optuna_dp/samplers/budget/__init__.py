"""A budget: pilot runs and one last run, all charged for by composition."""
