"""RandTune with 30 runs on average."""

import functools

from task import HERE, from_file

randtune = from_file(HERE / "arms" / "randtune.py")
plan = functools.partial(randtune.plan, mean=30)
search = randtune.search
