"""`python -m unstarve`."""

from unstarve.cli import main

if __name__ == "__main__":
    main()
