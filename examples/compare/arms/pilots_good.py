"""A budget with pilots whatever they see, and a good first guess."""

from task import HERE, from_file

budget = from_file(HERE / "arms" / "budget.py")
plan, search = budget.plan, budget.search
