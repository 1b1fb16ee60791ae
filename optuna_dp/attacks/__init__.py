"""What a procedure certainly costs: explicit attacks. No guarantee depends on them."""
