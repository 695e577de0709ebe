"""Configuration of the site, which Sphinx builds from the Markdown files: `make docs`."""

import importlib.util
import re
from pathlib import Path

import graphormer_sepnorm

ROOT = Path(__file__).resolve().parents[1]  # also the source folder: pages link beyond docs/

project = "graphormer_sepnorm"
author = "The graphormer_sepnorm authors"
release = graphormer_sepnorm.__version__
# With MyST-NB (`pip install myst-nb`, 30 packages more) notebooks are pages, else downloads.
notebooks = importlib.util.find_spec("myst_nb") is not None
markdown = "myst_nb" if notebooks else "myst_parser"
extensions = [markdown, "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "data/models/*.md", "benchmarks/README.md", "*.md"]
include_patterns += ["examples/*.ipynb"] if notebooks else []
nb_execution_mode = "off"  # "force": the outputs are made again, in three minutes
nb_execution_timeout = 600  # seconds for a cell
nb_execution_in_temp = True  # it writes a model
nb_output_stderr = "remove"  # of packages that miss widgets
exclude_patterns = [".*", "build", "runs", "README.md"]
suppress_warnings = ["toc.not_included"]  # a test finds guides that the index lacks
myst_heading_anchors = 4
default_role = "code"
_REQUESTS = ("fit", "predict", "predict_proba", "score", "transform")  # made by scikit-learn
autodoc_default_options = {
    "members": True,
    "exclude-members": ", ".join(f"set_{name}_request" for name in _REQUESTS),
}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True
smartquotes = False  # would make a dash of the hyphens of --option
html_theme = "furo"
html_title = f"graphormer<wbr>_sepnorm {release}"
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["tables.css"]


def contents(app, docname, source):
    """Make the menu from the lists of links in the index, and the API page from the package."""
    if docname == root_doc:
        for part in re.split(r"^(?=\*\*)", source[0], flags=re.MULTILINE)[1:]:
            caption = re.match(r"\*\*(.*?)\*\*", part)[1]
            # The diary is linked, not in the menu.
            files = "md|ipynb" if notebooks else "md"
            pages = re.findall(rf"\]\((?!experiments/)([^)]*)\.(?:{files})\)", part)
            source[0] += "\n".join(
                ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
            )
    elif docname == "docs/reference/api":
        for name in (one for one in graphormer_sepnorm.__all__ if one != "__version__"):
            found, kind = getattr(graphormer_sepnorm, name), "function"
            if isinstance(found, type):
                kind = "exception" if issubclass(found, Exception) else "class"
            directive = f".. auto{kind}:: graphormer_sepnorm.{name}"
            source[0] += f"\n## {name}\n\n```{{eval-rst}}\n{directive}\n```\n"


def landing_page(app, exception):
    """Lead the site's address to the index, which is in a folder."""
    if app.builder.name == "html":
        text = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">'
        (Path(app.outdir) / "index.html").write_text(text)


def setup(app):
    """Connect the functions above."""
    app.connect("source-read", contents)
    app.connect("build-finished", landing_page)
