"""Turns a finished study into a release, the one thing that may be published of it.

``evidence`` reads a study and refuses what cannot be vouched for, ``winner`` chooses,
``procedures`` compute its cost, ``make_release`` puts them together into a ``release``, and
``statements`` say in words and JSON what is promised. ``verification`` tells a reviewer what a
release's file shows: ``statement_file`` reads it, and ``comparison`` makes its statement again.
"""
