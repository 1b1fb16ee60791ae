"""From a finished study to the one thing that may leave the room.

``evidence`` reads a study and refuses what cannot be vouched for, ``winner`` chooses,
``statement`` says in words and JSON what is promised, ``release`` puts them together and
``publish`` makes a study that is safe to show.
"""
