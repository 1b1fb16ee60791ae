"""Turns a finished study into a release, the one thing that may be published of it.

``make_release`` reads the study by ``evidence``, has its procedure choose, and makes a
``release``, whose statement ``statement_data`` makes of facts and
``markdown`` shows. ``verification`` tells a
reviewer what a release's file shows: ``statement_file`` reads the file, and ``comparison`` makes
its statement again and compares the two.
"""
