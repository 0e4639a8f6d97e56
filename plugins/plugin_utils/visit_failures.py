"""Failures of a visit to a host that every carrier reports in the same words: reason and hint."""

from __future__ import annotations

# The answer of a host has some 100 KB. The limit stops programs that print endlessly.
MOST_OUTPUT = 16 * 2**20
TOO_MUCH_OUTPUT = f"it printed more than {MOST_OUTPUT // 2**20} MiB and was stopped"
PRINTS_ENDLESSLY = "does its login shell, or a script it reads, print endlessly? log in by hand and look"
# A program that a signal ended: ssh exits with 255, as for its own errors, and prints nothing.
KILLED = "our program was killed on the host (out of memory?)"
COMPLETES = "the next run completes what it began, `gpuctl rollback` undoes it; the kernel log shows what killed it"
# ssh's message after three unanswered keep-alive requests.
UNRESPONSIVE = "not responding"
