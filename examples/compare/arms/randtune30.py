"""RandTune with 30 runs on average."""

import functools

from bench import HERE
from task import from_file

randtune = from_file(HERE / "arms" / "randtune.py")
plan = functools.partial(randtune.plan, mean=30)
search = randtune.search
