"""Numbers of bytes and of parameters in words."""


def in_words(size: int) -> str:
    """Bytes to three digits.

    Example:
        >>> in_words(535296), in_words(3 * 2**30)
        ('523 KiB', '3.00 GiB')
    """
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    digits = 0 if value >= 100 or unit == "B" else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"
