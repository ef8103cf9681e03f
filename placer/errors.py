"""What can go wrong, said in one line: what, where, what next."""


class PlacerError(Exception):
    """An honest failure: the command ends with exit code 1 and this one line."""

    exit_code = 1


class BadInputError(PlacerError):
    """The user's input cannot be used; the line says what, where and what next. Exit code 2."""

    exit_code = 2
