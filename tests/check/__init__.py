import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
# The audit of a whole search, and the contract of samplers.
sys.path += [str(EXAMPLES / "audits"), str(EXAMPLES / "extending")]
