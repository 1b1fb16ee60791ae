"""What workers on one storage agree on and what the storage must show: plan, slots, records."""
