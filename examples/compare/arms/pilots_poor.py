"""A budget with pilots whatever they see, and a poor first guess."""

from task import HERE, from_file

plan = from_file(HERE / "arms" / "pilots_good.py").plan
search = from_file(HERE / "arms" / "budget_poor.py").search
