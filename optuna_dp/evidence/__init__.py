"""What a study has to show, and the facts and assumptions of which its statement is made.

``procedure`` is the base of the procedures and ``procedures`` their table. ``start`` gives a trial
its run. ``reading`` reads a study once, and refuses it or returns evidence. ``facts``,
``assumptions`` and ``statement`` are the base of the statements.
"""
