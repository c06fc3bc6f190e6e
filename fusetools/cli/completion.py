"""Completion in shells: where click knows no word, the shell completes names of files."""

from __future__ import annotations

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)


class _OrFiles(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        words = super().get_completions(args, incomplete)
        if words or incomplete.startswith("-"):
            return words
        return [CompletionItem(incomplete, type="file")]


class _Bash(_OrFiles, BashComplete):
    pass


class _Fish(_OrFiles, FishComplete):
    pass


class _Zsh(_OrFiles, ZshComplete):
    pass


def register() -> None:
    for shell in (_Bash, _Fish, _Zsh):
        add_completion_class(shell)
