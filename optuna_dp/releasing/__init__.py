"""From a finished study to the one thing that may leave the room.

``evidence`` reads a study and refuses what cannot be vouched for, ``winner`` chooses,
``procedures`` compute its cost, ``make_release`` puts them together into a ``release``, and
``statements`` say in words and JSON what is promised.
"""
