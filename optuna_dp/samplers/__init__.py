"""The samplers, a folder for each kind of search: settings, strategy, check and facts together."""
