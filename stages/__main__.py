"""`python -m stages`: the `dprepro` command without an installation."""

from stages.app import main

main()
