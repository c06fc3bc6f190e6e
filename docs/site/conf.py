"""Settings of Sphinx, for the copy that build.py makes."""

project = "fusetools"
extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["extra"]
html_extra_path = ["extra"]
html_theme = "furo"
html_title = "fusetools"
html_copy_source = False
html_show_sphinx = False
# Anchors of headings, as the links in README and docs/ have them.
myst_heading_anchors = 4
highlight_language = "none"
