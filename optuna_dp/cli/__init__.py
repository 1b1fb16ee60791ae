"""The command line ``optuna-dp``.

``application``  the program; a command is a file here and a row of its table
``common``       what commands share
"""
