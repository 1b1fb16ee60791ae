"""The protocol of workers on one storage: plan, slots, records."""
