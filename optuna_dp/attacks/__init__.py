"""What a procedure certainly costs: explicit attacks. No guarantee rests on them."""
