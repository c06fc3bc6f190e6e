def svg(
    text: str,
    *,
    title: str,
    subtitle: str | None,
    count_name: str,
    palette: str,
    inverted: bool,
    min_width: float,
    width: int,
    colours: list[tuple[str, tuple[int, int, int]]],
) -> str: ...
def palettes() -> list[str]: ...
