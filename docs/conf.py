"""Sphinx configuration."""

import sys
from importlib.util import find_spec
from pathlib import Path

import optuna_dp

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "optuna-dp"
author = "The optuna-dp authors"
copyright = "2026, the optuna-dp authors"
version = release = optuna_dp.__version__

extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "table_names",
]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
suppress_warnings = ["myst.header"]
html_theme = "furo"
html_math_renderer = "mathml"
html_title = "optuna-dp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build", "_extensions"]
autodoc_typehints = "description"
# Extras whose classes the reference names; without them their names stand for them.
autodoc_mock_imports = [
    package for package in ("flwr", "cryptography", "pytest") if find_spec(package) is None
]
autodoc_member_order = "bysource"
napoleon_custom_sections = ["Guarantees"]
autodoc_type_aliases = {
    "ArrayLike": "numpy.typing.ArrayLike",
    "npt.ArrayLike": "numpy.typing.ArrayLike",
    "FloatArray": "numpy.ndarray",
}
doctest_global_setup = """
import optuna
import optuna_dp as odp
from importlib.util import find_spec
has_plotly = find_spec("plotly") is not None
has_dashboard = has_plotly and find_spec("optuna_dashboard") is not None
optuna.logging.set_verbosity(optuna.logging.ERROR)
"""
