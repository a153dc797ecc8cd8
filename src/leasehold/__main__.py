"""`python -m leasehold`: the command `leasehold`, where its script is not on PATH."""

from leasehold.cli.app import main

if __name__ == "__main__":
    main()
