"""The errors unstarve raises itself; a user's own exceptions always pass through unchanged.

    UnstarveError
    ├── UsageError         the command or call cannot mean anything (exit code 2)
    │     └── NoSuchRank   seen only when the script has begun
    ├── MeasurementError   the loop ran but no verdict can be given (exit code 4)
    └── FormatError        a stored file is not one of ours, or of a version we do not know (exit code 2)

`Finished` and `Stalled` are not errors of the user's code and must not be caught by it, so they derive from
`BaseException` directly.
"""


class UnstarveError(Exception):
    """Every error that unstarve raises on purpose."""


class UsageError(UnstarveError):
    """What was asked for cannot be done; the message says what was given and what was expected."""


class NoSuchRank(UsageError):
    """The rank to diagnose is none of the training's, which shows only when that has begun."""


class MeasurementError(UnstarveError):
    """The loop ran, but too little of it, or none of it through a loader, to reach a verdict."""


class FormatError(UnstarveError):
    """A stored file could not be understood."""


class Finished(BaseException):
    """Raised in the user's loop when the diagnosis is done, to unwind the script through its own clean-up."""


class Stalled(BaseException):
    """Raised in the user's loop when no batch arrived within the patience that was set."""
