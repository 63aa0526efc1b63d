"""Code of this laboratory; params.yaml names it under `code`.

A method is a folder `methods/NAME/`, a model a file `models/NAME.py`; `accountants/` and `data_sets/`
have files too.
"""
