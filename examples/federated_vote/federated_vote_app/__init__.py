"""Clients with a share of the digits each vote for a learning rate and a momentum."""
