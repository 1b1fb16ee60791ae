"""Private selection as mathematics: laws of T, the event of a selection, and its bounds."""
