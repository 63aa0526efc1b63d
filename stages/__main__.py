"""`python -m dprepro.stages`: the `dprepro` command without an installation."""

from dprepro.stages.app import main

main()
